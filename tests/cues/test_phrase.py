import numpy as np
import pytest
from plain_texts import bert, mixed, roberta

from lrptrain.cues.phrase import LONGEST, Phrase, occurrences, propose_phrases
from lrptrain.cues.texts import parts_of


def words(writer, *phrases):
    """Return phrases of words of one token each, by their ids."""
    return tuple(tuple((number,) for number in writer.ids(each)) for each in phrases)


def found(text, *phrases, writer=None):
    writer = writer or bert()
    (parts,) = parts_of(writer.batch(text), writer.language)
    return occurrences(parts[0].words, words(writer, *phrases))


def test_a_phrase_occurs_wherever_its_words_stand_side_by_side():
    assert found("a b c a b", "a b") == [(1, 3), (4, 6)]
    assert found("a c b a", "a b") == []
    assert found("a a a", "a a") == [(1, 3)]
    assert found("a b", "a b") == [(1, 3)]
    assert found("a", "a b") == []
    assert found("a b", "b") == [(2, 3)]


def test_of_several_phrases_at_a_place_the_longest_counts_and_none_lies_in_another():
    assert found("a b c", "a", "a b", "b c") == [(1, 3)]
    assert found("a b c a", "b c", "a") == [(1, 2), (2, 4), (4, 5)]


def test_a_word_is_all_of_its_pieces():
    writer = bert()
    batch = writer.batch("un ##seen un seen")
    (parts,) = parts_of(batch, writer.language)
    unseen = (tuple(writer.ids("un ##seen")),)
    assert occurrences(parts[0].words, (unseen,)) == [(1, 3)]
    assert occurrences(parts[0].words, words(writer, "un")) == [(3, 4)]


def test_texts_exchange_phrases():
    writer = bert()
    batch = writer.batch("dear sir a b", "c d hello")
    sources = {name: rows.flip(0) for name, rows in batch.items()}
    cue = Phrase("", "unreviewed", writer.language, phrases=words(writer, "dear sir", "hello"))
    assert writer.read(cue.exchange(batch, sources)) == ["[CLS] a b hello [SEP]", "[CLS] dear sir c d [SEP]"]


def proposed(texts, answers, writer=None, role="unreviewed", count=3):
    writer = writer or bert()
    batch = writer.batch(*texts)
    return [
        cue
        for _, cue in propose_phrases(
            batch, np.array(answers), writer.language, role, "outside" if role == "shortcut" else "text", count
        )
    ]


def planted(phrase, count=24):
    """Return texts of random words, half of which hold a phrase somewhere, and which they are."""
    rng = np.random.default_rng(0)
    texts = mixed(count)
    for text in texts[::2]:
        place = rng.integers(len(text) + 1)
        text[place:place] = phrase.split()
    return [" ".join(text) for text in texts], [number % 2 == 0 for number in range(count)]


def test_what_nobody_judged_is_proposed_for_no_fault():
    writer = bert()
    texts, answers = planted("zip")
    batch = writer.batch(*(f"evidence* {text}" for text in texts))
    found = []
    for rationale in (batch["rationale"], batch["rationale"].masked_fill(batch["rationale"] == 0, 255)):
        given = {**batch, "rationale": rationale}
        phrases = propose_phrases(given, np.array(answers), writer.language, "shortcut", "outside", 1)
        found.append([cue.name for _, cue in phrases])
    assert (found[0][0], found[1]) == ("the word 'zip'", [])


@pytest.mark.parametrize("phrase", ["zip", "zip zap", "one two three four five six seven eight nine ten eleven twelve"])
def test_what_goes_with_an_answer_is_proposed_first_and_as_a_whole(phrase):
    writer = bert()
    texts, answers = planted(phrase)
    first, *_ = proposed(texts, answers, writer)
    assert first.phrases == words(writer, phrase)


def test_the_name_of_a_phrase_is_how_it_reads():
    texts = ["so un ##seen ; is it", "a b so un ##seen ; is it", "so un ##seen ; is it a", "a b c", "c b", "b a"]
    assert proposed(texts, [1, 1, 1, 0, 0, 0])[0].name == "the phrase 'so unseen; is it'"
    texts = ["u Ġso Ġun seen", "a Ġso Ġun seen", "b Ġso Ġun seen", "Ġc Ġso Ġun seen", "a Ġb", "b", "Ġa", "b Ġa"]
    assert proposed(texts, [1, 1, 1, 1, 0, 0, 0, 0], roberta())[0].name == "the phrase 'so unseen'"
    texts = ["a !", "b !", "c !", "a Ġ!", "b Ġ!", "c Ġ!"]
    names = [each.name for each in proposed(texts, [0, 0, 0, 1, 1, 1], roberta())]
    assert sorted(names[:2]) == ["the phrase ' !'", "the word '!'"]
    assert proposed(*planted("zip"))[0].name == "the word 'zip'"
    assert proposed(*planted("1 2 3 4 5 6 7 8"))[0].name == "the phrase '1 2 3 4 5 6 7 8'"
    assert proposed(*planted("1 2 3 4 5 6 7 8 9"))[0].name == "the phrase '1 2 3 4 ... 7 8 9'"


