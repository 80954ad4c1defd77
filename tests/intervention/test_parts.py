"""Where the parts that findings name lie in samples that were not looked at."""

import gc
import json

import pytest
import torch
from torch import nn

from lrptrain.batch import Sample
from lrptrain.batch.parts import InputPart
from lrptrain.intervention import Region
from lrptrain.intervention.parts import (
    Confirmed,
    check_medium,
    follow_confirmed,
    is_followed,
    note_confirmed,
    part_of,
    where_it_lies,
)
from lrptrain.intervention.words import TextWords

TEXTS = {
    "input_ids": torch.tensor([[1, 7, 8, 9, 8, 2, 0], [1, 8, 9, 2, 0, 0, 0], [1, 5, 6, 7, 8, 9, 2]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]]),
}


def test_patches_lie_at_their_pixels_in_images_of_any_size():
    part = part_of(Region("patches", (0, 5)), "corners", (2, 3), ())
    assert part == InputPart("patches", "corners", (2, 3), (0, 5))
    for height, width in ((4, 6), (8, 12)):
        inside = where_it_lies(part, {"image": torch.zeros(2, 3, height, width)})
        assert inside.shape == (2, height, width)
        expected = torch.zeros(height, width, dtype=torch.bool)
        expected[: height // 2, : width // 3] = True
        expected[height // 2 :, -width // 3 :] = True
        assert (inside == expected).all()


def test_what_classes_have_in_common_lies_in_cells_of_its_own():
    part = part_of(Region("common", (3, 2, 4, 1)), "at the top", (8, 8), ())
    assert part == InputPart("patches", "at the top", (2, 4), (1,))


def test_words_lie_wherever_all_their_tokens_stand_in_a_row():
    part = InputPart("words", words=((8, 9), (7,)))
    expected = torch.tensor([[0, 1, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 0]]).bool()
    assert torch.equal(where_it_lies(part, TEXTS), expected)
    # Longer than any text, or reaching over its end into what is no text: nowhere.
    assert not where_it_lies(InputPart("words", words=((5,) * 9, (9, 2))), TEXTS).any()


def test_a_token_is_a_word_of_one():
    assert part_of(Region("token", 8), "the token", None, ()) == InputPart("words", "the token", words=((8,),))


@pytest.mark.parametrize(("place", "columns"), [(0, (1, 1, 1)), (1, (2, 2, 2)), (-1, (4, 2, 5)), (-2, (3, 1, 4))])
def test_a_place_is_counted_in_each_text(place, columns):
    part = part_of(Region("place", place), "a place", None, ())
    assert part is not None
    assert where_it_lies(part, TEXTS).nonzero().tolist() == [[row, column] for row, column in enumerate(columns)]


def test_a_kind_of_words_is_all_words_that_were_swapped():
    samples = [Sample(row, 0, {"input_ids": ids}) for row, ids in enumerate(TEXTS["input_ids"])]
    texts = (TextWords((1, 2, 4), ((2, 4),)), TextWords((1,), ((1, 3),)), TextWords((1, 3), ((3, 4),)))
    part = part_of(Region("words", texts=texts), "names", None, samples)
    assert part == InputPart("words", "names", words=((7,), (8, 9)))


@pytest.mark.parametrize("kind", ["outside", "location", "size", "boxes"])
def test_what_other_samples_do_not_have_is_no_part(kind):
    assert part_of(Region(kind), "", (2, 2), ()) is None


@pytest.mark.parametrize("kind", ["length", "punctuation", "markers", "case"])
def test_a_property_of_texts_is_one_of_all_texts(kind):
    part = part_of(Region(kind), "it", None, ())
    assert part == InputPart(kind, "it")
    assert part.is_property
    assert part.is_of_texts
    assert InputPart.from_dict(json.loads(json.dumps(part.to_dict()))) == part


@pytest.mark.parametrize("kind", ["statistics", "detail", "shading", "edges"])
def test_a_property_is_one_of_all_images(kind):
    part = part_of(Region(kind), "it", (2, 2), ())
    assert part == InputPart(kind, "it")
    assert part.is_property
    assert not part.is_of_texts


def test_a_part_of_texts_is_none_of_images():
    images = {"pixel_values": torch.zeros(1, 3, 4, 4)}
    word = InputPart("words", "the word", words=((7,),))
    corner = InputPart("patches", "the corner", (2, 2), (0,))
    check_medium([word], TEXTS)
    check_medium([corner, InputPart("edges")], images)
    with pytest.raises(ValueError, match="the word is a part of texts, and the batch has \\['pixel_values'\\]"):
        check_medium([corner, word], images)
    with pytest.raises(ValueError, match="the corner is a part of images"):
        check_medium([corner], TEXTS)


def test_what_a_monitor_notes_is_known_of_the_module_and_what_holds_it_and_goes_with_it():
    module = nn.Linear(2, 2)
    whole = nn.Sequential(module, nn.ReLU())
    assert follow_confirmed(whole) is None
    note_confirmed(module, Confirmed())
    assert not is_followed(module)
    assert follow_confirmed(whole) == ((), 0, False)
    assert is_followed(module)
    assert not is_followed(whole)
    edges = InputPart("edges")
    note_confirmed(module, Confirmed((edges,), 2, True))
    assert follow_confirmed(whole) == follow_confirmed(module) == ((edges,), 2, True)
    assert follow_confirmed(nn.Linear(2, 2)) is None
    # Two monitors, each of a part of the module.
    other = nn.Linear(2, 2)
    note_confirmed(other, Confirmed((InputPart("detail"),), 1))
    assert follow_confirmed(nn.Sequential(whole, other)) == ((edges, InputPart("detail")), 3, True)
    del module, whole
    gc.collect()
    assert follow_confirmed(nn.Linear(2, 2)) is None
