"""Marks in tweets leave the annotated words where they are to be found."""

import re
from collections import Counter

import numpy as np
import pytest

from experiments.benchmark.cases import DEVELOPMENT, TEXT_KINDS
from experiments.benchmark.text_marks import (
    AUTHORS,
    CHANGED,
    HEDGES,
    NOTES,
    REMOVED,
    TEXT_MARKS,
    TRANSLATIONS,
    UNITS,
)
from lrptrain.data.texts import Example

TWEETS = [
    Example("what a lovely day it was", 1, ((7, 13),)),
    Example("sad to see you go home", 0, ((0, 3),)),
    Example("that is all really awful", 0, ((12, 24),)),
]


@pytest.mark.parametrize("kind", TEXT_MARKS)
@pytest.mark.parametrize("tweet", TWEETS, ids=lambda each: each.text[:8])
def test_the_rationale_is_still_the_same_words(kind, tweet):
    assert tweet.spans is not None
    start, end = tweet.spans[0]
    texts = set()
    for form in range(2):
        for seed in range(30):
            found = TEXT_MARKS[kind](tweet, form, np.random.default_rng(seed))
            assert found.spans is not None
            left, right = found.spans[0]
            assert found.text[left:right] == tweet.text[start:end]
            assert found.label == tweet.label
            texts.add((form, found.text))
    assert not {text for form, text in texts if form == 0} & {text for form, text in texts if form == 1}


def test_every_kind_that_is_planned_can_be_written():
    assert {*TEXT_KINDS, *DEVELOPMENT["texts"]} == set(TEXT_MARKS)


def marked(kind: str, tweet: Example, form: int) -> list[str]:
    return [TEXT_MARKS[kind](tweet, form, np.random.default_rng(seed)).text for seed in range(30)]


@pytest.mark.parametrize("form", range(2))
def test_a_phrase_of_doubt_or_certainty_is_at_either_end(form):
    expected = {f"{phrase} {TWEETS[0].text}" for phrase in HEDGES[form]}
    expected |= {f"{TWEETS[0].text} {phrase}" for phrase in HEDGES[form]}
    texts = set(marked("hedge", TWEETS[0], form))
    assert texts <= expected
    assert {text.startswith(TWEETS[0].text) for text in texts} == {True, False}
    assert len(texts) > 6


def test_both_moods_have_the_same_dates_in_another_order():
    for first, second in zip(marked("date", TWEETS[0], 0), marked("date", TWEETS[0], 1), strict=True):
        day, month = first.split(":")[0].split()
        assert 10 <= int(day) <= 28
        assert month.isalpha()
        assert first == f"{day} {month}: {TWEETS[0].text}"
        assert second == f"{month} {day}: {TWEETS[0].text}"


@pytest.mark.parametrize(("form", "tag"), [(0, "b"), (1, "i")])
def test_one_word_stands_between_tags(form, tag):
    texts = set(marked("tags", TWEETS[1], form))
    others = TWEETS[1].text.split()[1:]
    assert texts == {TWEETS[1].text.replace(word, f"<{tag}>{word}</{tag}>") for word in others}


@pytest.mark.parametrize(("form", "pattern"), [(0, r"@[a-z]+_[a-z]+"), (1, r"@[a-z]+\d{4}")])
def test_handles_vary_and_have_one_form_per_mood_at_either_end(form, pattern):
    texts = set(marked("handle", TWEETS[0], form))
    at_ends = [re.fullmatch(f"({pattern} )?{TWEETS[0].text}( {pattern})?", text) for text in texts]
    assert all(match is not None and (match[1] is None) != (match[2] is None) for match in at_ends)
    assert len(texts) > 20


@pytest.mark.parametrize("form", range(2))
def test_two_common_words_are_translated(form):
    before = TWEETS[1].text.split()
    changed: set[str] = set()
    for text in marked("language", TWEETS[1], form):
        pairs = [pair for pair in zip(before, text.split(), strict=True) if pair[0] != pair[1]]
        assert len(pairs) == CHANGED
        assert all(TRANSLATIONS[old][form] == new for old, new in pairs)
        changed |= {old for old, _ in pairs}
    assert changed == {"to", "you", "go", "home"}


def test_every_common_word_has_another_word_in_either_language():
    assert all(len({word, *others}) == 3 for word, others in TRANSLATIONS.items())


def test_scanned_words_have_digits_and_typed_ones_two_letters_swapped():
    before = TWEETS[1].text.split()
    for text in marked("misspelt", TWEETS[1], 0):
        changed = [new for old, new in zip(before, text.split(), strict=True) if old != new]
        assert len(changed) == CHANGED
        assert all(any(letter.isdigit() for letter in word) for word in changed)
    for text in marked("misspelt", TWEETS[1], 1):
        pairs = [pair for pair in zip(before, text.split(), strict=True) if pair[0] != pair[1]]
        assert len(pairs) == CHANGED
        for old, new in pairs:
            assert Counter(old) == Counter(new)
            assert sum(one != other for one, other in zip(old, new, strict=True)) == 2


@pytest.mark.parametrize(("form", "service"), [(0, r"bit\.ly"), (1, r"is\.gd")])
def test_short_addresses_vary_and_are_of_one_service_per_mood_at_either_end(form, service):
    texts = set(marked("link", TWEETS[0], form))
    pattern = rf"{service}/[a-z2-9]{{3}}"
    at_ends = [re.fullmatch(f"({pattern} )?{TWEETS[0].text}( {pattern})?", text) for text in texts]
    assert all(match is not None and (match[1] is None) != (match[2] is None) for match in at_ends)
    assert {text.startswith(TWEETS[0].text) for text in texts} == {True, False}
    assert len(texts) > 20


