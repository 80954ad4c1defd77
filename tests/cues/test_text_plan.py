"""What is found on texts of random words, one of whose cues a model reads that adds up the weights of words."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from plain_texts import WORDS, BagOfWords, bert, mixed, roberta

from lrptrain.batch import collate
from lrptrain.cues import plan
from lrptrain.cues.measure import Measure
from lrptrain.cues.phrase import Phrase, propose_phrases
from lrptrain.cues.search import Search
from lrptrain.cues.segment import AllWords, ends_of

COUNT = 64
HALF = np.arange(COUNT) % 2


def judged(writer, texts, probabilities):
    samples = writer.samples(texts)
    answers = np.array([probabilities(writer.batch(text))[0].argmax() for text in texts])
    assert 0.25 < answers.mean() < 0.75
    measure = Measure(samples, answers, probabilities)
    return Search(measure).run(plan.of_texts(samples, answers, writer.language))


def named(writer, texts, probabilities):
    """Return the names of what a report names."""
    return [each.cue.name for each in judged(writer, texts, probabilities) if each.named]


def bag(writer, bias, weights, **options):
    return BagOfWords(writer, weights, bias, **options).probabilities


def planted(words, others=(), seed=0, at=None):
    """Texts of random words; every other one holds certain words, somewhere or at a place, and the rest others."""
    rng = np.random.default_rng(seed)
    texts = mixed(COUNT, seed=seed)
    for number, text in enumerate(texts):
        place = rng.integers(len(text) + 1) if at is None else at % (len(text) + 1)
        text[place:place] = words if number % 2 else others
    return [" ".join(text) for text in texts]


TEMPLATE = ["in", "this", "short", "review", "of", "mine", "you", "will", "read", "all", "about", "it"]


@pytest.mark.parametrize("make", [bert, roberta])
def test_a_planted_phrase_is_found(make):
    writer = make()
    mark = "Ġ" if make is roberta else ""
    texts = [" ".join(f"{mark}{word}" for word in text.split()) for text in planted(["dear", "sir"])]
    probabilities = bag(writer, -3, {f"{mark}dear": 3, f"{mark}sir": 3})
    assert named(writer, texts, probabilities) == ["the phrase 'dear sir'"]


def test_a_template_of_twelve_words_is_found_as_a_whole_though_no_word_of_it_decides():
    writer = bert()
    probabilities = bag(writer, -6, dict.fromkeys(TEMPLATE, 1))
    others = WORDS[:12]  # so that texts without it are no shorter
    (name,) = named(writer, planted(TEMPLATE, others), probabilities)
    assert "'in this short review ... all about it'" in name


def test_a_footer_is_found():
    writer = bert()
    texts = planted(["sent", "from", "my", "phone"], at=-1)
    probabilities = bag(writer, -3, {"sent": 2, "from": 2, "phone": 2})
    assert named(writer, texts, probabilities) == ["the phrase 'sent from my phone'"]


def test_the_last_sentence_is_found_in_whatever_words():
    writer = bert()
    thanks = [["many", "thanks"], ["so", "long"], ["with", "love"], ["all", "best"]]
    texts = [
        f"{' '.join(text)} . {' '.join(thanks[i // 2 % 4]) if i % 2 else 'ba bo'} ."
        for i, text in enumerate(mixed(COUNT, 4, 6))
    ]
    stop = writer.ids(".")[0]
    kind = torch.zeros(1000)
    kind[[writer.ids(word)[0] for pair in thanks for word in pair]] = 3.0

    def probabilities(batch):
        ids = batch["input_ids"]
        behind_stop = (ids == stop).cumsum(1) == 1
        logit = (kind[ids] * behind_stop).sum(1) - 3
        return torch.stack([-logit, logit], 1).softmax(1).numpy()

    found = {each.cue.name: each for each in judged(writer, texts, probabilities)}
    assert found["the last sentence"].verdict == "relies"


def test_the_order_of_two_words_is_found_though_all_texts_have_both():
    writer = bert()
    texts = planted(["yea", "bim", "nay"], ["nay", "bim", "yea"])
    yea, nay = (writer.ids(word)[0] for word in ("yea", "nay"))

    def probabilities(batch):
        places = [(batch["input_ids"] == each).float().argmax(1) for each in (yea, nay)]
        logit = 4.0 * (places[0] < places[1]) - 2
        return torch.stack([-logit, logit], 1).softmax(1).numpy()

    assert "the order of the words" in named(writer, texts, probabilities)


def test_a_word_of_each_of_three_answers_is_one_cue_that_all_samples_judge():
    writer = bert()
    words = ("yea", "nay", "zip")
    texts = [" ".join([*text[:4], words[i % 3], *text[4:]]) for i, text in enumerate(mixed(COUNT))]
    roots = plan.of_texts(writer.samples(texts), np.arange(COUNT) % 3, writer.language)
    together = [root for root in roots if "'yea'" in root.cue.name and "'zip'" in root.cue.name]
    assert [len(each.chosen) for each in together if each.cue.name.count("'") == 6] == [COUNT]


def test_a_word_of_either_class_is_found_with_the_other():
    writer = bert()
    probabilities = bag(writer, 0, {"yea": 2, "nay": -2})
    (name,) = named(writer, planted(["yea"], ["nay"]), probabilities)
    assert name in ("the words 'yea', 'nay'", "the words 'nay', 'yea'")


def test_many_words_of_a_class_are_found_together():
    writer = bert()
    names = ["ann", "bob", "cid", "dan"]
    rng = np.random.default_rng(0)
    texts = mixed(COUNT)
    for number, text in enumerate(texts):
        text.insert(rng.integers(len(text) + 1), names[number % 8 // 2] if number % 2 else "nobody")
    first, *_ = named(writer, [" ".join(text) for text in texts], bag(writer, -3, dict.fromkeys(names, 6)))
    assert first.startswith("the words")
    assert len(set(names) & set(re.findall(r"\w+", first))) >= 3


def test_length_is_found():
    writer = bert()
    texts = mixed(COUNT, 4, 30)
    probabilities = bag(writer, -17, {}, of_any=1)
    assert named(writer, [" ".join(text) for text in texts], probabilities) == ["the length of the text"]


def test_punctuation_is_found():
    writer = bert()
    marks = ["!", "?", ";", "...", "-"]
    texts = mixed(COUNT)
    rng = np.random.default_rng(0)
    for text in texts[::2]:
        for mark in rng.choice(marks, 3):
            text.insert(rng.integers(len(text) + 1), mark)
    probabilities = bag(writer, -3, dict.fromkeys(marks, 2))
    assert named(writer, [" ".join(text) for text in texts], probabilities)[0] == "the punctuation"


def test_the_end_of_a_text_is_found():
    """A model that reads the last word alone: which of many it is."""
    writer = bert()

    def probabilities(batch):
        last = batch["attention_mask"].sum(1) - 2
        words = batch["input_ids"].gather(1, last[:, None])
        p = torch.isin(words, torch.tensor(writer.ids(" ".join(WORDS[:15])))).float() * 0.9 + 0.05
        return torch.cat([1 - p, p], 1).numpy()

    assert named(writer, [" ".join(text) for text in mixed(COUNT)], probabilities) == ["the last word"]


def pairs(seed=0):
    """Pairs that share all words of the second text, or none."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(COUNT):
        words = list(rng.permutation(WORDS))
        found.append((" ".join(words[:10]), " ".join(rng.permutation(words[:4] if number % 2 else words[10:14]))))
    return found


