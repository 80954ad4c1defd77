"""Does guidance by a swap of detail or of shading mend what the findings on them flag? See README.md.

    .venv/bin/python -m experiments.detection.mended

Trains small ViTs on digits and photographs whose class goes with noise, sharpness or light: as they are, guided by the
swap that the finding names, and as they are with marks of any class, which is what mending can reach.
"""

import tempfile
import warnings
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset

from experiments.benchmark import image_marks, images
from experiments.benchmark.cases import NO_MARK, Case
from experiments.benchmark.images import Columns
from experiments.benchmark.watch import HELD_OUT, MOMENTS, right
from experiments.command import no_options
from experiments.detection import detail, shading
from experiments.table import markdown
from lrptrain.callbacks import RelevanceGuidance

PLAN: tuple[tuple[str, str], ...] = (
    ("noise", "detail"),
    ("sharpen", "detail"),
    ("weave", "detail"),
    ("scratch", "detail"),
    ("lamp", "shading"),
    ("shadow", "shading"),
    (NO_MARK, "detail"),
    (NO_MARK, "shading"),
)
"""Each shortcut with the swap that is to mend it; without one, what guidance costs."""
AS_TRAINED, PLAIN, GUIDED, UNBIASED = "plain, as trained", "plain", "guided", "trained on marks of any class"
SEEDS, CORRELATION = 3, 0.9


class Module(pl.LightningModule):
    """A user's own: it knows nothing of guidance."""

    def __init__(self) -> None:
        super().__init__()
        self.net = images.network()

    def forward(self, image: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.net(image)
        return logits

    def training_step(self, batch: dict[str, Tensor], _: int) -> Tensor:
        """The mean cross-entropy."""
        return F.cross_entropy(self(batch["image"]), batch["label"])

    def configure_optimizers(self) -> Any:
        """AdamW with a one-cycle schedule, as in the benchmark."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=images.LR, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, images.LR, MOMENTS[-1])
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def trained(columns: Columns, swap: str | None, seed: int) -> nn.Module:
    """Train on columns, with guidance by a swap or without."""
    pl.seed_everything(seed, verbose=False)
    module = Module()
    guidance: list[pl.Callback] = [RelevanceGuidance("swap", swap=swap)] if swap else []
    chosen = {name: columns[name] for name in ("image", "label")} | {"sample_id": torch.arange(len(columns["label"]))}
    loader = DataLoader(StackDataset(**chosen), images.BATCH, shuffle=True)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_steps=MOMENTS[-1], max_epochs=-1, accelerator="cpu", callbacks=guidance, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=folder, gradient_clip_val=1.0,
        )  # fmt: skip
        trainer.fit(module, loader)
    return module.net.eval()


def accuracies(task: str, kind: str, swap: str, seed: int) -> dict[str, float]:
    """Accuracy on held-out images with marks of any class, by arm; `AS_TRAINED`: with marks as in training."""
    case = Case(task, kind, CORRELATION, 58, seed)
    train = images.samples(case, "train", images.TRAIN, 0)
    held_out = images.samples(case, "test", HELD_OUT, 1)
    unbiased = held_out(False)
    plain = trained(train(True), None, seed)
    guided = trained(train(True), swap, seed)
    reached = plain if kind == NO_MARK else trained(train(False), None, seed)
    by_arm = {PLAIN: plain, GUIDED: guided, UNBIASED: reached}
    as_trained = right(plain, held_out(True)).mean()
    return {AS_TRAINED: float(as_trained)} | {arm: float(right(net, unbiased).mean()) for arm, net in by_arm.items()}


def main() -> None:
    no_options(__doc__)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    image_marks.PICTURE_MARKS |= {**detail.KINDS, **shading.KINDS}
    rows = []
    for kind, swap in PLAN:
        for task in ("digits", "photographs"):
            found = [accuracies(task, kind, swap, seed) for seed in range(SEEDS)]
            row = {"images": task, "shortcut": kind, "swap": f"`{swap}`"}
            for arm in (AS_TRAINED, PLAIN, GUIDED, UNBIASED):
                values = [each[arm] for each in found]
                row[arm] = f"{np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"
            rows.append(row)
            print(row, flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
