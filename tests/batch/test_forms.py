"""Batches of every form come to the same entries, or are refused with the way out."""

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BatchEncoding

from lrptrain.batch import read_batch
from lrptrain.batch.forms import ignored_parts, overlooked_entries

IMAGE, LABEL, MASK = torch.rand(5, 3, 8, 8), torch.tensor([2, 0, 1, 1, 0]), torch.ones(5, 8, 8, dtype=torch.uint8)
IDS, IDS_MASK = torch.randint(1, 9, (5, 7)), torch.ones(5, 7, dtype=torch.long)


@dataclass
class Batch:
    image: Tensor
    label: Tensor
    mask: Tensor


Named = namedtuple("Named", "label image mask")
Other = namedtuple("Other", "data target where")

FORMS: dict[str, Any] = {
    "tuple": (IMAGE, LABEL, MASK),
    "list": [IMAGE, LABEL, MASK],
    "dataclass": Batch(IMAGE, LABEL, MASK),
    "named tuple": Named(LABEL, IMAGE, MASK),
    "named tuple of other names": Other(IMAGE, LABEL, MASK),
    "nested": {"inputs": {"image": IMAGE}, "targets": {"label": LABEL, "mask": MASK}, "meta": {"x": {"y": 1}}},
    "nested dataclass": {"batch": Batch(IMAGE, LABEL, MASK), "label_names": ["a"]},
    "image and targets": (IMAGE, {"label": LABEL, "mask": MASK}),
    "inputs and labels": ({"image": IMAGE, "mask": MASK}, LABEL),
    "with an index": (IMAGE, LABEL, MASK, torch.arange(5)),
    "bool mask": {"image": IMAGE, "labels": LABEL, "mask": MASK > 0},
    "names within": {"image": IMAGE, "label": LABEL, "mask": MASK, "meta": {"label": ["cat"] * 5, "labels": LABEL + 1}},
    "another name within": {"image": IMAGE, "labels": LABEL, "mask": MASK, "meta": {"label": LABEL + 1}},
    "another input within": {"image": IMAGE, "label": LABEL, "mask": MASK, "raw": {"pixel_values": IMAGE + 1}},
    "names beside": {"image": IMAGE, "label": ["cat"] * 5, "labels": LABEL, "mask": MASK},
    "no label beside": {"image": IMAGE, "label": None, "labels": LABEL, "mask": MASK},
    "a column of labels": {"image": IMAGE, "label": LABEL[:, None], "mask": MASK},
    "a mapping at the end": (IMAGE, LABEL, {"mask": MASK, "labels": LABEL + 1, "path": ["a"] * 5}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_entries(form):
    read = read_batch(FORMS[form])
    assert read.keys() == {"image", "label", "mask"}
    for name, expected in (("image", IMAGE), ("label", LABEL), ("mask", MASK)):
        assert torch.equal(read[name], expected)


@pytest.mark.parametrize(
    ("third", "said"),
    [
        (torch.arange(5), "its part 3 (int64 [5])"),
        (torch.rand(5, 4), "its part 3 (float32 [5, 4])"),  # WILDS: (x, y, metadata)
        (["a.png"] * 5, "its part 3 (list)"),
        (torch.rand(5, 3, 8, 8), "its part 3 (float32 [5, 3, 8, 8])"),  # a second view
        ({"path": ["a.png"] * 5, "label": LABEL + 1}, "its part 3 (dict)"),
    ],
)
def test_what_is_no_annotation_is_left_out_and_named(third, said):
    assert read_batch((IMAGE, LABEL, third)).keys() == {"image", "label"}
    assert ignored_parts((IMAGE, LABEL, third)) == said
    assert ignored_parts((IMAGE, LABEL, MASK)) == ignored_parts({"image": IMAGE}) == ""
    assert ignored_parts((IMAGE, LABEL, {"mask": MASK})) == ""


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ((IMAGE, {"class": LABEL}), "'class' (int64 [5]) for 'label'"),
        ({"pixels": IMAGE, "y": LABEL, "mask": MASK}, "'y' (int64 [5]) for 'label'"),
        ((IMAGE, LABEL, {"seg": MASK[:, None]}), "'seg' (uint8 [5, 1, 8, 8]) for 'mask'"),
        ({"image": IMAGE, "label": LABEL, "masks": 255.0 * MASK}, "'masks' (float32 [5, 8, 8]) for 'mask'"),
        (
            {"pixel_values": IMAGE, "meta": {"y": LABEL[:, None], "object": MASK > 0}},
            "'y' (int64 [5, 1]) for 'label', 'object' (bool [5, 8, 8]) for 'mask'",
        ),
    ],
)
def test_masks_and_labels_of_other_names_are_told(batch, said):
    told = [f"{other!r} ({kind}) for {name!r}" for other, kind, name in overlooked_entries(batch)]
    assert ", ".join(told) == said


