"""One guided step: listen to the user's forward pass, and add the guidance on it to the loss."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from lrptrain.batch import batch_length
from lrptrain.batch.matters import LEAST_EFFECT
from lrptrain.batch.rows import has_rows
from lrptrain.guidance.annotated_batches import AnnotatedBatch
from lrptrain.guidance.evidence import matched_evidence
from lrptrain.guidance.first_step import FirstStep, trained_weights
from lrptrain.guidance.losses import LossSum
from lrptrain.guidance.reduction import ReducedLosses, reduce_losses
from lrptrain.guidance.state import GuidanceState
from lrptrain.guidance.strength import gradient_norm
from lrptrain.guidance.swap import Swapped
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.model.process_wide import eager
from lrptrain.relevance.passes.interception import InterceptedForward, checkpoints, intercepted
from lrptrain.relevance.tape.tape import Tape
from lrptrain.trainers.discover import note_guided
from lrptrain.trainers.processes import Processes

SWAP_DISTANCE = "swap_distance"


@dataclass(frozen=True)
class Progress:
    """Where a training stands, the same in all processes: the index of the batch, and the optimizer steps so far."""

    batch: int
    step: int


@dataclass(eq=False)
class GuidedStep:
    """A step on a batch that is guided.

    The order, with a collective call (*) that all processes make:

    1. the user's own step inside of `listening`, in which the model's forward pass is intercepted, perhaps with swapped
       surroundings: the task's loss;
    2. `guided`: the losses of this process on that pass, and now and then the swap distance;
    3. their means over all processes (*);
    4. now and then the norms of the gradients of task and guidance (*), which set the guidance's factor;
    5. the sum, which the trainer differentiates, clips and steps with as if it were the user's own loss, inside of
       `replaying`.

    Attributes:
        values: What was measured, once the step is guided.
        replay: What the backward pass must run in; None where it runs as ever.
    """

    _state: GuidanceState
    model: nn.Module
    _trained: nn.Module
    batch: AnnotatedBatch
    _progress: Progress
    _processes: Processes
    values: dict[str, float] = field(default_factory=dict)
    replay: Tape | None = None
    _forward: InterceptedForward | None = None
    _first: FirstStep | None = None
    _evidence: Tensor | None = None  # once it is brought to what the model was given
    _swapped: Swapped | None = None

    def __post_init__(self) -> None:
        # Training on swapped surroundings alone adds no loss: there is no gradient to compare.
        self._compares = bool(self._state.objective.weights) and self._state.strength.compares(self._progress.batch)

    @property
    def samples(self) -> int:
        """How many samples of this process are to be guided."""
        return len(self.batch.guided)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to the model during the user's step."""
        if not self.samples:  # another process may guide some, and then compare: two backward passes do not compile
            with eager() if self._compares else nullcontext():
                yield
            return
        objective = self._state.objective
        samples = batch_length(self.batch.columns)
        # Where blocks are computed again, one backward pass does so for all calls: all or none are explicit.
        records = objective.records(samples if checkpoints(self.model) else self.samples, samples)
        change = self._with_swapped_samples if objective.swaps else None
        explain = self._state.options.explain
        if not self._state.worked:
            self._first = FirstStep(self._state, self.model, self._trained, self.batch)
        try:
            with intercepted(self.model, samples, records, change, objective.keeps_maps, explain) as forwards:
                yield
        finally:
            if self._first is not None:
                self._first.stop()
        self._forward = forwards[0] if forwards else None

    def guided(self, task_loss: Tensor, share: float = 1.0) -> Tensor:
        """Return the loss of the task plus the guidance."""
        state, strength = self._state, self._state.strength
        note_guided(unwrap(self.model), state.objective.names)
        losses = self._losses()
        samples = self.samples if losses or (state.objective.swaps and self._forward is not None) else 0
        if self._measures_swaps and samples:
            losses = {**losses, **self._swap_distance()}
        reduced = self._reduce(losses, samples, task_loss)
        state.skipped += reduced.counts["skipped"]
        self._mention_distance(reduced.means.get(SWAP_DISTANCE, 0.0))
        # From here on "samples" and all means are those of all processes; this one may have guided none itself.
        weights = state.objective.weights
        terms = (weight * reduced.local[name] for name, weight in weights.items() if name in reduced.local)
        guidance = share * sum(terms, task_loss.new_zeros(()))
        compared: dict[str, float] = {}
        # The count is that of all processes, so that either all of them compare or none does.
        if self._compares and reduced.counts["samples"]:
            compared = {"norm_ratio": self._compare(task_loss, guidance)}
        factor = strength()
        total = factor * sum(weight * reduced.means[name] for name, weight in weights.items() if name in reduced.means)
        applied = {"total": total, "applied_weight": factor * (state.options.weight or 1.0)}
        counts = {"skipped": state.skipped, "left_out": state.left_out}
        self.values = {**reduced.means, **reduced.counts, **compared, **applied, **counts}
        state.finish(self.values)
        return task_loss + factor * guidance

    def replaying(self) -> AbstractContextManager[None]:
        """Return what a backward pass through checkpointed blocks of a recorded step runs in.

        They are computed again as they were recorded, with explicit attention.
        """
        return nullcontext() if self.replay is None else self.replay.replaying()

    def _losses(self) -> dict[str, LossSum]:
        """Return every loss of this process; none if it failed or guides no sample."""
        state, forward = self._state, self._forward
        if not self.samples:
            return {}
        if forward is not None and forward.failure is not None:
            # Raised once more, it would hold this step with all of its graph.
            if not state.worked:
                raise forward.failure
            state.failed.note("recording the forward pass", forward.failure)
            return {}
        try:
            if forward is None:
                self._look_for_a_part()
                return {}
            if self._first is not None:
                state.continues = self._first.check_continuation()
            evidence = self._match_evidence(forward.original)
            self.replay = forward.replay
            with forward.autocast.restored():
                evidence = evidence if self._swapped is None else self._swapped.annotation
                label = self.batch.columns.get("label")
                losses = state.objective.losses(forward, evidence, label, self.batch.guided, self._generator())
            # The backward pass frees what it has used, which the recording would hold.
            forward.let_go()
            if self._first is not None:
                self._first.check(forward, losses, self.replaying())
            state.worked = True
            return losses
        except Exception as error:
            if not state.worked:
                raise
            state.failed.note("computing the loss", error)
            return {}

    def _look_for_a_part(self) -> None:
        """Guide the only part that a step has called itself from the next step on, without the model's own forward."""
        part = None if self._first is None else self._first.only_part()
        if part is None:
            raise ValueError("the training step never called the model" if not self._first else self._first.no_call())
        self._state.part = part
        self._state.messages.inform(
            f"the training step calls its {type(part).__name__} itself, which is guided from now on"
        )

    def _with_swapped_samples(self, arguments: Mapping[str, Any], name: str) -> dict[str, Tensor]:
        """Return what the model is given in place of the input of the user's step."""
        state = self._state
        explained: Tensor = arguments[name]
        try:
            evidence = self._match_evidence(explained)
            # Bags of any size come one by one, and take from the one before; images and texts can do better.
            if len(explained) == 1 and explained.ndim != 3 and not state.worked:
                raise ValueError(
                    "swap takes something of other samples of the batch, and the first guided batch has one sample, so "
                    "that nothing would ever change: use larger batches"
                )
            # The swap distance of the same step swaps by the first stream: it is to measure other swaps than these.
            generator = self._generator(stream=1)
            share = state.objective.swapped_share or 0.0
            chosen = torch.zeros(len(explained), dtype=torch.bool)
            # Of the guided samples alone, and drawn on the CPU: other devices draw other numbers from the same seed.
            chosen[self.batch.guided.cpu()] = torch.rand(self.samples, generator=generator) < share
            self._swapped = state.objective.swap(explained, evidence, generator, arguments, chosen)
        except Exception as error:
            if not state.worked:
                raise
            state.failed.note("swapping samples", error)
            return {}
        return {name: self._swapped.explained, **self._swapped.arguments}

    @property
    def _measures_swaps(self) -> bool:
        return self._state.strength.measures_swaps(self._progress.batch)

    def _match_evidence(self, explained: Tensor) -> Shaped[Tensor, " batch *area"]:
        """Return the evidence as it belongs to the input of the user's step; reject a step that leaves it behind."""
        # With swaps it is called within the step, before the model runs, and once more when the losses are computed.
        if self._evidence is None:
            name = type(self.model).__name__
            warn = partial(self._state.messages.warn_once, topic="other images")
            self._evidence = matched_evidence(self.batch.columns, explained, name, warn)
        return self._evidence

    def _swap_distance(self) -> dict[str, LossSum]:
        state, forward = self._state, self._forward
        if state.continues or ("input_ids" in self.batch.columns and not state.objective.swap.takes_mask):
            return {}  # what is returned is no answer; or texts become longer, and the model cannot be told so
        assert forward is not None
        with state.failed.caught("measuring the swap distance"), forward.autocast.restored():
            evidence = self._match_evidence(forward.original)
            guided, generator = self.batch.guided, self._generator()
            return {SWAP_DISTANCE: state.objective.swap_distance(forward, evidence, guided, generator)}
        return {}

    def _mention_distance(self, distance: float) -> None:
        """Say once if a bounded guidance leaves answers that change with what is swapped, after the first step."""
        if self._state.strength.bounded and self._progress.step and distance > LEAST_EFFECT:
            self._state.messages.inform_once(
                f"answers still change by {distance:.0%} when samples swap {self._state.objective.swap.title} "
                "(guidance/swap_distance). If that does not fall, train longer, or with loss='swap' or weight=10",
                "distance",
            )

    def _reduce(self, losses: Mapping[str, LossSum], samples: int, task_loss: Tensor) -> ReducedLosses:
        """Take means over all processes, with one sum over them."""
        # The same names in all processes, also in one that guides no sample: the sum is over rows of one length.
        objective = self._state.objective
        names = [*objective.weights, *([SWAP_DISTANCE] if self._measures_swaps else [])]
        counts = {"samples": samples, "failures": self._state.failed.count}
        if objective.swaps:
            counts["swapped"] = 0 if self._swapped is None else int(self._swapped.which.sum())
        over_all = partial(self._processes.reduced, operation="sum")
        return reduce_losses(losses, names, counts, task_loss, self._processes.size, over_all)

    def _compare(self, task_loss: Tensor, guidance: Tensor) -> float:
        """Update what scales the guidance, and return its gradient's norm, at a factor of 1, over the task's."""
        strength = self._state.strength
        with self.replaying():
            mean = partial(self._processes.reduced, operation="mean")
            norm = partial(gradient_norm, weights=trained_weights(self._trained), mean_over_processes=mean)
            task_norm, guidance_norm = norm(task_loss), norm(guidance)
        # Of bags one by one, ten may well be without a mark. All processes must come to the same.
        columns = self.batch.columns
        are_bags = has_rows(columns) and batch_length(columns) == 1
        excused = self._state.sparse or bool(self._state.skipped) or are_bags
        strength.check_gradient(guidance_norm, self._progress.step, excused)
        strength.update(task_norm, guidance_norm)
        return guidance_norm / task_norm if task_norm else float("nan")

    def _generator(self, stream: int = 0) -> torch.Generator:
        """Return random numbers that depend on seed, step and process alone, so that a resumed run draws the same."""
        # Python salts the hashes of strings, not those of integers: a resumed run computes the same.
        streams = (stream,) if stream else ()
        seed = hash((self._state.options.seed, self._progress.step, self._processes.rank, *streams)) % 2**63
        return torch.Generator().manual_seed(seed)
