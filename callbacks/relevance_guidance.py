"""Make the model look at the right thing: a guidance loss beside the task's, without an edit of the LightningModule."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from lrptrain.batch import IMAGES, BatchAdapter, batch_length, read_batch
from lrptrain.batch.checks import Limits, unusable
from lrptrain.batch.png_masks import PngMasks
from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.callbacks.base import rank_zero_warn
from lrptrain.callbacks.model_callback import ModelCallback
from lrptrain.guidance.conflict import compare_gradients, flat_gradient, synchronized_time
from lrptrain.guidance.evidence import (
    contrasted,
    evidence,
    guidable_samples,
    in_annotated_fraction,
    moved_samples,
    without_annotation,
)
from lrptrain.guidance.losses import LossSum
from lrptrain.guidance.objective import Objective, parse_losses
from lrptrain.guidance.reduction import ReducedLosses, reduce_losses
from lrptrain.guidance.schedule import BOUND_EVERY_N_BATCHES, Decay, Schedule, bounded_factor, running_ratio
from lrptrain.monitor.model_input import choice_of_parts
from lrptrain.relevance.interception import InterceptedForward, checkpoints, intercepted
from lrptrain.relevance.process_wide import eager
from lrptrain.relevance.tape.tape import Tape
from lrptrain.trainers.checks import check_counts
from lrptrain.trainers.failures import Failures
from lrptrain.trainers.wrapping import wrap_method

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from torch.optim import Optimizer

SWAP_DISTANCE = "swap_distance"
MOVED_SHARE = 0.25
"""Of the images that can be compared: from this share on, those that the model sees moved end the run."""
NO_GRADIENT = 1e-6
"""The norm of a loss's gradient up to which it is that of its rounding."""
IDLE_STEPS = 10
"""So many optimizer steps a guidance may take without a gradient before it is refused."""


