"""One training run, for all tables: any module that takes a batch's inputs, any arm, so many steps."""

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset
from torchvision.transforms import ColorJitter

import lrptrain
from experiments.guidance.arms import Arm
from experiments.vision import MEAN, STD
from lrptrain.batch.parts import InputPart
from lrptrain.callbacks import GroupDRO, RelevanceGuidance, RelevanceMonitor
from lrptrain.findings import Finding
from lrptrain.guidance import swap_outside, swap_tokens
from lrptrain.guidance.evidence import evidence
from lrptrain.guidance.named_parts import NamedParts, parts_of

Batch = dict[str, Tensor]
Precision = Literal["32-true", "bf16-mixed"]
LOOKS = 8
"""So often a monitor looks in a run that swaps what it confirms."""
MOST_ROUNDS = 3
"""So often at most another model is trained on swaps of all that was confirmed of those before it."""
GROUPS = 2
"""With another class's shortcut, and with that of the own."""


class Trained(pl.LightningModule):
    """Cross-entropy, or the same on swapped surroundings, with AdamW and a one-cycle schedule."""

    def __init__(
        self,
        net: nn.Module,
        inputs: Callable[[Batch], dict[str, Tensor]],
        arm: Arm,
        lr: float,
        precision: Precision = "32-true",
    ):
        super().__init__()
        self.net, self.inputs, self.arm, self.lr, self.trained_in = net, inputs, arm, lr, precision

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        if self.arm.rule == "swapped":
            batch = swapped(batch)
        if self.arm.rule == "jitter":
            batch = {**batch, "image": jittered(batch["image"])}
        output = self.net(**self.inputs(batch))
        return F.cross_entropy(getattr(output, "logits", output), batch["label"])

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.net(**self.inputs(batch))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=self.arm.weight_decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.lr, int(self.trainer.max_steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def draw_weights(columns: Batch, arm: Arm) -> Tensor:
    """How often each sample is drawn: alike, or for group DRO so that both groups are."""
    weights = torch.ones(len(columns["label"]), dtype=torch.float64)
    if arm.rule == "group_dro":
        weights /= torch.bincount(columns["group"], minlength=2)[columns["group"]]
    return weights


def swapped(batch: Batch) -> Batch:
    """The batch with what lies outside of its annotations taken from another sample."""
    name, swap, margin = ("image", swap_outside, 2) if "image" in batch else ("input_ids", swap_tokens, 0)
    return {**batch, name: swap(batch[name], evidence(batch), margin)[0]}


def jittered(images: Tensor) -> Tensor:
    """Images in other colours, each in its own, as strong as is usual (Chen et al. 2020, "SimCLR", with half of it)."""
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (MEAN, STD))
    jitter = ColorJitter(0.4, 0.4, 0.4, 0.1)
    return torch.stack([(jitter((image * std + mean).clamp(0, 1)) - mean) / std for image in images])


def fit(module: Trained, loader: DataLoader, steps: int, weight: float, seed: int) -> float:
    """Train for so many steps; seconds taken."""
    options = module.arm.guidance
    callbacks: list[pl.Callback] = [] if options is None else [guidance(options, weight, seed)]
    if module.arm.rule == "group_dro":
        callbacks.append(GroupDRO(GROUPS, step_size=module.arm.group_step))
    started = time.monotonic()
    quiet_trainer(steps, callbacks, module.trained_in).fit(module, loader)
    module.eval()
    return time.monotonic() - started