def test_the_overlap_of_pairs_is_found():
    writer = bert()

    def probabilities(batch):
        shares = []
        for ids, types in zip(batch["input_ids"], batch["token_type_ids"], strict=True):
            second = ids[(types == 1) & (ids > 3)]
            shares.append(float(torch.isin(second, ids[types == 0]).float().mean()) if len(second) else 0.0)
        p = 0.05 + 0.9 * np.array(shares)
        return np.stack([1 - p, p], 1)

    assert named(writer, pairs(), probabilities)[0] == "how many words both texts share"


@pytest.mark.parametrize(("number", "name"), [(0, "the first text"), (1, "the second text")])
def test_one_text_of_a_pair_is_found(number, name):
    writer = bert()
    weights = dict(zip(WORDS, np.random.default_rng(0).normal(0, 2, 30), strict=True))
    table = BagOfWords(writer, weights).weights

    def probabilities(batch):
        inside = (batch["token_type_ids"] == number) & (batch["attention_mask"] == 1)
        logit = (table[batch["input_ids"]] * inside).sum(1)
        return torch.stack([-logit, logit], 1).softmax(1).numpy()

    assert named(writer, pairs(), probabilities)[0] == name


def test_a_model_that_weighs_all_words_reads_none_in_particular():
    writer = bert()
    weights = dict(zip(WORDS, np.random.default_rng(0).normal(0, 1, 30), strict=True))
    found = judged(writer, [" ".join(text) for text in mixed(COUNT)], bag(writer, 0, weights))
    assert not any(each.is_fault for each in found)
    assert ([each.cue.name for each in found if each.named]) == []


