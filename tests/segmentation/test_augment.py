import pytest
import torch

from lrptrain.segmentation.folder import random_windows


def scene() -> tuple[torch.Tensor, torch.Tensor]:
    """Images whose first channel is the mask."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.randint(0, 3, (5, 4, 6), generator=generator).to(torch.uint8)
    mask = mask.repeat_interleave(8, 1).repeat_interleave(8, 2)
    mask[mask == 2] = 255
    return mask[:, None].double().repeat(1, 3, 1, 1), mask


def test_image_and_mask_move_together():
    image, mask = scene()
    moved, regions = random_windows(image, mask, 0.4, torch.Generator().manual_seed(1))
    flat = moved[:, 0] == moved[:, 0].round()  # away from edges, where the image is interpolated
    assert flat.float().mean() > 0.4
    assert torch.equal(moved[:, 0][flat].to(torch.uint8), regions[flat])
    assert set(regions.unique().tolist()) <= {0, 1, 255}
    assert not torch.equal(regions, mask)


def test_a_whole_window_is_the_image_or_its_mirror_image():
    image, mask = scene()
    moved, regions = random_windows(image, mask, 1.0, torch.Generator().manual_seed(2))
    same = [torch.equal(one, other) for one, other in zip(regions, mask, strict=True)]
    mirrored = [torch.equal(one, other.flip(-1)) for one, other in zip(regions, mask, strict=True)]
    assert all(a != b for a, b in zip(same, mirrored, strict=True))
    assert any(same)
    assert any(mirrored)
    flip = torch.tensor(mirrored)[:, None, None, None]
    assert torch.allclose(moved, torch.where(flip, image.flip(-1), image), atol=1e-9)


def test_bad_arguments_are_refused():
    image, mask = scene()
    with pytest.raises(ValueError, match="smallest"):
        random_windows(image, mask, 0.0)
    with pytest.raises(ValueError, match="as the images"):
        random_windows(image, mask[:, :4])
