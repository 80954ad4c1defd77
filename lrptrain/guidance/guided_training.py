"""Guidance of a training, whoever runs its loop: what a trainer hands in is each step, and where it stands."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from lrptrain.batch import IMAGES, BatchAdapter
from lrptrain.batch.parts import TEXT_PROPERTIES
from lrptrain.batch.task import Task, TaskName, find_task
from lrptrain.cues.cue import Cue
from lrptrain.cues.search import Judged
from lrptrain.guidance.annotated_batches import AnnotatedBatches
from lrptrain.guidance.cue_swap import cue_swap, cues_among
from lrptrain.guidance.guided_step import GuidedStep, Progress
from lrptrain.guidance.named_parts import FollowedParts, NamedParts, NamesPart, names_of, parts_of, swap_of
from lrptrain.guidance.objective import SWAP, Objective, parse_losses
from lrptrain.guidance.schedule import Decay, Schedule
from lrptrain.guidance.strength import Strength
from lrptrain.guidance.swaps import FINDINGS, OUTSIDE, Swap, SwapName
from lrptrain.guidance.text_swaps import TextReader, text_swap
from lrptrain.intervention.parts import follow_confirmed
from lrptrain.intervention.swap import LARGE_RING, ring_share
from lrptrain.cues.text_form import text_form
from lrptrain.trainers.checks import check_counts
from lrptrain.trainers.failures import Failures
from lrptrain.trainers.messages import inform
from lrptrain.trainers.naming import NameSources, find_tokenizer
from lrptrain.trainers.processes import Processes

MOST_OF_THE_EVIDENCE = 0.5
"""A share of the evidence; what is named beyond it leaves less of the object than it takes."""
_Named = NamesPart | Literal["outside"]
SwapOption = SwapName | Literal["findings"] | NamesPart | Sequence[_Named] | Cue | Judged | Sequence[Cue | Judged]
"""What users say that is swapped: its name; findings, with what lies outside of the annotations or without; or cues."""


class GuidedTraining:
    """What a guidance is asked for, and what it has measured and counted so far; it knows no trainer.

    The options are those of `lrptrain.callbacks.RelevanceGuidance`, which says what they mean.

    Args:
        name: What messages to the user call the guidance.
        inform: Says something to the user, in the first process.

    Attributes:
        objective: The losses.
        named: What findings name, where that is swapped; None else.
        task: What the user says that the model's output means.
        tokenizer: What the user says that reads the texts.
        sources: Returns who is asked for the tokenizer beside the model, where the user names none.
        reader: What reads the texts that are rewritten.
        schedule: How the weight rises and falls.
        strength: What scales the guidance.
        values: The values of the last guided batch, by the names that they are logged under.
        skipped: How often a loss or a gradient was not finite.
        worked: Whether a batch was guided. Until then an error means a wrong setting, and ends the run.
        looked_up: In how many batches the model's images were looked up in those of the batch.
        unmatched: Whether it was said that they are not found there.

    Raises:
        ValueError: If an option is wrong.
    """

    values: dict[str, float]
    skipped: int
    worked: bool
    looked_up: int
    unmatched: bool
    _asked: bool
    _sought_tokenizer: bool
    _guided: bool

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
        swap: SwapOption = "outside",
        warmup_steps: int = 0,
        decay: Decay = "none",
        adaptive: bool = False,
        batch_adapter: BatchAdapter | None = None,
        task: TaskName | Task | None = None,
        compare_every_n_batches: int = 50,
        on_error: Literal["warn", "raise"] = "warn",
        seed: int = 0,
        tokenizer: Any = None,
        name: str = "Guidance",
        inform: Callable[[str], None] = inform,
    ) -> None:
        self.weight = 1.0 if weight is None else weight
        weights = parse_losses(loss, self.weight)
        swapped_share = weights.pop(SWAP, None)
        if adaptive and not weights:
            raise ValueError(f"adaptive=True scales losses, and {SWAP} has none: leave it out")
        options = dict(method_options or {})
        cues = cues_among(swap)
        self.named = None if cues else _named_parts(swap)
        reader = TextReader() if self.named is None else self.named.reader
        swapped = cue_swap(cues) if cues else _swap_by(swap, reader) if self.named is None else swap_of(self.named)
        self.objective = Objective(
            weights, method, options, target, first_order, margin, find_task(task), swapped_share, swapped
        )
        self.swaps_cues = bool(cues)
        self.task = task
        self.tokenizer = tokenizer
        self.sources: Callable[[], NameSources] = tuple
        self.reader = reader
        self.schedule = Schedule(warmup_steps, decay)
        check_counts(every_n_batches=every_n_batches, max_samples=1 if max_samples is None else max_samples)
        if not 0 < annotated_fraction <= 1:
            raise ValueError(f"annotated_fraction must lie in (0, 1], not {annotated_fraction}")
        if on_error not in ("warn", "raise"):
            raise ValueError(f"on_error must be 'warn' or 'raise', not {on_error!r}")
        # Without a loss there is no gradient to bound, and none would ever be measured.
        bounded = bool(weights) and weight is None and isinstance(loss, str) and not adaptive
        self.strength = Strength(self.weight, bounded, adaptive, compare_every_n_batches, every_n_batches)
        self.strength.dominance.watches &= bool(weights)
        self.strength.dominance.losses = self.objective.names
        self.every_n_batches = every_n_batches
        self.seed = seed
        self.name = name
        self.inform = inform
        self.failed = Failures(on_error, name)
        self.batches = AnnotatedBatches(
            needs_label=self.objective.needs_label,
            needs_annotation=self.objective.needs_annotation,
            # Not every batch has what findings name, and none has it before the first finding.
            sparse=sparse or annotated_fraction < 1 or (self.named is not None and not self.named.outside),
            annotated_fraction=annotated_fraction,
            max_samples=max_samples,
            batch_adapter=batch_adapter,
            seed=seed,
            failed=self.failed,
            named=self.named,
            swap=self.objective.swap_kind,
        )
        self.start_over()

    @property
    def sparse(self) -> bool:
        """Whether batches without any annotation are to be expected."""
        return self.batches.sparse

    @property
    def failures(self) -> int:
        """How often the guidance failed."""
        return self.failed.count

    @property
    def left_out(self) -> int:
        """How often a sample went unguided for its values: pixels that are not finite, a mask of other values."""
        return self.batches.left_out

    def start_over(self) -> None:
        """Forget an earlier training."""
        self.values = {}
        self.skipped = 0
        self.worked = False
        self._asked = False
        self._sought_tokenizer = False
        self._margin_seen = False
        self._share_seen = False
        self.looked_up = 0
        self.unmatched = False
        self.failed.count = 0
        self.strength.start_over()
        self.batches.start_over()
        self._guided = False
        if isinstance(self.named, FollowedParts):
            self.named.start_over()

    def begin(
        self, model: nn.Module, trained: nn.Module, batch: Any, progress: Progress, processes: Processes
    ) -> GuidedStep | None:
        """Begin the step of a batch; None if the batch is one of those that are not guided.

        Args:
            model: The module that the step calls with the samples of the batch.
            trained: The module with all weights that the step may train.
            batch: The batch, as the step gets it.
            progress: Where the training stands.
            processes: The processes that take part.
        """
        # What is decided here must be decided alike in all processes, or a collective waits for ever: which batches are
        # guided and compared follows the batch index and the state, which are the same in all of them.
        if progress.batch % self.every_n_batches:
            return None
        if not (self.worked or self._asked):
            self._asked = True
            if self.named is not None and not isinstance(self.named, FollowedParts):
                beside = "what lies outside of their annotations, and " if self.named.outside else ""
                self.inform(f"{self.name}: samples swap {beside}what the findings name: {names_of(self.named.parts)}")
            if self.swaps_cues:
                self.inform(f"{self.name}: samples swap {self.objective.swap_kind.name}")
            # A model may say that it is none of classes. Only before its first step: those of transformers note in
            # their first forward pass with labels what the labels look like.
            find_task(self.task, model)
        if self.objective.swap_kind.rewrites and not (self._sought_tokenizer or self.swaps_cues):
            self._sought_tokenizer = True
            self.reader.begin(text_form(self._find_tokenizer(trained), trained))
        if isinstance(self.named, FollowedParts):
            self._follow(self.named, trained)
        columns, rows = self.batches.read(batch, self.worked, self.objective.task)
        if len(rows) and not self.worked:
            annotation = columns["evidence"][rows.to(columns["evidence"].device)]
            self._mention_margin(annotation)
            self._mention_share(columns, rows, annotation)
        return GuidedStep(self, model, trained, batch, columns, rows, progress, processes)

    def _find_tokenizer(self, trained: nn.Module) -> Any:
        """Return what reads the texts; None where nobody names it, and for lengths what can be had without effort."""
        if self.tokenizer is None and self.objective.swap_kind.name == "length":
            # Nothing is read: a tokenizer that would be loaded from afar only says what fills the texts up.
            attributes = [
                value for source in (*self.sources(), trained) for value in getattr(source, "__dict__", {}).values()
            ]
            return next((each for each in attributes if callable(getattr(each, "convert_ids_to_tokens", None))), None)
        return find_tokenizer(self.tokenizer, [*self.sources(), trained])

    def _follow(self, followed: FollowedParts, trained: nn.Module) -> None:
        """Swap what the run's own monitor has confirmed by now, too, and say so.

        All processes of a monitor come to the same findings, so that they swap alike.

        Raises:
            ValueError: If no monitor watches the model.
        """
        confirmed = follow_confirmed(trained)
        if confirmed is None:
            raise ValueError(
                f"swap={FINDINGS!r} swaps what a monitor of the same run confirms, and none watches this model: add "
                "RelevanceMonitor() (or lrptrain.Monitor, before the first step), or pass findings of an earlier run"
            )
        news = followed.follow(confirmed)
        if news:
            self.inform(f"{self.name}: {news}")

    def _mention_margin(self, annotation: Tensor) -> None:
        """Say so once if the margin of the swaps keeps much of the surroundings of the first guided images."""
        if self._margin_seen or annotation.ndim != 3 or not self.objective.swaps_surroundings:
            return
        self._margin_seen = True
        share = ring_share(annotation, self.objective.margin or 0)
        if share > LARGE_RING:
            self.inform(
                f"{self.name}: swaps keep the pixels around the evidence, {share:.0%} of what lies outside it, and the "
                "model can learn to read it there: margin= says how many they keep"
            )

    def _mention_share(self, columns: Mapping[str, Any], rows: Tensor, annotation: Tensor) -> None:
        """Say so once if what findings name is most of the evidence of the first guided images."""
        if self._share_seen or self.named is None or not self.named.outside:
            return
        self._share_seen = True
        images = next(columns[name] for name in IMAGES if name in columns)
        if annotation.shape[1:] != images.shape[-2:]:
            return  # the swap itself says what is wrong
        share = self.named.share_of_evidence(images[rows.to(images.device)], annotation)
        if share > MOST_OF_THE_EVIDENCE:
            self.inform(
                f"{self.name}: what the findings name covers {share:.0%} of the annotated evidence, and is another "
                "sample's: little is left to learn from. Data without it would be better"
            )

    def finish(self, values: Mapping[str, float]) -> None:
        """Note the values of a guided step."""
        self.values = {f"guidance/{name}": float(value) for name, value in values.items()}
        self._guided |= values["samples"] > 0

    def drop_not_finite(self, optimizer: torch.optim.Optimizer, scaled: bool = False) -> None:
        """Drop the gradients of a guided step if one is not finite, so that the step is not taken.

        Args:
            optimizer: The optimizer that is about to step.
            scaled: Whether a GradScaler watches over it, which leaves such a step out and lowers its scale.
        """
        guided = self._guided
        self._guided = False
        if not guided or scaled:
            return
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if gradients and not _all_finite(gradients):
            self.skipped += 1
            optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues; the schedule follows the trainer's own steps."""
        return {
            **self.strength.state_dict(),
            "skipped": self.skipped,
            "failures": self.failures,
            "worked": self.worked,
            "named": self.named.state_dict() if isinstance(self.named, FollowedParts) else None,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.strength.load_state_dict(state_dict)
        self.skipped = state_dict["skipped"]
        self.worked = state_dict["worked"]
        self.failed.count = state_dict["failures"]
        named = state_dict.get("named")  # checkpoints of earlier versions have none
        if named is not None and isinstance(self.named, FollowedParts):
            self.named.load_state_dict(named)


def _swap_by(name: Any, reader: TextReader) -> SwapName | Swap:
    """Return a swap by its name; of texts, with what reads them."""
    return text_swap(name, reader) if name in TEXT_PROPERTIES else cast(SwapName, name)


def _named_parts(swap: SwapOption) -> NamedParts | None:
    """Return what findings name; None for a swap of another kind."""
    if isinstance(swap, str):
        return FollowedParts() if swap == FINDINGS else None
    if not isinstance(swap, Iterable):
        return NamedParts(parts_of(cast(NamesPart, swap)))
    several = list(swap)
    findings = [each for each in several if not isinstance(each, str) or each != OUTSIDE]
    outside = len(findings) < len(several)
    if outside and not findings:
        raise ValueError(f"swap=[{OUTSIDE!r}] names no finding beside it: say swap={OUTSIDE!r}")
    return NamedParts(parts_of(cast(list[NamesPart], findings)), outside)


def _all_finite(gradients: list[Tensor]) -> bool:
    return bool(torch.stack(torch._foreach_norm(gradients)).isfinite().all())
