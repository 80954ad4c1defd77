"""What audits and comparisons make of samples that cannot be used: the same as the monitor."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from lrptrain.auditing.samples import draw_samples


def loader(mask: torch.Tensor | None = None, **columns: Any) -> Any:
    entries = {"image": torch.rand(6, 3, 8, 8), "label": torch.arange(6) % 2, **columns}
    if mask is not None:
        entries["mask"] = mask
    samples: Any = [{name: column[row] for name, column in entries.items()} for row in range(6)]
    return DataLoader(samples, batch_size=3)


def evidence() -> torch.Tensor:
    mask = torch.zeros(6, 8, 8)
    mask[:, 2:5, 2:5] = 1
    return mask


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        (evidence() * 0.7, "mask must be 1 .evidence., 0 .not. or 255"),
        (evidence() * 15, "found .15.0."),
        (evidence()[:, :4], "masks of 4 x 8 for images of 8 x 8 pixels have another shape"),
        (evidence().flatten(1), r"'mask' must be \[batch, height, width\]"),
    ],
)
def test_masks_that_nobody_can_read_are_refused(mask, says):
    with pytest.raises(ValueError, match="no sample can be used. The first of them, .*" + says):
        draw_samples(loader(mask), 6, 0)


def test_png_masks_are_not_used():
    with pytest.warns(UserWarning, match="pass `mask > 0`. The annotations are not used"):
        samples = draw_samples(loader((evidence() * 255).to(torch.uint8)), 6, 0)
    assert len(samples) == 6
    assert not any("mask" in sample.tensors for sample in samples)


def test_one_bad_sample_is_left_out():
    image = torch.rand(6, 3, 8, 8)
    image[4, 0, 0, 0] = float("nan")
    with pytest.warns(UserWarning, match="the sample 4 cannot be used and is left out: 'image' holds NaN"):
        samples = draw_samples(loader(evidence(), image=image), 6, 0)
    assert sorted(sample.sample_id for sample in samples) == [0, 1, 2, 3, 5]


def test_good_masks_are_drawn_without_a_word():
    samples = draw_samples(loader(evidence()[..., None]), 6, 0)
    assert all(torch.equal(sample.tensors["mask"], evidence()[0]) for sample in samples)
