"""Which samples of a batch cannot be used."""

import pytest
import torch

from lrptrain.batch.checks import Limits, check_aspect_ratio, unusable, vocabulary_size


def images(**entries):
    mask = torch.zeros(4, 8, 8)
    mask[:, :4] = 1
    return {"image": torch.rand(4, 3, 8, 8), "label": torch.tensor([0, 1, 2, -1]), "mask": mask, **entries}


def texts():
    return {"input_ids": torch.randint(0, 9, (4, 5)), "rationale": torch.tensor([[255, 0, 1, 0, 255]] * 4)}


def spoil(batch, name, row, value):
    batch[name][row] = value
    return batch


def boxed(*boxes):
    batch = images(boxes=torch.tensor(boxes).float()[:, None])
    del batch["mask"]
    return batch


FINE = [0, 0, 4, 8]
NONE = [float("nan")] * 4


@pytest.mark.parametrize(
    ("batch", "bad"),
    [
        (images(), []),
        (texts(), []),
        (boxed(FINE, NONE, [-3, 0, 14, 9], [3, 3, 4, 4]), []),
        (spoil(images(), "image", (2, 0, 0, 0), float("nan")), [2]),
        (spoil(images(), "image", (1, 2, 7, 7), float("-inf")), [1]),
        (spoil(images(), "label", 1, 3), [1]),
        (spoil(images(), "mask", (3, 0, 0), 2), [3]),
        (spoil(images(), "mask", (0, 0, 0), 0.7), [0]),
        (spoil(spoil(images(), "mask", 0, 9), "label", 2, 9), [0, 2]),
        (images(mask=torch.ones(4, 8, 16)), [0, 1, 2, 3]),
        (images(mask=torch.ones(4, 2, 2)), []),
        (spoil(texts(), "input_ids", (1, 1), 9), [1]),
        (spoil(texts(), "input_ids", (1, 1), -1), [1]),
        (spoil(texts(), "rationale", (2, 1), 3), [2]),
        (boxed(FINE, [4, 4, 4, 4], FINE, FINE), [1]),
        (boxed(FINE, FINE, [4, 4, 2, 9], FINE), [2]),
        (boxed(FINE, FINE, FINE, [0.1, 0.1, 0.9, 0.9]), [3]),
        (boxed([9, 9, 12, 12], FINE, FINE, [0, 0, 17, 4]), [0, 3]),
        (boxed(FINE, [0, 0, float("nan"), 4], FINE, FINE), [1]),
    ],
)
def test_exactly_the_bad_rows_are_named(batch, bad):
    assert list(unusable(batch, Limits(classes=3, vocabulary=9))) == bad


def test_what_is_not_known_limits_nothing():
    assert unusable(spoil(images(), "label", 1, 300)) == {}
    assert unusable(spoil(texts(), "input_ids", 1, 300)) == {}


@pytest.mark.parametrize(
    ("mask", "fits"), [((224, 224), True), ((14, 14), True), ((448, 448), True), ((14, 15), True), ((14, 16), False)]
)
def test_aspect_ratios(mask, fits):
    if fits:
        check_aspect_ratio(mask, (224, 224))
    else:
        with pytest.raises(ValueError, match="masks of 14 x 16 for images of 224 x 224 pixels have another shape"):
            check_aspect_ratio(mask, (224, 224))


def test_whole_pixels_are_allowed_for():
    check_aspect_ratio((7, 9), (224, 300))  # 9.4 columns
    check_aspect_ratio((333, 500), (224, 336))  # 336.3


class Text(torch.nn.Sequential):
    def get_input_embeddings(self):
        return self[0]


def test_only_the_table_of_tokens_bounds_their_ids():
    tables = torch.nn.Embedding(30, 2), torch.nn.Embedding(512, 2)
    assert vocabulary_size(torch.nn.Sequential(*tables)) is None  # either may be that of positions
    assert vocabulary_size(Text(*tables)) == 30


def test_a_batch_without_any_box_has_none():
    batch = images(boxes=torch.zeros(4, 0, 4))
    del batch["mask"]
    assert unusable(batch) == {}


def test_whatever_a_value_does_to_a_check_is_a_problem_of_its_sample():
    batch = images(mask=["no", "mask", "at", "all"])
    assert list(unusable(batch)) == [0, 1, 2, 3]


def test_channels_that_come_last_are_named():
    batch = {"image": torch.zeros(2, 8, 8, 3), "mask": torch.zeros(2, 8, 8, dtype=torch.uint8)}
    (problem,) = set(unusable(batch, Limits()).values())
    assert "channels last" in problem


def test_several_texts_of_a_sample_are_refused_by_their_shape():
    problems = unusable({"input_ids": torch.randint(0, 9, (2, 3, 4, 10))})
    assert list(problems) == [0, 1]
    assert "[1, 3, 4, 10] is neither a text [batch, tokens] nor one in chunks" in problems[0]