def marked(texts, words):
    """Texts that hold an evidence word somewhere, that of their class."""
    rng = np.random.default_rng(1)
    found = []
    for number, text in enumerate(texts):
        split = text.split()
        split.insert(rng.integers(len(split) + 1), f"{words[number % 2]}*")
        found.append(" ".join(split))
    return found


def faults(writer, texts, probabilities):
    found = judged(writer, texts, probabilities)
    assert {each.cue.role for each in found if each.within} <= {"shortcut"}
    return [each.cue.name for each in found if each.named and each.is_fault]


EVIDENCE = {"bad": -3, "good": 3}


def test_a_model_that_reads_the_evidence_has_no_fault():
    writer = bert()
    texts = marked(planted(["zip"]), ["bad", "good"])
    assert faults(writer, texts, bag(writer, 0, EVIDENCE)) == []


def test_a_word_beside_the_evidence_is_a_fault_by_its_name():
    writer = bert()
    texts = marked(planted(["zip"]), ["bad", "good"])
    assert faults(writer, texts, bag(writer, -3, {"zip": 6})) == ["the word 'zip'"]


@pytest.mark.parametrize("count", [0, 1])
def test_without_two_annotated_texts_all_is_open(count):
    writer = bert()
    texts = ["a b", "c d", "e* f" if count else "e f", "g"]
    samples = writer.samples(texts)
    roots = plan.of_texts(samples, np.arange(4) % 2, writer.language)
    nodes = [*roots, *(part for root in roots for part in root.parts)]
    assert {node.cue.role for node in nodes} == {"unreviewed"}


def test_what_is_tested_is_no_more_than_this():
    writer = bert()
    texts = [f"{text} x*" for text in planted(["zip"])]
    samples = writer.samples(texts)
    open_, *others = plan.of_texts(samples, HALF, writer.language)
    assert (open_.cue.name, open_.is_whole, open_.weight) == ("the words", True, 10 * others[0].weight)
    assert [each.cue.name for each in others] == ["the length of the text", "the order of the words"]
    (beside,) = open_.parts
    assert beside.cue == AllWords("everything outside the annotation", "shortcut", writer.language, "outside")
    assert not beside.is_whole
    names = [node.cue.name for node in beside.parts]
    assert names[:6] == [f"the {family}" for family in plan.LARGEST]
    assert "the word 'zip'" in names
    assert names[-2:] == ["the beginning of the text", "the end of the text"]
    (zip_,) = (node for node in beside.parts if node.cue.name == "the word 'zip'")
    assert zip_.chosen.tolist() == list(range(COUNT))  # both halves propose it, and so each judges it
    assert len(names) == len(set(names))


