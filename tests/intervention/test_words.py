"""Texts with the words of others, beside texts written by hand, and who is moved by them."""

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.intervention import InterventionConfig, Region, effects, strategy_of
from lrptrain.intervention.words import TextWords, with_words_of
from tests.intervention.test_lengths import END, PAD, START, batch, words

NAMES = range(80, 90)


def structure(text, starts=None):
    """Names are chosen; every token begins a word unless it is said which do."""
    chosen = tuple((i + 1, i + 2) for i, token in enumerate(text) if token in NAMES)
    return TextWords(tuple(i + 1 for i in (range(len(text)) if starts is None else starts)), chosen)


def swapped(texts, donors, left=False, starts=None, most=99):
    width = max(map(len, [*texts, *donors]))
    # Padded alike, as the chunks of an intervention are.
    joint = batch([*texts, *donors, [0] * width], left)
    own, given = ({name: x[i : i + len(texts)] for name, x in joint.items()} for i in (0, len(texts)))
    shift = [(width - len(text)) * left for text in (*texts, *donors)]
    known = [structure(text, starts if text in texts else None) for text in (*texts, *donors)]
    moved = [
        TextWords(tuple(i + by for i in each.starts), tuple((a + by, b + by) for a, b in each.chosen))
        for each, by in zip(known, shift, strict=True)
    ]
    return with_words_of(own, given, moved[: len(texts)], moved[len(texts) :], most)


@pytest.mark.parametrize("left", [False, True])
def test_a_text_has_the_names_of_its_donor_where_the_donor_has_them(left):
    texts = [[1, 2, 80, 3, 4], [5, 6], [81, 7], [8, 82, 83, 9]]
    donors = [[84, 11, 12], [11, 12, 85], [11, 12], [86, 11, 12, 87]]
    made = swapped(texts, donors, left)
    assert words(made) == [
        [START, 84, 1, 2, 3, 4, END],  # at the front, as in the donor
        [START, 5, 6, 85, END],  # the text had none
        [START, 7, END],  # the donor has none
        [START, 86, 8, 9, 87, END],
    ]
    padded = made["attention_mask"] == 0
    assert (made["input_ids"][padded] == PAD).all()
    assert made["attention_mask"][:, -1 if left else 0].all()


def test_nothing_is_put_between_the_pieces_of_a_word_and_a_marker_stays_whole():
    # Half of the donor's other words stand before the name: the middle of the text is within a word of four pieces.
    assert words(swapped([[1, 2, 3, 4, 5, 6]], [[11, 84, 12]], starts=[0, 1, 5])) == [
        [START, 1, 84, 2, 3, 4, 5, 6, END]
    ]
    given = batch([[11, 84, 85, 12], [1, 2, 0, 0]])
    donors = {name: x[:1] for name, x in given.items()}
    own = {name: x[1:] for name, x in given.items()}
    made = with_words_of(own, donors, [TextWords((1, 2, 3, 4), ())], [TextWords((1, 2, 4), ((2, 4),))], 99)
    assert words(made) == [[START, 1, 2, 84, 85, 0, 0, END]]


def test_a_text_gets_no_longer_than_it_may_and_keeps_its_types():
    texts, donors = [[1, 2, 3, 4]], [[80, 81, 82, 83, 5]]
    assert words(swapped(texts, donors, most=7)) == [[START, 80, 81, 82, 83, 1, END]]
    given = batch(texts)
    types = torch.full_like(given["input_ids"], 3)
    known = [structure(texts[0])]
    same = with_words_of(given | {"token_type_ids": types, "rationale": types}, given, known, known, 6)
    assert same.keys() == {"input_ids", "attention_mask", "token_type_ids"}
    assert torch.equal(same["input_ids"], given["input_ids"])
    assert torch.equal(same["token_type_ids"], types)


class Reader(torch.nn.Module):
    """Reads which names there are, or which other words."""

    def __init__(self, reads_names):
        super().__init__()
        self.reads_names = reads_names

    def forward(self, input_ids, attention_mask):
        names = attention_mask.bool() & (input_ids >= 80) & (input_ids < 90)
        others = attention_mask.bool() & (input_ids < 80)
        chosen = names if self.reads_names else others
        limit = 85 if self.reads_names else 40
        score = (chosen & (input_ids >= limit)).sum(1) - (chosen & (input_ids < limit)).sum(1).float()
        return torch.stack([-4 * score, 4 * score], 1)


def texts(count=40):
    rng = np.random.default_rng(0)
    found = []
    for i in range(count):
        label = i % 2
        text = rng.integers(40 * label + 1, 40 * label + 40, int(rng.integers(3, 7))).tolist()
        text.insert(int(rng.integers(0, len(text))), int(rng.integers(80 + 5 * label, 85 + 5 * label)))
        found.append(text)
    samples = [Sample(i, i % 2, {n: x[0] for n, x in batch([text]).items()}) for i, text in enumerate(found)]
    return samples, tuple(map(structure, found))


def falls(model, kind, rows, samples, known):
    logits = torch.cat([model(**{name: x[None] for name, x in each.tensors.items()}) for each in samples])
    return effects(
        model, samples, rows=rows, computed_rows=rows, region=Region(kind, texts=known), grid=None,
        probabilities=logits.softmax(1).numpy(), config=InterventionConfig(batch_size=7),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["words", "punctuation", "markers"])
def test_who_reads_the_words_is_moved_by_those_of_another_class_alone(kind):
    samples, known = texts()
    change, control = falls(Reader(True), kind, np.arange(40), samples, known)
    assert change.min() > 0.9
    assert abs(control).max() < 1e-6
    change, control = falls(Reader(False), kind, np.arange(40), samples, known)
    assert abs(change).max() < 1e-6
    assert strategy_of(Region(kind), None, InterventionConfig("fill")) == kind


def test_words_of_one_kind_are_exchanged_among_the_texts_that_have_some():
    samples, known = texts()
    # All but the first 20 have none to give: drawn as donors, they would leave the others without a name.
    bare = tuple(each if row < 20 else TextWords(each.starts, ()) for row, each in enumerate(known))
    change, _ = falls(Reader(True), "words", np.arange(20), samples, bare)
    assert change.min() > 0.9
    # Punctuation may as well be missing in another text: half is as far as its answer falls then.
    change, _ = falls(Reader(True), "punctuation", np.arange(20), samples, bare)
    assert ((change > 0.4) & (change < 0.6)).any()