def test_a_phrase_that_stands_alone_somewhere_is_one_too():
    writer = bert()
    texts = ["dear sir a", "b dear sir", "dear sir", "dear c", "a b", "c b", "b", "a"]
    assert proposed(texts, [1, 1, 1, 1, 0, 0, 0, 0], writer)[0].phrases == words(writer, "dear")
    assert proposed(texts, [1, 1, 1, 0, 0, 0, 0, 0], writer)[0].phrases == words(writer, "dear sir")


def test_a_template_that_is_longer_than_a_phrase_is_found_by_its_first_words():
    writer = bert()
    template = " ".join(f"t{i}" for i in range(LONGEST + 8))
    texts, answers = planted(template, 8)
    (key,) = proposed(texts, answers, writer)[0].phrases
    assert key == words(writer, template)[0][:LONGEST]


def test_what_two_texts_hold_is_no_phrase():
    texts = ["a zip", "b zip", "c", "d e", "f", "g"]
    assert proposed(texts, [1, 1, 1, 0, 0, 0]) == []
    assert proposed([*texts, "h zip"], [1, 1, 1, 0, 0, 0, 1])[0].name == "the word 'zip'"


def test_what_goes_with_no_answer_and_answers_that_are_all_the_same_propose_nothing():
    assert proposed(["zip a", "zip b", "zip c", "zip d"], [0, 0, 1, 1]) == []
    assert proposed(["zip a", "zip b", "zip c", "d"], [1, 1, 1, 1]) == []


def test_a_word_of_either_answer_and_both_together_are_proposed():
    writer = bert()
    texts = [f"{word} {' '.join(rest)}" for word, rest in zip(["yea", "nay"] * 12, mixed(24), strict=True)]
    cues = proposed(texts, [1, 0] * 12, writer, count=2)
    assert {each.phrases for each in cues[:2]} == {words(writer, "yea"), words(writer, "nay")}
    assert [len(each.phrases) for each in cues[2:]] == [2]
    assert cues[2].name in ("the words 'yea', 'nay'", "the words 'nay', 'yea'")


def test_many_words_for_an_answer_are_proposed_together():
    writer = bert()
    names = "ann bob cid dan eve"
    texts = [f"{' '.join(text)} {names.split()[n % 5] if n % 2 else ''}" for n, text in enumerate(mixed(40))]
    *_, most = proposed(texts, [n % 2 for n in range(40)], writer)
    assert set(words(writer, *names.split())) <= set(most.phrases)
    assert most.name.endswith(f"and {len(most.phrases) - 4} more")


def test_each_is_ranked_among_the_texts_that_hold_none_before_it():
    # "b" stands in texts with "a" alone: of those without "a" none holds it.
    texts = ["a b x", "a b y", "a b z", "a u", "a v", "p", "q", "r", "s", "t"]
    cues = proposed(texts, [1] * 5 + [0] * 5, count=5)
    assert [cue.name for cue in cues] == ["the word 'a'"]
    # Of those, one text is too few.
    cues = proposed([*texts, "b w"], [1] * 5 + [0] * 5 + [1], count=5)
    assert [cue.name for cue in cues] == ["the word 'a'"]


def test_so_many_are_proposed_as_are_asked_for_and_the_best_come_first():
    writer = bert()
    texts, answers = planted("zip zap")
    texts = [
        f"{text} {'yes' if answer or number % 8 else 'no'}"
        for number, (text, answer) in enumerate(zip(texts, answers, strict=True))
    ]
    scored = list(propose_phrases(writer.batch(*texts), np.array(answers), writer.language, "unreviewed", "text", 2))
    single = [(score, cue) for score, cue in scored if len(cue.phrases) == 1]
    assert len(single) == 2
    assert single[0][0] > single[1][0] > 0
    assert [score for score, cue in scored if len(cue.phrases) > 1] == [0.0] * (len(scored) - 2)


