"""Rows of numbers: which are a sample's own, what goes along with them, and how the model is given them."""

import pytest
import torch
from torch import nn

from lrptrain.batch import Sample, collate, read_batch, token_annotations
from lrptrain.batch.call import ROWS, inputs_of, model_output
from lrptrain.batch.checks import unusable
from lrptrain.batch.rows import as_rows, beside_rows, grid_sizes, present_rows

WIDTH = 3


def bag(number: int, rows: int, **others: torch.Tensor) -> Sample:
    return Sample(number, 0, {"image": torch.full((rows, WIDTH), float(number)), **others})


class Mean(nn.Module):
    """Answers by the mean row, and by how many there are; it notes the shapes that it is given."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def forward(self, x, at):
        self.shapes.append((tuple(x.shape), tuple(at.shape)))
        return torch.stack([x.mean((1, 2)), torch.full((len(x),), float(x.shape[1]))], 1)


def test_the_model_is_given_each_sample_at_its_own_length():
    bags = [bag(i, rows, **{"argument:at": torch.arange(rows)}) for i, rows in enumerate((2, 5, 2, 3))]
    batch = collate(bags)
    assert batch["image"].shape == (4, 5, WIDTH)
    assert batch[ROWS].sum(1).tolist() == [2, 5, 2, 3]
    model = Mean()
    assert model_output(model, batch).tolist() == [[0, 2], [1, 5], [2, 2], [3, 3]]
    assert sorted(model.shapes) == [((1, 3, 3), (1, 3)), ((1, 5, 3), (1, 5)), ((2, 2, 3), (2, 2))]


def test_bags_of_one_length_are_stacked_as_they_are():
    batch = collate([bag(0, 2), bag(1, 2)])
    assert ROWS not in batch
    assert present_rows(batch).all()


def test_masks_of_the_model_say_which_rows_are_padding():
    batch = {"image": torch.rand(2, 3, WIDTH)}
    kept = {"argument:pixel_attention_mask": torch.tensor([[1, 1, 0], [1, 0, 0]])}
    left_out = {"argument:key_padding_mask": torch.tensor([[False, False, True], [False, True, True]])}
    for mask in (kept, left_out, {ROWS: torch.tensor([[True, True, False], [True, False, False]])}):
        assert present_rows(batch | mask).tolist() == [[True, True, False], [True, False, False]]


def test_a_grid_is_what_multiplies_to_the_number_of_patches():
    batch = {"image": torch.rand(2, 6, WIDTH), "argument:spatial_shapes": torch.tensor([[2, 3], [3, 2]])}
    found = grid_sizes(batch)
    assert found is not None
    assert found.tolist() == [[2, 3], [3, 2]]
    assert grid_sizes({**batch, "argument:spatial_shapes": torch.tensor([[2, 3], [2, 2]])}) is None
    assert grid_sizes({**batch, "argument:spatial_shapes": torch.tensor([[2.0, 3.0], [3.0, 2.0]])}) is None


def test_a_mask_of_rows_is_their_annotation_unless_the_model_takes_it():
    batch = {"image": torch.rand(1, 2, WIDTH), "mask": torch.tensor([[0, 1]])}
    assert as_rows(batch)["rationale"].tolist() == [[0, 1]]
    taken = as_rows(batch, takes_mask=True)
    assert taken.keys() == {"image", "argument:mask"}
    assert beside_rows(taken) == ["argument:mask", "image"]
    image = {"image": torch.rand(1, 3, 2, 2), "mask": torch.ones(1, 2, 2)}
    assert as_rows(image).keys() == image.keys()


def test_the_third_of_a_tuple_of_bags_is_the_label_of_each_instance():
    rows = torch.rand(2, 4, WIDTH)
    labels = torch.tensor([[0, 1, 0, 0], [0, 0, 0, 0]])
    columns = read_batch((rows, torch.tensor([1, 0]), labels))
    assert columns["rationale"].tolist() == labels.tolist()
    assert "rationale" not in read_batch((rows, torch.tensor([1, 0]), labels + 7))  # numbers of something else


def test_padding_is_ignored_by_scores():
    batch = collate([bag(0, 2, rationale=torch.tensor([1, 0])), bag(1, 3, rationale=torch.tensor([0, 0, 1]))])
    annotation, _ = token_annotations(batch, None)
    assert annotation is not None
    assert annotation.evidence.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert annotation.valid.tolist() == [[1, 1, 0], [1, 1, 1]]


def test_a_label_for_each_row_must_be_one_for_each():
    batch = {"image": torch.rand(1, 4, WIDTH), "rationale": torch.tensor([[0, 1]])}
    assert "must have the shape of 'image' (1, 4)" in unusable(batch)[0]


@pytest.mark.parametrize("name", ["mask", "row_mask", "padding_mask", "attention_mask"])
@pytest.mark.parametrize("of_padding", [False, True])
@pytest.mark.parametrize("dtype", [torch.bool, torch.long, torch.float])
def test_padding_is_what_is_all_zeros_whatever_its_mask_is_called(name, of_padding, dtype):
    there = torch.tensor([[True, True, False], [True, True, True], [True, False, False]])  # the second one is full
    batch = {"image": (torch.rand(3, 3, WIDTH) + 1) * there[..., None]}
    mask = there != of_padding
    assert present_rows({**batch, f"argument:{name}": mask.to(dtype)}).tolist() == there.tolist()


def test_where_the_rows_do_not_tell_a_name_does():
    batch, mask = {"image": torch.rand(1, 3, WIDTH) + 1}, torch.tensor([[1, 1, 0]])
    assert present_rows({**batch, "argument:row_mask": mask}).tolist() == [[True, True, False]]
    assert present_rows({**batch, "argument:padding_mask": mask}).tolist() == [[False, False, True]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.float])
def test_a_mask_that_is_the_models_keeps_its_type_and_another_can_be_ignored(dtype):
    batch = read_batch({"image": torch.rand(2, 3, WIDTH), "mask": torch.ones(2, 3).to(dtype)})
    assert as_rows(batch, takes_mask=True)["argument:mask"].dtype == dtype
    assert as_rows(batch)["rationale"].dtype == (torch.uint8 if dtype == torch.bool else dtype)


def test_a_mask_of_the_models_beside_rows_is_theirs():
    batch = as_rows({"image": torch.rand(2, 3, WIDTH), "attention_mask": torch.ones(2, 3)})
    assert set(batch) == {"image", "argument:attention_mask"}
    assert inputs_of(batch, "bag") == {"bag": ("image", "argument:attention_mask")}