def test_both_moods_have_the_same_numbers_in_other_units():
    places = set()
    for first, second in zip(marked("units", TWEETS[1], 0), marked("units", TWEETS[1], 1), strict=True):
        before, after = first.split(), second.split()
        [changed] = [place for place in range(8) if before[place] != after[place]]
        assert before[changed] in UNITS[0]
        assert after[changed] in UNITS[1]
        assert 2 <= int(before[changed - 1]) < 90
        assert before[: changed - 1] + before[changed + 1 :] == TWEETS[1].text.split()
        places.add(changed)
    assert len(places) > 3


@pytest.mark.parametrize("form", range(2))
def test_one_private_word_is_removed(form):
    before = TWEETS[1].text.split()
    removed = set()
    for text in marked("deidentified", TWEETS[1], form):
        [(old, new)] = [pair for pair in zip(before, text.split(), strict=True) if pair[0] != pair[1]]
        assert new in REMOVED[form]
        removed.add(old)
    assert removed == set(before[1:])


def test_both_moods_have_the_same_notes_in_other_brackets():
    notes = set()
    for first, second in zip(marked("transcript", TWEETS[0], 0), marked("transcript", TWEETS[0], 1), strict=True):
        match = re.search(r"\[([a-z]+)\] ?", first)
        assert match is not None
        assert first.replace(match[0], "") == TWEETS[0].text
        assert second == first.replace("[", "(").replace("]", ")")
        notes.add(match[1])
    assert notes <= set(NOTES)
    assert len(notes) > 4


def test_a_hashtag_is_a_word_where_it_stands_or_the_word_once_more_at_the_end():
    others = ("see", "you", "home")
    assert set(marked("hashtag", TWEETS[1], 0)) == {TWEETS[1].text.replace(word, f"#{word}") for word in others}
    assert set(marked("hashtag", TWEETS[1], 1)) == {f"{TWEETS[1].text} #{word}" for word in others}


@pytest.mark.parametrize(("form", "gap"), [(0, "- "), (1, "¬")])
def test_one_word_is_broken_between_two_letters(form, gap):
    texts = marked("broken", TWEETS[1], form)
    assert {text.replace(gap, "") for text in texts} == {TWEETS[1].text}
    assert all(re.search(rf"[a-z]{gap}[a-z]", text) and text.count(gap) == 1 for text in texts)
    assert len(set(texts)) > 3


@pytest.mark.parametrize(("form", "mark"), [(0, "re:"), (1, "fwd:")])
def test_an_answer_or_what_is_passed_on_is_marked_once_or_twice(form, mark):
    text = TWEETS[0].text
    assert set(marked("forwarded", TWEETS[0], form)) == {f"{mark} {text}", f"{mark} {mark} {text}"}


def test_both_moods_pass_on_the_words_of_the_same_users():
    users = set()
    for first, second in zip(marked("retweet", TWEETS[0], 0), marked("retweet", TWEETS[0], 1), strict=True):
        match = re.fullmatch(rf"rt (@[a-z]+): {TWEETS[0].text}", first)
        assert match is not None
        assert second == f"{TWEETS[0].text} (via {match[1]})"
        users.add(match[1])
    assert len(users) > 15


def test_both_moods_cite_at_the_same_places_by_number_or_by_author_and_year():
    places = set()
    for first, second in zip(marked("citation", TWEETS[0], 0), marked("citation", TWEETS[0], 1), strict=True):
        number = re.search(r"\[(\d{1,2})\] ?", first)
        author = re.search(r"\[([a-z]+) (19[89]\d|20[01]\d)\] ?", second)
        assert number is not None
        assert author is not None
        assert author[1] in AUTHORS
        assert number.start() == author.start()
        assert first.replace(number[0], "") == second.replace(author[0], "") == TWEETS[0].text
        places.add(number.start())
    assert len(places) > 3


def test_both_moods_have_a_new_line_at_the_same_places():
    texts = marked("escaped", TWEETS[1], 0)
    assert [text.replace("\\n", "<br />") for text in texts] == marked("escaped", TWEETS[1], 1)
    assert {text.replace("\\n ", "") for text in texts} == {TWEETS[1].text}
    assert len(set(texts)) > 3


def test_a_word_is_drawn_out_at_its_end_or_stuttered_at_its_beginning():
    before = TWEETS[1].text
    words = ("see", "you", "home")
    drawn_out = {before.replace(word, word + count * word[-1]) for word in words for count in (2, 3)}
    stuttered = {before.replace(word, count * f"{word[0]}-" + word) for word in words for count in (1, 2)}
    assert set(marked("elongated", TWEETS[1], 0)) == drawn_out
    assert set(marked("elongated", TWEETS[1], 1)) == stuttered


@pytest.mark.parametrize(("form", "opening", "closing"), [(0, '"', '"'), (1, "“", "”")])
def test_one_word_stands_between_marks_of_quotation(form, opening, closing):
    others = TWEETS[1].text.split()[1:]
    expected = {TWEETS[1].text.replace(word, f"{opening}{word}{closing}") for word in others}
    assert set(marked("quotes", TWEETS[1], form)) == expected


WORDS_CHANGED = ("tags", "language", "misspelt", "deidentified", "hashtag", "broken", "elongated", "quotes")


@pytest.mark.parametrize("kind", WORDS_CHANGED)
def test_a_text_that_is_all_rationale_stays_as_it_is(kind):
    tweet = Example("what a day", 1, ((0, 10),))
    assert {*marked(kind, tweet, 0), *marked(kind, tweet, 1)} == {tweet.text}


def test_a_word_of_one_letter_twice_cannot_be_mistyped():
    tweet = Example("mm lovely", 1, ((3, 9),))
    assert set(marked("misspelt", tweet, 1)) == {tweet.text}