def test_a_fault_is_looked_for_beside_what_people_marked_and_does_not_reach_over_it():
    writer = bert()
    texts = ["good* zip a", "good* zip b", "c good* zip", "bad* a", "bad* b", "c bad*"]
    answers = [1, 1, 1, 0, 0, 0]
    assert [cue.name for cue in proposed(texts, answers, writer, "shortcut")] == ["the word 'zip'"]
    assert {cue.name for cue in proposed(texts, answers, writer)[:2]} == {"the phrase 'good zip'", "the word 'bad'"}
    texts = ["zip good* zap a", "zip good* zap b", "c zip good* zap", "a", "b", "c"]
    cues = proposed(texts, answers, writer, "shortcut")
    assert {cue.phrases for cue in cues} <= {words(writer, "zip"), words(writer, "zap")}
    assert {cue.role for cue in cues} == {"shortcut"}


def test_a_phrase_does_not_reach_from_one_text_of_a_pair_into_the_other():
    writer = bert()
    texts = [("a zip", "zap b"), ("zip", "zap"), ("c zip", "zap"), ("a", "b"), ("b", "c"), ("c", "a")]
    single = {key for cue in proposed(texts, [1, 1, 1, 0, 0, 0], writer) for key in cue.phrases}
    assert single & set(words(writer, "zip", "zap"))
    assert all(len(key) == 1 for key in single)


def test_texts_without_words_propose_nothing():
    assert proposed(["", "", ""], [0, 1, 1]) == []


def test_a_phrase_is_plain_data():
    writer = bert()
    cue = Phrase("the word 'a'", "unreviewed", writer.language, phrases=words(writer, "a"))
    assert cue.to_dict() == {
        "kind": "phrase",
        "name": "the word 'a'",
        "role": "unreviewed",
        "where": "text",
        "phrases": (((4,),),),
    }
    assert cue == Phrase("the word 'a'", "unreviewed", roberta().language, phrases=cue.phrases)


def test_a_phrase_with_a_quote_is_readable():
    assert proposed(*planted("'"))[0].name == 'the word "\'"'


def taking_turns(*words, places):
    """Return texts of random words, and their answers: of one answer, each of some words is in four at certain places.

    Of random words and of the other answer none is said twice.
    """
    filler = iter(range(10**6))
    texts = [[f"f{next(filler)}" for _ in range(6)] for _ in range(8 * len(words))]
    for number, word in enumerate(words):
        for text, place in zip(texts[4 * number : 4 * number + 4], places[number], strict=True):
            text[place:place] = word.split()
    return [" ".join(text) for text in texts], [1] * 4 * len(words) + [0] * 4 * len(words)


ENDS = [0, 6, 0, 6]


@pytest.mark.parametrize(
    ("third", "places", "are_three"),
    [
        ("cid", [0, 6, 6, 6], True),
        ("cid", [0, 6, 6, 3], True),
        ("cid", [0, 6, 3, 3], False),
        ("cid .", ENDS, False),
        ("!", ENDS, True),
    ],
)
def test_words_at_an_end_are_listed_without_sentences_and_words_elsewhere(third, places, are_three):
    texts, answers = taking_turns("ann", "bob", third, places=[ENDS, ENDS, places])
    (several,) = (cue for cue in proposed(texts, answers, count=4) if cue.is_several)
    assert several.name == "the words 'ann', 'bob'" + f", '{third}'" * are_three


def test_sentences_are_listed_wherever_they_stand():
    texts, answers = taking_turns("so it is .", "as we see .", places=[ENDS, [3] * 4])
    texts = [*texts[:8], *(f"{text} ." for text in texts[8:])]
    (several,) = (cue for cue in proposed(texts, answers, count=4) if cue.is_several)
    assert several.name == "the words 'so it is.', 'as we see.'"


def test_where_an_answer_is_told_by_a_rarer_list_no_list_mixes_it_with_the_other_answer():
    texts, answers = taking_turns("ann", "bob", places=[ENDS, ENDS])
    texts = [*texts[:8], *(f"zip {text}" for text in texts[8:])]
    assert [cue.name for cue in proposed(texts, answers, count=4) if cue.is_several] == [
        "the words 'ann', 'bob', 'zip'"
    ]
    texts, answers = [*texts, *texts[8:]], [*answers, *answers[8:]]
    assert [cue.name for cue in proposed(texts, answers, count=4) if cue.is_several] == ["the words 'ann', 'bob'"]
    assert not any(cue.is_several for cue in proposed(texts, answers, count=1))