@pytest.mark.parametrize(
    "batch",
    [
        *FORMS.values(),
        {"image": IMAGE, "labels": LABEL, "mask": MASK, "seg": MASK, "index": LABEL},
        {"image": IMAGE, "label": LABEL, "boxes": torch.ones(5, 1, 4), "seg": MASK},
        {"image": IMAGE, "label": LABEL, "depth": torch.rand(5, 8, 8), "score": torch.rand(5)},
        {
            "image": IMAGE,
            "label": LABEL,
            "size": torch.tensor(8),
            "grid": torch.ones(4, 8, 8),
            "one": torch.ones(5, 1, 1),
        },
        {"image": IMAGE, "age": torch.rand(5), "group": LABEL, "sample_id": LABEL},
        {"input_ids": IDS, "attention_mask": IDS_MASK, "class": LABEL},
        {"image": IMAGE[0], "class": LABEL},
    ],
)
def test_what_is_read_or_looks_like_neither_is_not_told(batch):
    assert overlooked_entries(batch) == []


def test_masks_of_regions_are_no_view():
    regions = torch.ones(5, 3, 8, 8)  # as many as channels, of the images' type
    assert torch.equal(read_batch((IMAGE, LABEL, regions))["mask"], regions)


def test_texts():
    rationale = torch.zeros(5, 7)
    encoding = BatchEncoding({"input_ids": IDS, "attention_mask": IDS_MASK})
    for batch in ((encoding, LABEL, rationale), ({**encoding, "rationale": rationale}, LABEL)):
        read = read_batch(batch)
        assert read.keys() == {"input_ids", "attention_mask", "label", "rationale"}
        assert torch.equal(read["rationale"], rationale)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([{"image": IMAGE[0], "label": 1}, {"image": IMAGE[1], "label": 0}], "a list of 2 samples that nobody stacked"),
        ((IMAGE, (LABEL, MASK)), "what comes second in a batch is a tuple, no labels"),
        ({"a": {"image": IMAGE}, "b": {"image": IMAGE}}, r"holds \['image'\] twice, the second time in 'b'"),
        ((), "an empty tuple"),
        (7, "must be a mapping or a tuple, not int"),
        ({"image": IMAGE, "label": [None] * 5}, "'label' of a batch must be a tensor, or numbers .* list of NoneType"),
        (
            {"image": IMAGE, "label": list("abcde")},
            "'label' of a batch must be a tensor, or numbers .* not list of str",
        ),
        ({"image": IMAGE, "sample_id": "abcde"}, "one number or string per sample, not str"),
    ],
)
def test_other_forms_say_what_to_change(batch, message):
    with pytest.raises(ValueError, match=message):
        read_batch(batch)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (torch.arange(5), [0, 1, 2, 3, 4]),
        ([1, "a", 2.0, 2.5, None], [1, "a", 2, "2.5", "None"]),
        (["a\udcff", b"b", "ü", ("c", 1), 2**70], ["a\\udcff", "b", "ü", "('c', 1)", str(2**70)]),
    ],
)
def test_ids_can_be_written(given, expected):
    ids = read_batch({"image": IMAGE, "sample_id": given})["sample_id"]
    assert ids == expected
    "".join(map(str, ids)).encode()


def test_bytes_become_floats_and_nothing_else_changes():
    image = torch.randint(0, 256, (5, 3, 8, 8), dtype=torch.uint8)
    assert torch.equal(read_batch({"image": image})["image"], image.float())
    assert read_batch({"image": IMAGE.half()})["image"].dtype == torch.float16