def fit_watched(
    module: Trained, loader: DataLoader, validation: DataLoader, steps: int, seed: int
) -> Sequence[InputPart]:
    """Train for so many steps under a monitor, which looks several times; samples swap what it confirms.

    Returns:
        What is swapped at the end.
    """
    every = max(1, steps // LOOKS)
    swap = RelevanceGuidance("swap", swap="findings", compare_every_n_batches=0, seed=seed)
    with TemporaryDirectory() as folder:
        trainer = quiet_trainer(steps, [_monitor(), swap], module.trained_in, folder, every)
        trainer.fit(module, loader, validation)
    module.eval()
    assert swap.guidance.named is not None
    return swap.guidance.named.parts


def fit_on_findings(
    module: Trained, loader: DataLoader, findings: Sequence[Finding], steps: int, seed: int, tokenizer: Any = None
) -> None:
    """Train for so many steps; samples swap what findings of other models have confirmed, if there are any findings."""
    swaps: list[pl.Callback] = []
    if findings:
        swaps.append(
            RelevanceGuidance("swap", swap=findings, compare_every_n_batches=0, seed=seed, tokenizer=tokenizer)
        )
    quiet_trainer(steps, swaps, module.trained_in).fit(module, loader)
    module.eval()


def trained_anew(
    new_module: Callable[[], Trained],
    new_batches: Callable[[], DataLoader],
    validation: DataLoader,
    steps: int,
    seed: int,
    judge: Callable[[Finding], Finding] = lambda finding: finding,
) -> tuple[Trained, Sequence[InputPart]]:
    """Train, let a monitor look, train another one on swaps of what was confirmed so far, until nothing new is.

    Args:
        new_module: Makes the model, with the same weights each time.
        new_batches: Makes the batches, in the same order each time.
        validation: What the monitor looks at, without annotations.
        steps: Those of each training.
        seed: That of the swaps.
        judge: What a person says of each finding.

    Returns:
        The last model, and what its samples swapped.
    """
    findings: list[Finding] = []
    named = NamedParts()
    for rounds in range(MOST_ROUNDS + 1):
        module = new_module()
        fit_on_findings(module, new_batches(), findings if named.parts else [], steps, seed)
        if rounds == MOST_ROUNDS:
            break
        findings += map(judge, findings_of(module, validation))
        if not named.add(_swappable(findings)):
            break
    return module, named.parts


def _swappable(findings: Sequence[Finding]) -> list[InputPart]:
    """What findings name that can be swapped; nothing where they are refused for that."""
    try:
        return parts_of(findings)
    except ValueError:
        return []


def findings_of(module: Trained, validation: DataLoader) -> list[Finding]:
    """What a monitor says of a trained model, all defaults."""
    monitor = _monitor()
    with TemporaryDirectory() as folder:
        quiet_trainer(1, [monitor], folder=folder).validate(module, validation, verbose=False)
        return monitor.findings


def _monitor() -> RelevanceMonitor:
    """One that looks in full each time: a run of a minute does not pay for it by its twentieth."""
    return RelevanceMonitor(budget=None, max_pictures=0, progress_bar=False)


def repair_last_layer(net: nn.Module, arm: Arm, columns: Batch, batch_size: int, seed: int) -> None:
    """Train the last layer anew on held-out samples, if the arm says so."""
    if arm.repair is None:
        return
    loader = DataLoader(StackDataset(**columns), batch_size)
    repaired = lrptrain.repair(net, loader, balance=arm.repair, max_samples=len(columns["label"]), seed=seed)
    repaired.apply(net)


def quiet_trainer(
    steps: int,
    callbacks: Sequence[pl.Callback],
    precision: Precision = "32-true",
    folder: str | None = None,
    validate_every: int | None = None,
) -> pl.Trainer:
    """On one core; gradient norm 1. With validations after so many steps where that is said."""
    for name in ("pytorch_lightning", "pytorch_lightning.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    limits = {"max_steps": steps, "max_epochs": -1, "gradient_clip_val": 1.0, "precision": precision}
    if validate_every is not None:
        limits |= {"val_check_interval": validate_every, "check_val_every_n_epoch": None, "num_sanity_val_steps": 0}
    return pl.Trainer(
        accelerator="cpu", devices=1, callbacks=list(callbacks), default_root_dir=folder, **limits, **quiet
    )


def guidance(arguments: dict[str, Any], weight: float, seed: int) -> RelevanceGuidance:
    """The callback of an arm; annotations may be sparse. A weight of 0 is that of an arm that needs none."""
    return RelevanceGuidance(**arguments, weight=weight or None, sparse=True, compare_every_n_batches=0, seed=seed)