class RelevanceGuidance(ModelCallback):
    """Adds a guidance loss to the training step of any LightningModule.

    The step is wrapped while the trainer fits, so that gradient accumulation, mixed precision, clipping and DDP see one
    loss. The step's own forward pass is recorded and serves the relevance, too, where at least half of its batch is
    guided. Batches are those of `RelevanceMonitor`, with `mask`, `boxes` or `rationale`; the model must be given what
    these belong to.

    **How strong the guidance is.** Without a `weight`, the task's gradient bounds it: in the first guided batches and
    then in every tenth the norms of both gradients at the trained weights are compared, and the guidance is multiplied
    by the largest factor up to 1 at which its gradient is at most half as long as the task's. Between comparisons the
    factor stays. It falls at once, and at most doubles from one comparison to the next. A comparison costs two more
    backward passes. A `weight`, weights by name, or `adaptive` switch this off.

    Logged under `guidance/`, over all processes:

    - each loss by its name: its mean over the guided samples; `total`: their weighted sum;
    - `weight`: the schedule's share of the weight; `applied_weight`: what all losses are multiplied by in this step,
      beside their weights by name;
    - `samples`: guided samples; `failures`; `left_out`: samples that went unguided for their values; `skipped`: losses
      left out because they were not finite, and steps undone because their gradient was not (a GradScaler does that
      itself);
    - where gradients are compared, `cosine` between the gradients of task and guidance (-1..1), `norm_ratio` of their
      norms (guidance at a factor of 1 over task) and `cost`, the guidance's seconds over the task's;
    - from time to time `swap_distance`: how far the prediction moves (total variation, 0..1) when another sample's
      content takes the place of what is not annotated. Near 0, the model uses the annotated alone; a map that looks
      right while this stays high is no proof.

    Between guided batches Lightning repeats the last values.

    Guided steps run eagerly where a model is compiled. Blocks that a model computes again in the backward pass
    are recognised by the flags of timm and transformers; if yours calls `torch.utils.checkpoint` itself, set
    `gradient_checkpointing = True` on it.

    Args:
        loss: One of `lrptrain.guidance.LOSSES`, several as in "consistency+energy", or a weight for each by its name.
        weight: A factor for all losses, applied as it is. By default 1 for losses with weights by name, and else as
            large as the task's gradient allows, up to 1; see above.
        method: The relevance method of the maps that `energy` and the other losses on maps judge: a differentiable one
            of `lrptrain.methods()`. By default `generic_attention`, and for models without attention maps `attnlrp`,
            with a `RelevanceWarning`. Under autocast, methods that would amplify its rounding
            (`transformer_attribution`, `lrp`, `epsilon_lrp`, `partial_lrp`) cost another forward pass, in float32.
        method_options: The options of the method.
        target: Whether maps explain the class of the label, or the predicted one.
        first_order: Whether gradients inside the maps count as constants: cheaper, and reaches attention only.
        annotated_fraction: Use the annotations of this fraction of the samples only, a fixed draw by their `sample_id`.
        sparse: Whether batches without any annotation are to be expected, rather than an error.
        every_n_batches: One batch in this many is guided.
        max_samples: The most samples of a batch that are guided; None for all.
        margin: Pixels (or tokens) around the evidence that swaps keep. By default those of the monitor's swaps for
            images, max(2, shorter side // 56) pixels, and 0 tokens.
        warmup_steps: Optimizer steps in which the weight rises from 0.
        decay: How the weight falls after that, to 0 at the end of training: "none", "linear" or "cosine".
        adaptive: Scale the guidance so that its gradient is as long as the task's, times `weight`.
        model: The attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: Brings a batch of another form to the contract's names.
        compare_every_n_batches: In one guided batch of so many, the swap distance is measured and gradients are
            compared, which costs two forward and two backward passes; 0: never.
        on_error: "warn": a failure after the first guided batch is reported once, counted, and the batch goes unguided;
            "raise": it ends training.
        seed: The seed of the draw and the swaps.

    Attributes:
        failures: How often the guidance failed.
        skipped: How often a loss or a gradient was not finite.
        left_out: How often a sample went unguided for its values: pixels that are not finite, a mask of other values.

    Raises:
        ValueError: At construction, when training is set up, or in the first batch, with what to change.
    """

    skipped: int
    left_out: int
    ratio: float | None
    """Running ratio of the gradient norms, task over guidance, for `adaptive`."""
    factor: float | None
    """The factor of the default bound; None before the first comparison."""
    _worked: bool
    _guided: bool
    _compared: Literal["", "idle", "moves"]
    """Whether a comparison has found a gradient of the guidance yet."""
    _idle_since: int
    _steps: float

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
        margin: int | None = None,
        warmup_steps: int = 0,
        decay: Decay = "none",
        adaptive: bool = False,
        model: str | None = None,
        batch_adapter: BatchAdapter | None = None,
        compare_every_n_batches: int = 50,
        on_error: Literal["warn", "raise"] = "warn",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.weight = 1.0 if weight is None else weight
        weights = parse_losses(loss, self.weight)
        self.objective = Objective(weights, method, dict(method_options or {}), target, first_order, margin)
        self.schedule = Schedule(warmup_steps, decay)
        check_counts(every_n_batches=every_n_batches, max_samples=1 if max_samples is None else max_samples)
        _check_options(annotated_fraction, adaptive, compare_every_n_batches, on_error)
        self.bounded = weight is None and isinstance(loss, str) and not adaptive
        self.adaptive = adaptive
        self.annotated_fraction = annotated_fraction
        self.sparse = sparse or annotated_fraction < 1
        self.every_n_batches = every_n_batches
        self.max_samples = max_samples
        self.compare_every_n_batches = compare_every_n_batches
        self.model = model
        self.batch_adapter = batch_adapter
        self.seed = seed
        self._failures = Failures(on_error, "RelevanceGuidance")
        self._unwrap_step: Callable[[], None] | None = None
        self._replay: Tape | None = None
        self._replaying: AbstractContextManager[None] | None = None
        self._start_over()

    @property
    def failures(self) -> int:
        """How often the guidance failed."""
        return self._failures.count

    @property
    def state_key(self) -> str:
        """Tells two guidances apart, so that `setup` can say what to do instead."""
        return self._generate_state_key(losses=list(self.objective.weights))

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues; the schedule follows the trainer's own steps."""
        return {
            "ratio": self.ratio,
            "factor": self.factor,
            "skipped": self.skipped,
            "failures": self.failures,
            "worked": self._worked,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.ratio = state_dict["ratio"]
        self.factor = state_dict.get("factor")  # checkpoints of earlier versions have none: it is measured anew
        self.skipped = state_dict["skipped"]
        self._worked = state_dict["worked"]
        self._failures.count = state_dict["failures"]

    # -- Lightning's hooks --------------------------------------------------------------------------------------------

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Reject what cannot work, and wrap the training step."""
        if stage != "fit":
            return
        super().setup(trainer, pl_module, stage)
        _check_guidable(trainer, pl_module)
        # A resumed run is past step 0 and keeps what its checkpoint said.
        if trainer.global_step == 0:
            self._start_over()
        self._restore()
        step = partial(self._guided_step, trainer, pl_module)
        self._unwrap_step = wrap_method(pl_module, "training_step", step)

    def on_fit_start(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Find the model, and the end of training where the schedule needs it."""
        super().on_fit_start(trainer, pl_module)
        self._steps = trainer.estimated_stepping_batches if self.schedule.needs_end else float("inf")
        if self.schedule.needs_end and self._steps in (-1, float("inf")):
            raise ValueError("decay needs an end: set max_epochs or max_steps of the trainer, or decay='none'")

    def teardown(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Unwrap the training step."""
        self._restore()

    def on_exception(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", exception: BaseException) -> None:
        """Unwrap the training step: Lightning calls no `teardown` then."""
        self._restore()

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
        guided = self._guided
        self._guided = False
        if not guided or getattr(trainer.precision_plugin, "scaler", None) is not None:
            return  # a GradScaler leaves such a step out, and lowers its scale
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if gradients and not torch.stack(torch._foreach_norm(gradients)).isfinite().all():
            self.skipped += 1
            optimizer.zero_grad(set_to_none=True)

    # -- The guided step ----------------------------------------------------------------------------------------------

    def _guided_step(
        self,
        trainer: "pl.Trainer",
        pl_module: "pl.LightningModule",
        training_step: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run the user's training step, and add the guidance on its forward pass to the loss that it returns.

        What is decided here must be decided alike in all processes, or a collective waits for ever: which batches are
        guided and compared follows the batch index and the state, which are the same in all of them.
        """
        # The order of a guided step, with a collective call (*) that all processes make:
        #   1. the user's training step, in which the model's forward pass is intercepted: the task's loss;
        #   2. the losses of this process on that pass, and now and then the swap distance;
        #   3. their means over all processes (*);
        #   4. now and then the gradients of task and guidance beside each other (*), which sets the guidance's factor;
        #   5. the sum, which Lightning differentiates, clips and steps with as if it were the user's own loss.
        batch_idx = trainer.fit_loop.epoch_loop.batch_idx
        if batch_idx % self.every_n_batches:
            return training_step(*args, **kwargs)
        batch, rows = self._read(args[0] if args else next(iter(kwargs.values())))
        measures_swaps = self._measures_swaps(batch_idx)
        compares = measures_swaps or self._checks_bound(batch_idx)
        watch = _Stopwatch(pl_module.device, running=compares)
        with self._interception(batch, rows, compares) as forwards:
            output = training_step(*args, **kwargs)
        task_loss = output.get("loss") if isinstance(output, Mapping) else output
        if not isinstance(task_loss, Tensor):
            return output  # the user's step leaves this batch out
        watch.lap()
        losses = self._losses(trainer, pl_module, batch, rows, forwards)
        watch.lap()
        samples = len(rows) if losses else 0
        if measures_swaps and losses:
            losses = {**losses, **self._swap_distance(trainer, batch, rows, forwards)}
        reduced = self._reduce(trainer, losses, measures_swaps, samples, task_loss)
        self.skipped += reduced.counts["skipped"]
        # From here on "samples" and all means are those of all processes; this one may have guided none itself.
        weights = self.objective.weights
        terms = (weight * reduced.local[name] for name, weight in weights.items() if name in reduced.local)
        guidance = sum(terms, task_loss.new_zeros(()))
        conflict: dict[str, float] = {}
        # The count is that of all processes, so that either all of them compare or none does.
        if compares and reduced.counts["samples"]:
            conflict = self._compare(trainer, pl_module, task_loss, guidance, watch)
        schedule = self.schedule(trainer.global_step, self._steps)
        scale = schedule * self._strength()
        total = scale * sum(weight * reduced.means[name] for name, weight in weights.items() if name in reduced.means)
        applied = {"total": total, "weight": schedule, "applied_weight": scale * self.weight}
        own = {"skipped": self.skipped, "left_out": self.left_out}
        self._log(pl_module, {**reduced.means, **reduced.counts, **conflict, **applied, **own})
        self._guided |= reduced.counts["samples"] > 0
        task_loss = task_loss + scale * guidance
        return {**output, "loss": task_loss} if isinstance(output, Mapping) else task_loss

    def _measures_swaps(self, batch_idx: int) -> bool:
        """Return whether to measure the swap distance and compare gradients in this guided batch."""
        every = self.compare_every_n_batches * self.every_n_batches
        return every > 0 and (batch_idx % every == 0 or (self.adaptive and self.ratio is None))

    def _checks_bound(self, batch_idx: int) -> bool:
        """Return whether the default bound needs a comparison: in every batch until one succeeded, then rarely."""
        # A guidance that had no gradient so far is compared until it has one, or is refused.
        if self._compared == "idle":
            return True
        return self.bounded and (self.factor is None or batch_idx % (BOUND_EVERY_N_BATCHES * self.every_n_batches) == 0)

    def _strength(self) -> float:
        """Return the factor of the guidance beside its weights and the schedule."""
        if self.adaptive:
            return self.weight * (self.ratio or 0.0)
        if self.bounded:
            return self.factor or 0.0  # nothing is applied before its gradient was measured
        return 1.0

    def _read(self, batch: Any) -> tuple[dict[str, Any], Tensor]:
        """Return the batch in the contract's form, with its evidence, and the indices of the samples to guide."""
        try:
            # Until a batch has worked, an error means a wrong setting, and ends the run; later it is that of a single
            # batch.
            columns: dict[str, Any] = read_batch(batch, self.batch_adapter)
            if (self.sparse or self._worked) and not columns.keys() & set(ANNOTATIONS):
                return {}, torch.zeros(0, dtype=torch.long)  # None for every sample of this batch
            self._png_masks.add(columns)
            if self._png_masks.problem:
                raise ValueError(self._png_masks.problem)
            columns = self._usable(columns)
            columns["evidence"] = evidence(columns)
            guidable = guidable_samples(columns, self.objective.needs_label)
            if not guidable.any() and not self._worked and not self.sparse:
                raise ValueError(
                    "no sample of the first guided batch has an annotation (all are 255, ignored) and a label; if only "
                    "some samples have one, say so with sparse=True"
                )
            if self.annotated_fraction < 1:
                guidable &= in_annotated_fraction(columns, self.annotated_fraction, self.seed).to(guidable.device)
            return columns, torch.nonzero(guidable).flatten()[: self.max_samples]
        except Exception as error:
            if not self._worked:
                raise
            self._failures.note("reading a batch", error)
            return {}, torch.zeros(0, dtype=torch.long)

    def _usable(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the batch without the annotations of samples whose values cannot be used; name the first of them.

        Raises:
            ValueError: If no batch has worked yet.
        """
        problems = unusable(columns, Limits())
        for row, problem in problems.items():
            name = f"the sample {columns['sample_id'][row]}" if "sample_id" in columns else f"sample {row} of a batch"
            if not self._worked or self._failures.on_error == "raise":
                raise ValueError(f"RelevanceGuidance cannot use {name}: {problem}")
            if not self.left_out:
                rank_zero_warn(
                    f"RelevanceGuidance leaves out {name}: {problem}. This is said once; `guidance/left_out` counts"
                )
            self.left_out += 1
        return without_annotation(columns, problems) if problems else columns

    @contextmanager
    def _interception(self, batch: dict[str, Any], rows: Tensor, compares: bool) -> Iterator[list[InterceptedForward]]:
        """Listen to the model during the user's step; the list holds its forward pass afterwards."""
        if not len(rows):  # another process may guide some, and then compare: two backward passes are not compiled
            with eager() if compares else nullcontext():
                yield []
            return
        assert self._model is not None
        samples = batch_length(batch)
        # Where blocks are computed again, one backward pass does so for all calls: all or none are explicit.
        guided = samples if checkpoints(self._model) else len(rows)
        with intercepted(self._model, samples, self.objective.records(guided, samples)) as forwards:
            yield forwards

    def _losses(
        self,
        trainer: "pl.Trainer",
        pl_module: "pl.LightningModule",
        batch: dict[str, Any],
        rows: Tensor,
        forwards: list[InterceptedForward],
    ) -> dict[str, LossSum]:
        """Return every loss of this process; none if it failed or guides no sample."""
        if not len(rows):
            return {}
        if forwards and forwards[0].failure is not None:
            if not self._worked:
                raise forwards[0].failure
            self._failures.note("recording the forward pass", forwards[0].failure)
            return {}
        try:
            if not forwards:
                assert self._model is not None
                raise ValueError(
                    f"the training step never called {type(self._model).__name__} with the {batch_length(batch)} "
                    "samples of its batch (a forward that takes the whole batch does not count): say which module it "
                    f"calls with them, {choice_of_parts(self._model)}"
                )
            self._check_places(forwards[0], batch)
            self._replay = None if forwards[0].tape is None else Tape()
            losses = self.objective.losses(
                forwards[0], batch["evidence"], batch.get("label"), rows, self._generator(trainer)
            )
            if not self._worked:
                self._check_reach(pl_module, losses, batch["evidence"][rows.to(batch["evidence"].device)])
            self._worked = True
            return losses
        except Exception as error:
            if not self._worked:
                raise
            self._failures.note("computing the loss", error)
            return {}

    def _check_places(self, forward: InterceptedForward, batch: dict[str, Any]) -> None:
        """Reject a step that moves the pixels of its batch: the annotations would mark other ones.

        Raises:
            ValueError: With the way out.
        """
        image = next((batch[name] for name in IMAGES if name in batch), None)
        if image is None or image.ndim != 4 or forward.explained.ndim != 4:
            return
        moved, telling = moved_samples(forward.explained, image)
        # One odd image is no sign of an augmentation; one that flips each image with a chance of a half moves many.
        if bool(moved.any()) and int(moved.sum()) >= MOVED_SHARE * int(telling.sum()):
            raise ValueError(
                f"the training step gives {type(self._model).__name__} other images than its batch holds: "
                f"{int(moved.sum())} of {len(moved)} are flipped, cropped or otherwise moved, and the annotations are "
                "not. Augment images and masks together, in the dataset or in on_after_batch_transfer (torchvision's "
                "v2 transforms and tv_tensors do both)"
            )

    def _swap_distance(
        self, trainer: "pl.Trainer", batch: dict[str, Any], rows: Tensor, forwards: list[InterceptedForward]
    ) -> dict[str, LossSum]:
        with self._failures.caught("measuring the swap distance"):
            generator = self._generator(trainer)
            return {SWAP_DISTANCE: self.objective.swap_distance(forwards[0], batch["evidence"], rows, generator)}
        return {}

    def _reduce(
        self,
        trainer: "pl.Trainer",
        losses: Mapping[str, LossSum],
        measures_swaps: bool,
        samples: int,
        task_loss: Tensor,
    ) -> ReducedLosses:
        """Take means over all processes, with one sum over them."""
        # The same names in all processes, also in one that guides no sample: the sum is over rows of one length.
        names = [*self.objective.weights, *([SWAP_DISTANCE] if measures_swaps else [])]
        counts = {"samples": samples, "failures": self.failures}
        return reduce_losses(losses, names, counts, task_loss, trainer.world_size, partial(_reduced, trainer, "sum"))

    def _generator(self, trainer: "pl.Trainer") -> torch.Generator:
        """Return random numbers that depend on seed, step and process alone, so that a resumed run draws the same."""
        # Python salts the hashes of strings, not those of integers: a resumed run computes the same.
        seed = hash((self.seed, trainer.global_step, trainer.global_rank)) % 2**63
        return torch.Generator().manual_seed(seed)

    def _check_reach(self, pl_module: "pl.LightningModule", losses: Mapping[str, LossSum], annotation: Tensor) -> None:
        """Reject a loss whose graph reaches no trained weight, and annotations that give no loss a gradient.

        Args:
            pl_module: The module that is trained.
            losses: The losses of the first guided batch.
            annotation: The evidence of its guided samples.
        """
        weights = _trained_weights(pl_module)
        # A backward pass through checkpointed blocks computes them again: as recorded, with explicit attention.
        with self._replayed():
            gradients = {name: flat_gradient(loss.total, weights) for name, loss in losses.items()}
        lost = [name for name, gradient in gradients.items() if gradient is None]
        if lost:
            method = self.objective.method or "the default method"
            raise ValueError(
                f"{', '.join(lost)} reaches no weight that is trained: are all of them frozen, or does {method} with "
                f"first_order={self.objective.first_order} leave no way to them?"
            )
        # Rounding leaves a gradient where there is none: a loss is of the order of 1.
        idle = all(gradient is None or float(gradient.norm()) <= NO_GRADIENT for gradient in gradients.values())
        if idle and not self.sparse and not bool(contrasted(annotation).any()):
            marks = "all" if bool((annotation == 1).any()) else "nothing"
            raise ValueError(
                "the guidance has no gradient (guidance/cosine is nan): the annotations of the first guided batch "
                f"mark {marks} of every sample. 1 is evidence and 0 is not (for masks of 0 and 255 pass `mask > 0`); "
                "if later batches mark more, say so with sparse=True"
            )

    def _replayed(self) -> AbstractContextManager[None]:
        """Return what a backward pass through checkpointed blocks of a recorded step runs in."""
        return nullcontext() if self._replay is None else self._replay.replaying()

    def _compare(
        self,
        trainer: "pl.Trainer",
        pl_module: "pl.LightningModule",
        task_loss: Tensor,
        guidance: Tensor,
        watch: "_Stopwatch",
    ) -> dict[str, float]:
        """Compare the gradients of task and guidance, and update what scales the guidance."""
        # `guidance` is without schedule and factor here, so that the norms are those at a factor of 1.
        mean = partial(_reduced, trainer, "mean")
        with self._replayed():
            conflict = compare_gradients(task_loss, guidance, _trained_weights(pl_module), mean)
        self._check_gradient(trainer, conflict.guidance_norm)
        self.ratio = running_ratio(self.ratio, conflict.task_norm, conflict.guidance_norm)
        if self.bounded:
            self.factor = bounded_factor(self.factor, conflict.task_norm, conflict.guidance_norm)
        task_seconds, guidance_seconds = watch.seconds
        task_seconds += conflict.task_seconds
        guidance_seconds += conflict.guidance_seconds
        cost = guidance_seconds / max(task_seconds, 1e-9)
        return {"cosine": conflict.cosine, "norm_ratio": conflict.norm_ratio, "cost": cost}

    def _check_gradient(self, trainer: "pl.Trainer", guidance_norm: float) -> None:
        """Reject a guidance that has had no gradient from its first comparison on; it is the same in all processes.

        Raises:
            ValueError: After some optimizer steps without any.
        """
        if guidance_norm > 0 or self._compared == "moves":
            self._compared = "moves"
        elif self._compared == "":
            # A last layer that is initialised with zeros has no map either, until its first steps.
            self._compared = "idle"
            self._idle_since = trainer.global_step
        elif trainer.global_step - self._idle_since >= IDLE_STEPS and not self.sparse and not self.skipped:
            raise ValueError(
                f"the guidance had no gradient in its first {IDLE_STEPS} steps (guidance/cosine is nan), so it "
                "changes nothing: does the annotation mark all of a sample, or nothing of it (1 is evidence, for masks "
                "of 0 and 255 pass `mask > 0`), or does the model give every class the same logit? If annotations come "
                "later, say so with sparse=True"
            )

    def _log(self, pl_module: "pl.LightningModule", values: Mapping[str, float]) -> None:
        for name, value in values.items():
            batch_size = max(int(values["samples"]), 1)
            pl_module.log(f"guidance/{name}", float(value), on_step=True, on_epoch=False, batch_size=batch_size)

    # -- Start and end ------------------------------------------------------------------------------------------------

    def _start_over(self) -> None:
        self.skipped = 0
        self.left_out = 0
        self.ratio = None
        self.factor = None
        self._failures.count = 0
        self._worked = False
        self._png_masks = PngMasks()
        self._guided = False
        self._compared = ""
        self._idle_since = 0

    def _restore(self) -> None:
        """Leave the module and torch's modes as they were before."""
        if self._unwrap_step is not None:
            self._unwrap_step()
        # An exception in the backward pass leaves the mode entered: it is left only if it is still the innermost one.
        innermost: Any = torch.overrides._get_current_function_mode
        if self._replaying is not None and innermost() is self._replay:
            self._replaying.__exit__(None, None, None)
        self._unwrap_step = None
        self._replay = self._replaying = None


class _Stopwatch:
    """Measures seconds between laps on a device; one that does not run never waits for the device."""

    def __init__(self, device: torch.device, running: bool) -> None:
        self.device = device
        self.running = running
        self.times: list[float] = []
        self.lap()

    def lap(self) -> None:
        """Note the time."""
        if self.running:
            self.times.append(synchronized_time(self.device))

    @property
    def seconds(self) -> list[float]:
        """The seconds of every lap."""
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


def _check_options(annotated_fraction: float, adaptive: bool, compare_every_n_batches: int, on_error: str) -> None:
    if not 0 < annotated_fraction <= 1:
        raise ValueError(f"annotated_fraction must lie in (0, 1], not {annotated_fraction}")
    if adaptive and compare_every_n_batches < 1:
        raise ValueError("adaptive=True needs compare_every_n_batches of at least 1")
    if on_error not in ("warn", "raise"):
        raise ValueError(f"on_error must be 'warn' or 'raise', not {on_error!r}")


def _check_guidable(trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
    if not pl_module.automatic_optimization:
        raise ValueError(
            f"RelevanceGuidance adds to the loss that training_step returns, but {type(pl_module).__name__} "
            "optimises manually and returns none to Lightning: set automatic_optimization = True, or add "
            "lrptrain.guidance.guidance_loss to your own loss"
        )
    if sum(isinstance(callback, RelevanceGuidance) for callback in trainer.callbacks) > 1:  # type: ignore[attr-defined]
        raise ValueError("one RelevanceGuidance per trainer: combine losses, as in loss='consistency+energy'")


def _reduced(trainer: "pl.Trainer", operation: str, values: Tensor) -> Tensor:
    """Reduce over all processes; in a single one the values stay as they are, to the bit."""
    return trainer.strategy.reduce(values, reduce_op=operation) if trainer.world_size > 1 else values


def _trained_weights(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]
