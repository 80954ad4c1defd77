"""Make the model look at the right thing: a guidance loss beside the task's, without an edit of the LightningModule."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lrptrain.batch import BatchAdapter, batch_length, read_batch
from lrptrain.callbacks.base import Callback
from lrptrain.guidance.conflict import compare, flat_gradient, now
from lrptrain.guidance.evidence import drawn, evidence, first_rows, guidable
from lrptrain.guidance.objective import Objective, Term, parse_losses
from lrptrain.guidance.schedule import Decay, Schedule, running_ratio
from lrptrain.guidance.shared import share
from lrptrain.relevance.interception import InterceptedForward, checkpoints, intercepted
from lrptrain.relevance.tape.tape import Tape
from lrptrain.trainers.checks import check_counts, check_guidance, check_guided
from lrptrain.trainers.discover import find_model
from lrptrain.trainers.failures import Failures
from lrptrain.trainers.wrapping import wrap_method

RELIANCE = "reliance"


class RelevanceGuidance(Callback):
    """Adds a guidance loss to the training step of any LightningModule.

    The step is wrapped while the trainer fits, so that gradient accumulation, mixed precision, clipping and DDP see one
    loss. The step's own forward pass is recorded and serves the relevance, too, where at least half of its batch is
    guided. Batches are those of `RelevanceMonitor`, with `mask`, `boxes` or `rationale`; the model must be given what
    these belong to.

    Logged under `guidance/`, over all processes: each loss by its name, its mean over the guided samples; `total`,
    weighted; `weight`, the schedule's share of it; `samples` guided; `skipped`, terms left out because they were not
    finite, and steps undone because their gradient was not (a GradScaler does that itself); `failures`; and from time
    to time `reliance`, how far the prediction moves (total variation, 0..1) when another sample's content takes the
    place of what is not annotated: near 0, the model uses the annotated alone, and a map that looks right while this
    stays high is no proof; `cosine`, between the gradients of task and guidance (-1..1); `norm_ratio`, of their norms
    (guidance over task); and `cost`, the guidance's seconds over the task's, from above. Between guided batches
    Lightning repeats the last values.

    Guided steps run eagerly where a model is compiled. Blocks that a model computes again in the backward pass
    are known by the flags of timm and transformers; if yours calls `torch.utils.checkpoint` itself, set
    `gradient_checkpointing = True` on it.

    Args:
        loss: Of `lrptrain.guidance.LOSSES`: one, several as in "consistency+energy", or a weight for each by its name.
        weight: Of all of them.
        method: Whose maps `energy` and the other losses on maps judge: a differentiable one of `lrptrain.methods()`.
            In half precision the gradients through `transformer_attribution` are off by a tenth and more: take another.
        method_options: Of the method.
        target: Explain the class of the label, or the predicted one.
        first_order: Take gradients inside the maps as constants: cheaper, and reaches attention only.
        annotated_fraction: Use the annotations of this share of the samples only, a fixed draw by their `sample_id`.
        sparse: Expect batches without any annotation.
        every_n_batches: Guide one batch in so many.
        max_samples: Guide at most so many samples of a batch.
        margin: Pixels (or tokens) around the evidence that `consistency` keeps; by default 2 pixels, 0 tokens.
        warmup_steps: Optimizer steps in which the weight rises from 0.
        decay: Of the weight after that: "none", "linear" or "cosine", to 0 at the end of training.
        adaptive: Scale the guidance so that its gradient is as long as the task's, times `weight`.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: Brings a batch of another form to the contract's names.
        compare_every_n_batches: In one guided batch of so many, reliance is measured and gradients are compared, which
            costs two forward and two backward passes; 0: never.
        on_error: "warn": a failure after the first guided batch is reported once, counted, and the batch goes unguided;
            "raise": it ends training.
        seed: Of the draw and the swaps.

    Attributes:
        failures: How often the guidance failed.
        skipped: How often a term or a gradient was not finite.

    Raises:
        ValueError: At construction, when training is set up, or in the first batch, with what to change.
    """

    skipped: int
    ratio: float | None
    _worked: bool
    _guided: bool

    def __init__(
        self,
        loss: str | Mapping[str, float],
        weight: float = 1.0,
        method: str = "generic_attention",
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
        weights = parse_losses(loss, weight)
        self.objective = Objective(weights, method, dict(method_options or {}), target, first_order, margin)
        self.schedule = Schedule(warmup_steps, decay)
        check_counts(every_n_batches=every_n_batches, max_samples=1 if max_samples is None else max_samples)
        check_guidance(annotated_fraction, adaptive, compare_every_n_batches, on_error)
        self.annotated_fraction, self.sparse = annotated_fraction, sparse or annotated_fraction < 1
        self.every_n_batches, self.max_samples = every_n_batches, max_samples
        self.weight, self.adaptive, self.compare_every_n_batches = weight, adaptive, compare_every_n_batches
        self.model, self.batch_adapter, self.seed = model, batch_adapter, seed
        self._failures = Failures(on_error, "RelevanceGuidance")
        self._unwrap: Callable[[], None] | None = None
        self._replay: AbstractContextManager | None = None
        self._start_over()

    @property
    def failures(self) -> int:
        """How often the guidance failed."""
        return self._failures.count

    @property
    def state_key(self) -> str:
        """Tells two of them apart, so that `setup` can say what to do instead."""
        return self._generate_state_key(losses=list(self.objective.weights))

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run continues; the schedule follows the trainer's own steps."""
        return {"ratio": self.ratio, "skipped": self.skipped, "failures": self.failures, "worked": self._worked}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.ratio, self.skipped, self._worked = (state_dict[name] for name in ("ratio", "skipped", "worked"))
        self._failures.count = state_dict["failures"]

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse what cannot work, and wrap the training step."""
        if stage != "fit":
            return
        if trainer.global_step == 0:
            self._start_over()
        check_guided(trainer, pl_module)
        self._restore()
        self._unwrap = wrap_method(pl_module, "training_step", partial(self._step, trainer, pl_module))

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Find the model, which the module's own `setup` or `configure_model` may have made."""
        self._model: nn.Module = find_model(pl_module, self.model)
        self._steps = trainer.estimated_stepping_batches if self.schedule.needs_end else float("inf")
        if self.schedule.needs_end and self._steps in (-1, float("inf")):
            raise ValueError("decay needs an end: set max_epochs or max_steps of the trainer, or decay='none'")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Unwrap the training step."""
        self._restore()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Lightning calls no `teardown` then."""
        self._restore()

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Checkpointed blocks of a recorded pass are computed again as they were, with explicit attention."""
        if self._replay is not None:
            self._replay.__enter__()

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """The other end of `on_before_backward`."""
        if self._replay is not None:
            self._replay.__exit__(None, None, None)
            self._replay = None

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """A guided step whose gradient is not finite is not taken: its gradients are dropped."""
        guided, self._guided = self._guided, False
        if not guided or getattr(trainer.precision_plugin, "scaler", None) is not None:
            return  # a GradScaler leaves such a step out, and lowers its scale
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if gradients and not torch.stack(torch._foreach_norm(gradients)).isfinite().all():
            self.skipped += 1
            optimizer.zero_grad(set_to_none=True)

    def _start_over(self) -> None:
        self.skipped, self._failures.count = 0, 0
        self.ratio = None
        self._worked = self._guided = False

    def _restore(self) -> None:
        if self._unwrap is not None:
            self._unwrap()
        if self._replay is not None and torch.overrides._get_current_function_mode() is self._replay:
            self._replay.__exit__(None, None, None)
        self._unwrap = self._replay = None

    def _step(self, trainer: Any, pl_module: Any, own: Callable, args: tuple, kwargs: dict) -> Any:
        """The user's training step, and the guidance on what it did."""
        batch_idx = trainer.fit_loop.epoch_loop.batch_idx
        if batch_idx % self.every_n_batches:
            return own(*args, **kwargs)
        known, rows = self._read(args[0] if args else next(iter(kwargs.values())))
        times = [now(pl_module.device)] if (compares := self._compares(batch_idx)) else []
        with self._listening(known, rows, compares) as calls:
            output = own(*args, **kwargs)
        loss = output.get("loss") if isinstance(output, Mapping) else output
        if not isinstance(loss, Tensor):
            return output  # the step is left out
        times += [now(pl_module.device)] if compares else []
        terms = self._terms(trainer, pl_module, known, rows, calls)
        times += [now(pl_module.device)] if compares else []
        weights, together = self.objective.weights, trainer.world_size > 1
        counts = {"samples": len(rows) if terms else 0, "failures": self.failures}
        added, means, counts = share(
            {**terms, **self._reliance(trainer, known, rows, calls)} if compares and terms else terms,
            [*weights, *([RELIANCE] if compares else [])], counts, loss, trainer.world_size,
            lambda row: trainer.strategy.reduce(row, reduce_op="sum") if together else row,
        )  # fmt: skip
        self.skipped += counts["skipped"]
        guidance = sum((weight * added[name] for name, weight in weights.items() if name in added), loss.new_zeros(()))
        found = self._compare(trainer, pl_module, loss, guidance, times) if compares and counts["samples"] else {}
        share_now = self.schedule(trainer.global_step, self._steps)
        scale = share_now * (self.weight * (self.ratio or 0.0) if self.adaptive else 1.0)
        total = scale * sum(weight * means[name] for name, weight in weights.items() if name in means)
        self._log(pl_module, {**means, **counts, **found, "total": total, "weight": share_now, "skipped": self.skipped})
        self._guided |= counts["samples"] > 0
        loss = loss + scale * guidance
        return {**output, "loss": loss} if isinstance(output, Mapping) else loss

    def _compares(self, batch_idx: int) -> bool:
        every = self.compare_every_n_batches * self.every_n_batches
        return every > 0 and (batch_idx % every == 0 or (self.adaptive and self.ratio is None))

    def _read(self, batch: Any) -> tuple[dict[str, Any], Tensor]:
        """The batch in the contract's form, with its evidence, and which samples to guide."""
        try:
            known = read_batch(batch, self.batch_adapter)
            known["evidence"] = evidence(known)
            chosen = guidable(known, self.objective.needs_map and self.objective.target == "label")
            if not chosen.any() and not self._worked and not self.sparse:
                raise ValueError(
                    "no sample of the first guided batch has an annotation (all are 255, ignored) and a label; if only "
                    "some samples have one, say so with sparse=True"
                )
            if self.annotated_fraction < 1:
                chosen &= drawn(known, self.annotated_fraction, self.seed).to(chosen.device)
            return known, first_rows(chosen, self.max_samples)
        except Exception as error:
            if not self._worked:
                raise
            self._failures.note("reading a batch", error)
            return {}, torch.zeros(0, dtype=torch.long)

    @contextmanager
    def _listening(self, known: dict[str, Any], rows: Tensor, compares: bool) -> Iterator[list[InterceptedForward]]:
        if not len(rows):  # another process may guide some, and then compare: two backward passes are not compiled
            with torch.compiler.set_stance("force_eager") if compares else nullcontext():
                yield []
            return
        samples = batch_length(known)
        # Where blocks are computed again, one backward pass does so for all calls: all or none are explicit.
        guided = samples if checkpoints(self._model) else len(rows)
        with intercepted(self._model, samples, self.objective.records(guided, samples)) as calls:
            yield calls

    def _terms(
        self, trainer: Any, pl_module: Any, known: dict[str, Any], rows: Tensor, calls: list[InterceptedForward]
    ) -> dict[str, Term]:
        """Every loss of this process; none if it failed or guides no sample."""
        if not len(rows):
            return {}
        if calls and calls[0].failure is not None:
            if not self._worked:
                raise calls[0].failure
            self._failures.note("recording the forward pass", calls[0].failure)
            return {}
        try:
            if not calls:
                raise ValueError(
                    f"the training step never called {type(self._model).__name__} with the {batch_length(known)} "
                    "samples of its batch: say which module it calls with model='<attribute>'"
                )
            self._replay = None if calls[0].tape is None else Tape().replaying()
            generator = self._generator(trainer)
            terms = self.objective.terms(calls[0], known["evidence"], known.get("label"), rows, generator)
            if not self._worked:
                self._check_reach(pl_module, terms)
            self._worked = True
            return terms
        except Exception as error:
            if not self._worked:
                raise
            self._failures.note("computing the loss", error)
            return {}

    def _reliance(
        self, trainer: Any, known: dict[str, Any], rows: Tensor, calls: list[InterceptedForward]
    ) -> dict[str, Term]:
        with self._failures.caught("measuring reliance"):
            return {RELIANCE: self.objective.reliance(calls[0], known["evidence"], rows, self._generator(trainer))}
        return {}

    def _generator(self, trainer: Any) -> torch.Generator:
        seed = hash((self.seed, trainer.global_step, trainer.global_rank)) % 2**63
        return torch.Generator().manual_seed(seed)

    def _check_reach(self, pl_module: Any, terms: Mapping[str, Term]) -> None:
        with self._replay or nullcontext():
            lost = [name for name, term in terms.items() if flat_gradient(term.total, _trained(pl_module)) is None]
        if lost:
            raise ValueError(
                f"{', '.join(lost)} reaches no weight that is trained: are all of them frozen, or does "
                f"{self.objective.method} with first_order={self.objective.first_order} leave no way to them?"
            )

    def _compare(
        self, trainer: Any, pl_module: Any, loss: Tensor, guidance: Tensor, times: list[float]
    ) -> dict[str, float]:
        """How the gradients of task and guidance lie to each other, and what the guidance costs."""
        together = trainer.world_size > 1
        with self._replay or nullcontext():
            pull = compare(
                loss, guidance, _trained(pl_module),
                lambda gradient: trainer.strategy.reduce(gradient, reduce_op="mean") if together else gradient,
            )  # fmt: skip
        self.ratio = running_ratio(self.ratio, pull.task, pull.guidance)
        cost = (times[2] - times[1] + pull.guidance_seconds) / max(times[1] - times[0] + pull.task_seconds, 1e-9)
        norm_ratio = pull.guidance / pull.task if pull.task else float("nan")
        return {"cosine": pull.cosine, "norm_ratio": norm_ratio, "cost": cost}

    def _log(self, pl_module: Any, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            batch_size = max(int(values["samples"]), 1)
            pl_module.log(f"guidance/{name}", float(value), on_step=True, on_epoch=False, batch_size=batch_size)


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]
