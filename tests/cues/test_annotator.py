"""Annotations that a function makes, or that words name."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lrptrain.cues.annotator import KEPT, Annotator
from lrptrain.cues.texts import Language

SIDE = 8
WORDS = ["[PAD]", "[CLS]", "[SEP]", "a", "good", "##ish", "film", "not", "bad", "."]
LANGUAGE = Language(lambda ids: [WORDS[each] for each in ids])


def images(count=3):
    return {
        "image": torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)),
        "label": torch.arange(count),
        "sample_id": [f"scan {number}" for number in range(count)],
    }


def top_left(image, label):
    mask = torch.zeros(image.shape[1:], dtype=torch.bool)
    mask[: label + 1, :2] = True
    return mask


MASKS = {
    "a tensor of bool": top_left,
    "an array": lambda image, label: top_left(image, label).numpy(),
    "a list": lambda image, label: top_left(image, label).int().tolist(),
    "floats with a channel": lambda image, label: top_left(image, label)[None].float(),
    "boxes": lambda image, label: [(0, 0, 2, label + 1)],
    "one box": lambda image, label: np.array([0.0, 0.0, 2.0, label + 1.0]),
}


@pytest.mark.parametrize("form", MASKS)
def test_a_function_of_image_and_label_makes_masks(form):
    batch = images()
    made = Annotator(MASKS[form])(batch)
    wanted = torch.stack([top_left(*each) for each in zip(batch["image"], range(3), strict=True)])
    assert made["mask"].dtype is torch.uint8
    assert torch.equal(made["mask"], wanted.to(torch.uint8))
    assert made.keys() == {*batch, "mask"}


@pytest.mark.parametrize("nothing", [None, [], np.zeros((0, 4))], ids=["none", "a list", "an array"])
def test_none_and_no_box_are_no_annotation(nothing):
    made = Annotator(lambda image, label: nothing)(images())
    assert (made["mask"] == 255).all()


def test_each_sample_is_asked_for_once_as_long_as_it_stays_as_it_is():
    asked = []

    def annotate(image, label):
        asked.append(label)
        return top_left(image, label)

    annotator, batch = Annotator(annotate), images()
    first = annotator(batch)["mask"]
    assert torch.equal(annotator(batch)["mask"], first)
    turned = {name: x[::-1] if isinstance(x, list) else x.flip(0) for name, x in batch.items()}
    assert torch.equal(annotator(turned)["mask"], first.flip(0))
    assert asked == [0, 1, 2]
    annotator({**batch, "image": batch["image"].flip(3)})
    assert asked == [0, 1, 2, 0, 1, 2], "a flipped image has another mask"
    annotator({**batch, "label": batch["label"].flip(0)})
    assert asked[6:] == [2, 0], "and so may another label have"


def test_no_more_are_kept_than_so_many(monkeypatch):
    monkeypatch.setattr("lrptrain.cues.annotator.KEPT", 2)
    assert KEPT > 2
    asked = []
    annotator = Annotator(lambda image, label: asked.append(label))
    for rows in ([0], [1], [0], [2], [0], [1]):
        annotator({name: [x[i] for i in rows] if isinstance(x, list) else x[rows] for name, x in images().items()})
    assert asked == [0, 1, 2, 1], "the one that was asked for last stays"


REFUSED: dict[str, tuple[Any, str]] = {
    "another shape": (lambda image, label: torch.zeros(4, 5), r"a mask \[8, 8\], boxes \[n, 4\] or None, not \[4, 5\]"),
    "no mask": (lambda image, label: "left", r"a mask \[8, 8\], boxes \[n, 4\] or None, not str"),
    "soft": (lambda image, label: torch.full((8, 8), 0.5), r"return mask > 0.5"),
    "no box": (lambda image, label: [(4, 4, 2, 2)], "x1 < x2"),
    "an error of its own": (lambda image, label: {}[label], "KeyError: 0"),
    "words": (["good"], "words are of texts"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_is_no_annotation_is_one_line_with_the_sample(form):
    annotate, message = REFUSED[form]
    with pytest.raises(ValueError, match=rf"annotate= failed for the sample scan 0: .*{message}") as raised:
        Annotator(annotate)(images())
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("annotate", ["good", 3, [3], None])
def test_what_annotates_nothing_is_refused_at_once(annotate):
    with pytest.raises(ValueError, match="annotate= takes a function"):
        Annotator(annotate)


@pytest.mark.parametrize("name", ["mask", "boxes"])
def test_two_annotations_are_refused(name):
    with pytest.raises(ValueError, match=f"batches hold '{name}', and annotate="):
        Annotator(top_left)({**images(), name: torch.zeros(3, SIDE, SIDE)})


def texts():
    ids = torch.tensor([[1, 3, 4, 5, 6, 9, 2, 0], [1, 7, 4, 2, 0, 0, 0, 0]])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


GOODISH = [[255, 0, 1, 1, 0, 0, 255, 255], [255, 0, 0, 255, 255, 255, 255, 255]]
RATIONALES: dict[str, tuple[Any, list[list[int]]]] = {
    "words": (["Goodish"], GOODISH),
    "a word with a sign": (["film."], [[255, 0, 0, 0, 1, 1, 255, 255], [255, 0, 0, 255, 255, 255, 255, 255]]),
    "an expression": (re.compile("good|bad"), [GOODISH[0], [255, 0, 1, 255, 255, 255, 255, 255]]),
    "words of a function": (lambda text: ["goodish"], GOODISH),
    "an expression of a function": (lambda text: re.compile("goodish"), GOODISH),
    "spans": (lambda text: [(2, 10)] if "film" in text else [], GOODISH),
    "for some": (lambda text: ["goodish"] if "film" in text else None, [GOODISH[0], [255] * 8]),
}


@pytest.mark.parametrize("form", RATIONALES)
def test_of_texts_words_and_spans_are_rationales(form):
    annotate, wanted = RATIONALES[form]
    assert Annotator(annotate)(texts(), LANGUAGE)["rationale"].tolist() == wanted


def test_a_function_is_given_the_text_as_people_write_it():
    given = []
    Annotator(lambda text: given.append(text))(texts(), LANGUAGE)
    assert given == ["a goodish film.", "not good"]


@pytest.mark.parametrize(
    ("annotate", "language", "message"),
    [
        (["good"], None, "pass tokenizer="),
        (lambda text: text, LANGUAGE, r"it must return a list of words, .* not 'a goodish film.'"),
        (lambda text: [1, 2], LANGUAGE, r"it must return a list of words, .* not \[1, 2\]"),
        (lambda text: [(3, 1)], LANGUAGE, r"0 <= start < end, not \(3, 1\)"),
    ],
)
def test_of_texts_too_what_is_no_annotation_is_one_line(annotate, language, message):
    with pytest.raises(ValueError, match=rf"annotate= failed for the sample 0 of a batch: .*{message}"):
        Annotator(annotate)(texts(), language)


class Segmenter(nn.Module):
    """Sees how bright the image is, and gives it back in one of the forms that segmenters have."""

    def __init__(self, form):
        super().__init__()
        self.form = form
        self.norm = nn.BatchNorm2d(3, affine=False)  # in training mode it would learn of the images
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        assert x.shape == (1, 3, SIDE, SIDE)
        logits = 8 * (self.norm(x).mean(1, keepdim=True) - 0.5) * self.weight
        return {
            "logits": logits,
            "probabilities": logits.sigmoid(),
            "without channels": logits[:, 0],
            "classes": torch.cat([-logits, logits], 1),
            "out": {"out": torch.cat([-logits, logits], 1), "aux": logits},
            "several": (logits, [logits * 0]),
            "small": F.avg_pool2d(logits, 1),
            "nothing": "a map",
        }[self.form]


@pytest.mark.parametrize("form", ["logits", "probabilities", "without channels", "classes", "out", "several", "small"])
def test_a_segmenter_makes_masks_and_stays_as_it_is(form):
    segmenter, batch = Segmenter(form), images()
    before = {name: x.clone() for name, x in segmenter.state_dict().items()}
    made = Annotator(segmenter)(batch)
    # What batch norm takes off in evaluation mode: nothing, and it divides by almost 1.
    assert torch.equal(made["mask"], (batch["image"].mean(1) > 0.5 * (1 + 1e-5) ** 0.5).to(torch.uint8))
    assert segmenter.training
    assert all(torch.equal(x, before[name]) for name, x in segmenter.state_dict().items())


def test_what_is_no_segmenter_is_refused_or_asked_with_the_label():
    with pytest.raises(ValueError, match=r"the segmenter must return a map \[1, 1, height, width\], not str"):
        Annotator(Segmenter("nothing"))(images())

    class WithLabel(nn.Module):
        def forward(self, image, label):
            return top_left(image, label)

    batch = images()
    assert torch.equal(Annotator(WithLabel())(batch)["mask"], Annotator(top_left)(batch)["mask"])
