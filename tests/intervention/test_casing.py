"""Texts in another case through their tokenizer, beside texts written by hand."""

import numpy as np
import pytest
import torch
from word_pieces import CASED, ids_of, word_pieces

from lrptrain.batch import Sample
from lrptrain.intervention import InterventionConfig, Region, effects
from lrptrain.intervention.casing import STYLES, in_cases, style_of, written_like

ALL = range(4)


@pytest.mark.parametrize(
    ("text", "style"),
    [
        ("so it goes", 0), ("", 0), ("1984 !", 0), ("So it goes. Fine", 1), ("I like it, Bob", 1),
        ("So It Goes", 2), ("SO IT GOES", 3), ("A BAD day I SAY", 3),
    ],
)  # fmt: skip
def test_the_style_of_a_text(text, style):
    assert style_of(text) == style


def test_a_text_in_every_style():
    written = [write("Don't STOP. it is 5 o'clock") for write in STYLES.values()]
    assert written == [
        "don't stop. it is 5 o'clock", "Don't stop. It is 5 o'clock", "Don't Stop. It Is 5 O'clock",
        "DON'T STOP. IT IS 5 O'CLOCK",
    ]  # fmt: skip


def test_a_text_goes_to_words_and_back():
    found = in_cases(ids_of("Good film"), CASED, 99, ALL)
    assert found is not None
    assert found.style == 1
    assert found.versions == tuple(tuple(ids_of(text)) for text in ("good film", "Good film", "Good Film", "GOOD FILM"))


def test_what_the_tokenizer_does_not_give_back_is_not_written_anew():
    lossy = word_pieces(lowercase=True)
    # Ids of capitals, which this tokenizer never gives: it would read small letters.
    assert in_cases(ids_of("Good"), lossy, 99, ALL) is None
    assert in_cases([2, 1, 3], CASED, 99, ALL) is None  # [UNK]
    assert in_cases([2, 3], CASED, 99, ALL) is None
    assert in_cases([2], CASED, 99, ALL) is None
    assert in_cases(ids_of("Good film"), CASED, 9, ALL) is None  # too long for the model
    assert in_cases(ids_of("Good film"), CASED, 10, ALL) is not None
    # Small letters alone, which fit, where capitals are cut into more tokens.
    small = in_cases(ids_of("good film"), CASED, 10, [0])
    assert small is not None
    assert small.versions == (tuple(ids_of("good film")), None, None, None)


def test_every_text_is_written_like_its_donor():
    made_of = [in_cases(ids_of(text), CASED, 99, ALL) for text in ("good", "BAD DAY")]
    cased = [each for each in made_of if each is not None]
    longest = len(ids_of("BAD DAY"))
    rows = [[*ids_of(text), *[0] * (longest - len(ids_of(text)))] for text in ("good", "BAD DAY")]
    ids = torch.tensor(rows)
    made = written_like({"input_ids": ids, "attention_mask": (ids != 0).int()}, cased, cased[::-1])
    assert [row[mask == 1].tolist() for row, mask in zip(made["input_ids"], made["attention_mask"], strict=True)] == [
        ids_of("GOOD"), ids_of("bad day"),
    ]  # fmt: skip
    assert made["attention_mask"].dtype == torch.int


class Reader(torch.nn.Module):
    """Reads whether there are capitals, or whether there is an x of either case."""

    def __init__(self, reads_case):
        super().__init__()
        self.reads_case = reads_case

    def forward(self, input_ids, attention_mask):
        names = np.array(CASED.convert_ids_to_tokens(list(range(len(CASED)))))
        told = np.array([name.strip("#").isupper() if self.reads_case else "x" in name.lower() for name in names])
        told[:4] = False
        score = torch.from_numpy(told)[input_ids].any(1).double() - 0.5
        return torch.stack([-9 * score, 9 * score], 1)


def falls(model, written):
    samples = []
    for i, text in enumerate(written):
        ids = torch.tensor(ids_of(text))
        samples.append(Sample(i, i % 2, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}))
    known = torch.cat([model(**{name: x[None] for name, x in each.tensors.items()}) for each in samples])
    cased = tuple(in_cases(each.tensors["input_ids"].tolist(), CASED, 99, ALL) for each in samples)
    rows = np.arange(len(samples))
    return effects(
        model, samples, rows=rows, computed_rows=rows, region=Region("case", texts=cased), grid=None,
        probabilities=known.softmax(1).numpy(), config=InterventionConfig(batch_size=7),
    )  # fmt: skip


def test_who_reads_capitals_is_moved_and_who_reads_letters_is_not():
    written = ["xylo FAN" if i % 2 else "some fan" for i in range(20)]
    change, control = falls(Reader(True), ["XYLO FAN" if i % 2 else "some fan" for i in range(20)])
    assert change.min() > 0.9
    assert abs(control).max() < 1e-6
    change, control = falls(Reader(False), written)
    assert abs(change).max() < 1e-6
    assert abs(control).max() < 1e-6


def test_texts_that_the_tokenizer_does_not_give_back_are_refused_in_a_line():
    samples = [Sample(i, i % 2, {"input_ids": torch.arange(4), "attention_mask": torch.ones(4)}) for i in range(20)]
    with pytest.raises(ValueError, match="does not give most texts back"):
        effects(
            Reader(True), samples, rows=np.arange(20), computed_rows=np.arange(20), grid=None,
            region=Region("case", texts=(None,) * 20), probabilities=np.eye(2)[np.arange(20) % 2],
            config=InterventionConfig(),
        )  # fmt: skip