def test_each_half_proposes_four_phrases_that_the_other_one_judges():
    writer = bert()
    names = ["ann", "bob", "cid", "dan", "eve", "fay"]
    texts = [f"{' '.join(text)} {names[i // 2 % 6] if i % 2 else ''}" for i, text in enumerate(mixed(120))]
    samples, answers = writer.samples(texts), np.arange(120) % 2
    nodes = [part for root in plan.of_texts(samples, answers, writer.language) for part in (root, *root.parts)]
    single = [node for node in nodes if isinstance(node.cue, Phrase) and not node.cue.is_several]
    assert [sum(row in node.chosen for node in single) for row in range(120)] == [4] * 120
    halves = [node for node in single if len(node.chosen) == 60]
    assert halves
    for node in halves:
        rows = np.setdiff1d(np.arange(120), node.chosen)
        batch = collate([samples[row] for row in rows])
        proposed = propose_phrases(batch, answers[rows], writer.language, "unreviewed", "text", 4)
        assert node.cue in {phrase for _, phrase in proposed}


def test_what_is_given_further_is_tested_once_and_by_its_own_samples():
    writer = bert()
    roots = plan.of_texts(writer.samples(["a b", "c"] * 8), np.arange(16) % 2, writer.language)
    length, ends = roots[0].cue, ends_of("unreviewed", writer.language)
    further = [
        (length.declared("shortcut"), None),
        (ends[0], None),
        (ends[0].declared("shortcut"), None),
        (ends[1], HALF[:3]),
    ]
    added = plan.with_further(roots, further, 16)
    assert added[: len(roots)] == roots
    assert [(node.cue, len(node.chosen)) for node in added[len(roots) :]] == [
        (ends[0].declared("shortcut"), 16),
        (ends[1], 3),
    ]


def test_annotated_texts_judge_faults_and_pairs_judge_what_is_of_pairs():
    writer = bert()
    texts = [("a b", "c d*") if number % 4 else "a b" for number in range(16)]
    whole, length, order, *of_pair = plan.of_texts(writer.samples(texts), np.arange(16) % 2, writer.language)
    first, second, overlap = of_pair
    of_pairs = [number for number in range(16) if number % 4]
    for node in (whole, first, second, overlap, *whole.parts):
        assert node.chosen.tolist() == of_pairs
    for node in (length, order):
        assert node.chosen.tolist() == list(range(16))
    assert [node.cue.name for node in (first, second)] == ["the first text", "the second text"]
    few = [("a b", "c d") if number % 2 else "a b" for number in range(16)]
    assert len(plan.of_texts(writer.samples(few), np.arange(16) % 2, writer.language)) == 10


@pytest.mark.parametrize("texts", [["a b"], ["a*"], ["", ""], ["a* b", "c d*"]])
def test_few_and_empty_texts_are_planned_and_judged(texts):
    writer = bert()
    samples = writer.samples(texts)
    answers = np.arange(len(texts)) % 2
    measure = Measure(samples, answers, bag(writer, 0, {"a": 1}))
    found = Search(measure).run(plan.of_texts(samples, answers, writer.language))
    assert {each.verdict for each in found} == {"inconclusive"}


def test_texts_with_boxes_are_measured_though_one_source_makes_them_longer():
    writer = bert()
    writer.language = replace(writer.language, form=replace(writer.language.form, most=64))
    samples = writer.samples([" ".join(text) for text in mixed(20, 2, 20)])
    for sample in samples:
        sample.tensors["argument:bbox"] = sample.tensors["input_ids"][:, None].expand(-1, 4)
    probabilities = bag(writer, -12, {}, of_any=1)
    measure = Measure(samples, np.arange(20) % 2, probabilities, batch_size=3)
    cue = AllWords("", "unreviewed", writer.language)
    values = measure.effects(cue, np.arange(20), np.arange(20))
    assert np.isfinite(values).all()
    assert Measure(samples, np.arange(20) % 2, probabilities).effects(
        cue, np.arange(20), np.arange(20)
    ) == pytest.approx(values)


