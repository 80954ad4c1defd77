"""Inputs of a model with several, each as a whole."""

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample, collate
from lrptrain.batch.call import ARGUMENT, Call
from lrptrain.cues import plan
from lrptrain.cues.kinds import restored
from lrptrain.cues.texts import Language
from lrptrain.cues.whole_input import WholeInput, whole_inputs

TOKENS, SIDE = 6, 8
IMAGE, TEXT, MASK = torch.zeros(3, SIDE, SIDE), torch.zeros(TOKENS, dtype=torch.long), torch.ones(TOKENS)


def found(entries, explained=""):
    own = next(iter(entries))
    entries = {name if name in (own, "attention_mask") else f"{ARGUMENT}{name}": x[None] for name, x in entries.items()}
    cues = whole_inputs(entries, explained or own)
    return {each.name: [name.removeprefix(ARGUMENT) for name in each.entries] for each in cues}


INPUTS = {
    "one": ({"image": IMAGE}, {}),
    "one with a mask": ({"input_ids": TEXT, "attention_mask": MASK}, {}),
    "numbers": (
        {"image": IMAGE, "age": torch.tensor(3.0)},
        {"the image": ["image"], "the input 'age'": ["age"]},
    ),
    "boxes": (
        {"input_ids": TEXT, "attention_mask": MASK, "bbox": torch.zeros(TOKENS, 4)},
        {"the text": ["input_ids", "attention_mask"], "the input 'bbox'": ["bbox"]},
    ),
    "patches that are no pixels": (
        {"pixel_values": IMAGE, "pixel_mask": torch.ones(SIDE, SIDE), "input_ids": TEXT, "token_type_ids": TEXT},
        {"the image": ["pixel_values", "pixel_mask"], "the text": ["input_ids", "token_type_ids"]},
    ),
    "two texts": (
        {"image": IMAGE, "a_ids": TEXT, "b_ids": TEXT, "b_mask": MASK, "a_mask": MASK},
        {
            "the image": ["image"],
            "the input 'a_ids'": ["a_ids", "a_mask"],
            "the input 'b_ids'": ["b_ids", "b_mask"],
        },
    ),
    "a mask that is an input": (
        {"image": IMAGE, "lungs_mask": torch.ones(SIDE, SIDE)},
        {"the image": ["image"], "the input 'lungs_mask'": ["lungs_mask"]},
    ),
}


@pytest.mark.parametrize("inputs", INPUTS)
def test_masks_belong_to_the_input_that_they_are_of(inputs):
    entries, wanted = INPUTS[inputs]
    assert found(entries) == wanted


def test_of_images_beside_a_text_with_its_mask_the_mask_goes_along_with_the_text():
    entries = {"image": IMAGE[None], f"{ARGUMENT}input_ids": TEXT[None], f"{ARGUMENT}attention_mask": MASK[None]}
    assert [each.entries[1:] for each in whole_inputs(entries, "pixels")] == [(), (f"{ARGUMENT}attention_mask",)]
    assert [each.name for each in whole_inputs(entries, "pixels")] == ["the input 'pixels'", "the text"]


def samples(count):
    for number in range(count):
        tokens = number % 3 + 2
        tensors = {
            "image": torch.full((3, SIDE, SIDE), float(number)),
            "argument:input_ids": torch.full((tokens,), number),
            "argument:attention_mask": torch.ones(tokens),
        }
        yield Sample(number, -1, tensors, call=Call("pixels"))


def test_a_text_is_taken_from_the_source_with_its_mask_and_all_else_stays():
    each = [*samples(4)]
    own, sources = (
        {name: x[rows] for name, x in collate(each).items() if name != "call:"} for rows in (slice(0, 2), slice(2, 4))
    )
    changed = WholeInput.of("input_ids", "attention_mask").exchange(own, sources)
    for name in ("argument:input_ids", "argument:attention_mask"):
        assert torch.equal(changed[name], sources[name])
    assert torch.equal(changed["image"], own["image"])
    assert changed.keys() == own.keys()


def test_all_inputs_are_tested_and_only_others_are_named_as_wholes():
    roots = plan.of_inputs([*samples(12)])
    assert [(root.cue.name, root.is_whole) for root in roots] == [("the input 'pixels'", True), ("the text", False)]
    assert {root.cue.role for root in roots} == {"unreviewed"}
    assert all(np.array_equal(root.chosen, np.arange(12)) for root in roots)


def test_an_input_is_read_from_a_record():
    cue = WholeInput.of("age", role="shortcut")
    values = {**cue.to_dict(), "entries": [*cue.entries]}
    assert restored(values, lambda: Language(lambda ids: [])) == cue
