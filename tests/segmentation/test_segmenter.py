import pytest
import pytorch_lightning as pl
import torch
from small_models import tiny_vit
from torch import nn
from torch.utils.data import DataLoader, StackDataset

from lrptrain.segmentation.decoder import PatchDecoder
from lrptrain.segmentation.scoring import MaskScore
from lrptrain.segmentation.segmenter import Segmenter, pixel_loss, random_windows

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]


def squares(count: int, seed: int) -> DataLoader:
    """A bright square (class 1) or a dark one (class 2) on grey, with a column that is ignored."""
    generator = torch.Generator().manual_seed(seed)
    image, mask = 0.1 * torch.randn(count, 3, 16, 16, generator=generator), torch.zeros(count, 16, 16)
    for i in range(count):
        row, column, label = (int(torch.randint(high, (), generator=generator)) for high in (9, 9, 2))
        image[i, :, row : row + 7, column : column + 7] += 1 - 2 * label
        mask[i, row : row + 7, column : column + 7] = 1 + label
    mask[:, :, 15] = 255
    return loader(image, mask.to(torch.uint8), 16)


def loader(image: torch.Tensor, mask: torch.Tensor, batch_size: int) -> DataLoader:
    dataset: StackDataset = StackDataset(image=image, mask=mask)  # type: ignore[arg-type]
    return DataLoader(dataset, batch_size)


def trainer(steps: int) -> pl.Trainer:
    return pl.Trainer(
        max_steps=steps, max_epochs=-1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", log_every_n_steps=1,
    )  # fmt: skip


def test_a_decoder_on_a_vit_learns_to_segment():
    torch.manual_seed(0)
    module = Segmenter(PatchDecoder(tiny_vit(), 2, 16, width=32), lr=1e-2)
    runner = trainer(60)
    before = mean_iou(module)
    module.train()
    runner.fit(module, squares(64, 0))
    assert runner.callback_metrics["train/loss"] < 0.7
    assert before < 0.4
    assert mean_iou(module) > 0.7


def mean_iou(module: Segmenter) -> float:
    score = MaskScore(2)
    for batch in squares(32, 1):
        score.update(module.eval().predict_step(batch, 0), batch["mask"])
    return float(score.compute()["mean_iou"])


class Coarse(nn.Module):
    """Logits at an eighth of the image's size that say the class of each cell."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return 20 * torch.stack([1 - image[:, 0], image[:, 0], -torch.ones_like(image[:, 0])], 1)[:, :, ::8, ::8]


def test_any_module_serves_and_ignored_pixels_do_not_count():
    image, mask = torch.zeros(2, 3, 16, 16), torch.zeros(2, 16, 16, dtype=torch.uint8)
    module = Segmenter(Coarse())
    batch = {"image": image, "mask": mask}
    mask[0, :4] = 2
    wrong = pixel_loss(module(image), mask)
    mask[0, :4] = 255
    right = pixel_loss(module(image), mask)
    assert wrong > 1
    assert right < 1e-6
    assert module.predict_step(batch, 0).shape == (2, 16, 16)
    mask[:] = 255
    assert pixel_loss(module(image), mask) == 0


def test_a_checkpoint_needs_the_net_again(tmp_path):
    module = Segmenter(PatchDecoder(tiny_vit(), 2, 16), lr=1e-2)
    runner = trainer(1)
    runner.fit(module, squares(16, 0))
    runner.save_checkpoint(tmp_path / "last.ckpt")
    again = Segmenter.load_from_checkpoint(tmp_path / "last.ckpt", net=PatchDecoder(tiny_vit(), 2, 16))
    image = torch.randn(1, 3, 16, 16)
    assert torch.equal(module.eval()(image), again.eval()(image))


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