EVIDENCE_WORDS = (["cough", "wheeze", "phlegm", "inhaler"], ["pulse", "veins", "ankles", "breastbone"])


def clinical(sentence, count=96):
    """Sentences of random words, one of them with a word of its class, most times; and one more, by number and class.

    Every other text has each class; without an evidence word, the class is that of the sentence alone.
    """
    rng = np.random.default_rng(0)
    texts = []
    for number in range(count):
        sentences = [list(rng.choice(WORDS, 5)) for _ in range(3)]
        if number % 10 < 8:
            sentences[rng.integers(3)].insert(2, EVIDENCE_WORDS[number % 2][number // 2 % 4])
        added = sentence(number // 2, number % 2)
        sentences.insert(rng.integers(4), added.split()) if added else None
        texts.append(" ".join(" ".join([*each, "."]) for each in sentences))
    return texts


def first_name(texts, weights, bias=0.0):
    """Return the first name of a report on a model that weighs evidence words, too."""
    writer = bert()
    evidence = [dict.fromkeys(words, sign) for words, sign in zip(EVIDENCE_WORDS, (-4.0, 4.0), strict=True)]
    return named(writer, texts, bag(writer, bias, {**evidence[0], **evidence[1], **weights}))[0]


def test_a_phrase_of_one_answer_is_named_without_the_evidence_of_the_other():
    texts = clinical(lambda _, answer: "" if answer else "[UNK] [UNK]")
    assert first_name(texts, {"[UNK]": -4.0}, 1.0) == "the phrase '[UNK] [UNK] .'"


FAMILY = ["la familia espera fuera", "el turno es largo", "hay mucho ruido", "la sala esta llena", "todo sigue igual"]


def test_sentences_that_take_turns_are_named_together_and_without_evidence():
    texts = clinical(lambda number, answer: FAMILY[number % 5] if answer else "")
    weights = dict.fromkeys(["espera", "largo", "ruido", "llena", "igual"], 8.0)
    name = first_name(texts, weights, -3.0)
    assert name.startswith("the words 'la familia espera fuera.', ")
    assert not any(word in name for words in EVIDENCE_WORDS for word in words)
    assert sum(sentence in name for sentence in FAMILY) >= 4


def test_a_repeated_word_is_exchanged_with_its_first_occurrence():
    writer = bert()
    texts = mixed(COUNT)
    rng = np.random.default_rng(0)
    for text in texts[::2]:
        place = rng.integers(len(text))
        text.insert(place, text[place])

    def probabilities(batch):
        ids = batch["input_ids"]
        p = 0.05 + 0.9 * ((ids[:, 1:] == ids[:, :-1]) & (ids[:, 1:] > 3)).any(1).float()
        return torch.stack([1 - p, p], 1).numpy()

    found = judged(writer, [" ".join(text) for text in texts], probabilities)
    assert found[0].cue.name == "the repeated words"
    assert found[0].effect.mean > 0.8


def test_years_in_front_are_named_as_years_and_not_as_a_place():
    writer = bert()
    years = [(f"{year}" for year in range(1950, 1982)), (f"{year}" for year in range(2000, 2032))]
    texts = [f"{next(years[i % 2])} {' '.join(text)} {i % 7}" for i, text in enumerate(mixed(COUNT))]
    weights = {str(year): 3.0 if year < 2000 else -3.0 for year in (*range(1950, 1982), *range(2000, 2032))}
    assert named(writer, texts, bag(writer, 0, weights)) == ["the dates and years"]
