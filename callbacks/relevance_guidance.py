"""Make the model look at the right thing: a guidance loss beside the task's, without an edit of the LightningModule."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from lrptrain.batch import BatchAdapter
from lrptrain.batch.task import Task, TaskName
from lrptrain.callbacks.base import inform
from lrptrain.callbacks.step_callback import StepCallback
from lrptrain.cues.annotator import Annotate
from lrptrain.guidance.guided_training import GuidedTraining
from lrptrain.guidance.schedule import Decay
from lrptrain.guidance.swap_names import OUTSIDE, SwapOption
from lrptrain.trainers.naming import name_sources

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from torch.optim import Optimizer


class RelevanceGuidance(StepCallback):
    """Adds a guidance loss to the training step of any LightningModule.

    The step is wrapped while the trainer fits, so that gradient accumulation, mixed precision, clipping and DDP see one
    loss. The step's own forward pass is recorded and serves the relevance, too, where at least half of its batch is
    guided. Batches are those of `RelevanceMonitor`, with `mask`, `boxes` or `rationale`; the model must be given what
    these belong to.

    **How strong the guidance is.** Without a `weight`, the task's gradient bounds it: in the first guided batches and
    then in every tenth the norms of both gradients at the trained weights are compared, and the guidance is multiplied
    by the largest factor up to 1 at which its gradient is at most half as long as the task's; or, where that is more,
    as long as what the task's gradient would gain if all answers were guesses. A model that is right by a shortcut has
    hardly any gradient of its task left: by that alone the guidance would fade. Between comparisons the factor stays.
    It falls at once, and at most doubles from one comparison to the next. A comparison costs three more backward
    passes. A `weight`, weights by name, or `adaptive` switch this off. Then gradients are compared as often
    until the model has learned something, and it is said if the guidance keeps it from that: if its answers are right
    by chance alone while the guidance's gradient is longer than the task's, or are so again after it had learned.

    Logged under `guidance/`, over all processes:

    - each loss by its name: its mean over the guided samples; `total`: their weighted sum;
    - `weight`: the schedule's share of the weight; `applied_weight`: what all losses are multiplied by in this step,
      beside their weights by name;
    - `samples`: guided samples; `swapped`: how many of them the step saw with swapped surroundings; `failures`;
      `left_out`: samples that went unguided for their values; `skipped`: losses left out because they were not finite,
      and steps undone because their gradient was not (a GradScaler does that itself);
    - where gradients are compared, `cosine` between the gradients of task and guidance (-1..1), `norm_ratio` of their
      norms (guidance at a factor of 1 over task) and `cost`, the guidance's seconds over the task's; without a weight
      also `guess_ratio`, the norm that the task's gradient would have if all answers were guesses over what it has;
    - from time to time `swap_distance`: how far the prediction moves (total variation, 0..1) when another sample's
      content takes the place of what is swapped. Near 0, the model uses the annotated alone; a map that looks
      right while this stays high is no proof.

    Between guided batches Lightning repeats the last values.

    Guided steps run eagerly where a model is compiled. Blocks that a model computes again in the backward pass
    are recognised by the flags of timm and transformers; if yours calls `torch.utils.checkpoint` itself, set
    `gradient_checkpointing = True` on it.

    Args:
        loss: "swap", one of `lrptrain.guidance.LOSSES`, several as in "consistency+energy", or a weight for each by its
            name. "swap" adds no loss: the step itself is given the annotated samples with another sample's content in
            place of what is not annotated, and its own loss teaches the model not to need it. Its weight is the share
            of the samples that are swapped, up to 1.
        weight: A factor for all losses, applied as it is. By default 1 for losses with weights by name, and else as
            large as the task's gradient allows, up to 1; see above.
        method: The relevance method of the maps that `energy` and the other losses on maps judge: a differentiable one
            of `lrptrain.methods()`. By default `generic_attention`, and `attnlrp`, with a `RelevanceWarning`, for
            models without attention maps and where the logits read several tokens, as a mean does. Under autocast,
            methods that would amplify its rounding (`transformer_attribution`, `lrp`, `epsilon_lrp`, `partial_lrp`)
            cost another forward pass, in float32.
        method_options: The options of the method.
        target: Whether maps explain the class of the label, or the predicted one.
        first_order: Whether gradients inside the maps count as constants: cheaper, and reaches attention only.
        annotated_fraction: Use the annotations of this fraction of the samples only, a fixed draw by their `sample_id`.
        sparse: Whether batches without any annotation are to be expected, rather than an error.
        every_n_batches: One batch in this many is guided.
        max_samples: The most samples of a batch that are guided; None for all.
        swap: What "swap" and "consistency" take from another sample: a name, a cue, a finding that holds one, or
            several of these. "outside" is everything that is not annotated. No annotation is read for "colour",
            "spectrum" (sharpness and texture), "grain", "light" and "border" of images, and for "length", "numbers",
            "punctuation" and the other families of `lrptrain.cues.family.FAMILIES` of texts. Of findings
            (`report.faults`, `monitor.findings`) the faults that the model relies on are swapped; a single finding that
            is no fault is swapped with a warning. "findings": what the run's own `RelevanceMonitor` finds, from then
            on.
        warmup_steps: Optimizer steps in which the weight rises from 0.
        decay: How the weight falls after that, to 0 at the end of training: "none", "linear" or "cosine".
        adaptive: Scale the guidance so that its gradient is as long as the task's, times `weight`.
        model: The attribute path of the model on the LightningModule, where that has no forward of its own, or of the
            method that gives the logits.
        batch_adapter: Brings a batch of another form to the contract's names.
        task: What output and labels mean, where they do not say so: "classes" (one-hot labels), "binary" (one logit,
            soft labels), `lrptrain.EachLabel()` of several labels per sample or `lrptrain.OneLabel(column)` of one of
            them, or `lrptrain.Regression(mean, std)`. By default classes, of which one logit tells two apart.
        compare_every_n_batches: In one guided batch of so many, the swap distance is measured and gradients are
            compared, which costs two forward and two backward passes; 0: never, and a `weight` is not watched over.
        on_error: "warn": a failure after the first guided batch is reported once, counted, and the batch goes unguided;
            "raise": it ends training.
        seed: The seed of the draw and the swaps.
        tokenizer: What reads texts where families of words are swapped by name: a tokenizer, its name or its folder.
            By default it is looked for in the datamodule, the dataset, the module and beside the weights.
        annotate: Makes the annotations, where batches hold none; see `RelevanceMonitor`. It sees images as the batch
            holds them, augmented, and is asked again where they change.
        explain: The parameter of the model's forward that is explained and swapped, where it takes several images or
            texts; by default the input of the batch.

    Attributes:
        failures: How often the guidance failed.
        skipped: How often a loss or a gradient was not finite.
        left_out: How often a sample went unguided for its values: pixels that are not finite, a mask of other values.

    Raises:
        ValueError: At construction, when training is set up, or in the first batch, with what to change.
    """

    _by_hand = "add lrptrain.guidance.guidance_loss to your own loss"

    def __init__(
        self,
        loss: str | Mapping[str, float],
        weight: float | None = None,
        method: str | None = None,
        method_options: dict[str, Any] | None = None,
        target: Literal["label", "predicted"] = "label",
        first_order: bool = False,
        annotated_fraction: float = 1.0,
        sparse: bool = False,
        every_n_batches: int = 1,
        max_samples: int | None = None,
        swap: SwapOption = OUTSIDE,
        warmup_steps: int = 0,
        decay: Decay = "none",
        adaptive: bool = False,
        model: str | None = None,
        batch_adapter: BatchAdapter | None = None,
        task: TaskName | Task | None = None,
        compare_every_n_batches: int = 50,
        on_error: Literal["warn", "raise"] = "warn",
        seed: int = 0,
        tokenizer: Any = None,
        annotate: Annotate | None = None,
        explain: str | None = None,
    ) -> None:
        self.guidance = GuidedTraining(
            loss,
            weight=weight,
            method=method,
            method_options=method_options,
            target=target,
            first_order=first_order,
            annotated_fraction=annotated_fraction,
            sparse=sparse,
            every_n_batches=every_n_batches,
            max_samples=max_samples,
            swap=swap,
            warmup_steps=warmup_steps,
            decay=decay,
            adaptive=adaptive,
            batch_adapter=batch_adapter,
            task=task,
            compare_every_n_batches=compare_every_n_batches,
            on_error=on_error,
            seed=seed,
            tokenizer=tokenizer,
            annotate=annotate,
            explain=explain,
            name="RelevanceGuidance",
            inform=inform,
        )
        super().__init__(self.guidance)
        self.model = model
        self._replaying: AbstractContextManager[None] | None = None

    @property
    def failures(self) -> int:
        """How often the guidance failed."""
        return self.guidance.failures

    @property
    def skipped(self) -> int:
        """How often a loss or a gradient was not finite."""
        return self.guidance.skipped

    @property
    def left_out(self) -> int:
        """How often a sample went unguided for its values."""
        return self.guidance.left_out

    @property
    def state_key(self) -> str:
        """Tells two guidances apart, so that `setup` can say what to do instead."""
        return self._generate_state_key(losses=self.guidance.objective.names)

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Reject what cannot work, and wrap the training step."""
        super().setup(trainer, pl_module, stage)
        # Validation dataloaders are made after this hook: who is asked is known at the first batch.
        self.guidance.languages.sources = partial(name_sources, trainer, pl_module)

    def on_fit_start(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Find the model, and the end of training where the schedule needs it."""
        super().on_fit_start(trainer, pl_module)
        needs_end = self.guidance.schedule.needs_end
        self._end = trainer.estimated_stepping_batches if needs_end else float("inf")
        if needs_end and self._end in (-1, float("inf")):
            raise ValueError("decay needs an end: set max_epochs or max_steps of the trainer, or decay='none'")

    def on_before_backward(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", loss: Tensor) -> None:
        """Let checkpointed blocks of a recorded pass be computed again as they were, with explicit attention."""
        if self._replay is not None:
            self._replaying = self._replay.replaying()
            self._replaying.__enter__()

    def on_after_backward(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """End what `on_before_backward` began."""
        if self._replaying is not None:
            self._replaying.__exit__(None, None, None)
        self._replay = self._replaying = None

    def on_before_optimizer_step(
        self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", optimizer: "Optimizer"
    ) -> None:
        """Drop the gradients of a guided step if one is not finite, so that the step is not taken."""
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        self.guidance.drop_not_finite(optimizer, scaled)

    def _check(self, trainer: "pl.Trainer") -> None:
        if sum(isinstance(callback, RelevanceGuidance) for callback in trainer.callbacks) > 1:  # type: ignore[attr-defined]
            raise ValueError("one RelevanceGuidance per trainer: combine losses, as in loss='consistency+energy'")

    def _log(self, pl_module: "pl.LightningModule", values: Mapping[str, float]) -> None:
        for name, value in values.items():
            batch_size = max(int(values["samples"]), 1)
            pl_module.log(f"guidance/{name}", float(value), on_step=True, on_epoch=False, batch_size=batch_size)

    def _restore(self) -> None:
        """Leave the module and torch's modes as they were before."""
        super()._restore()
        # An exception in the backward pass leaves the mode entered: it is left only if it is still the innermost one.
        innermost: Any = torch.overrides._get_current_function_mode
        if self._replaying is not None and innermost() is self._replay:
            self._replaying.__exit__(None, None, None)
        self._replay = self._replaying = None
