"""Guidance of a training, whoever runs its loop: what a trainer hands in is each step, and where it stands."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lrptrain.batch import BatchAdapter
from lrptrain.batch.call import takes
from lrptrain.batch.matters import LEAST_EFFECT
from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.batch.task import OneLabel, Task, TaskName, find_task
from lrptrain.cues.annotator import Annotate
from lrptrain.cues.followed import follow_known
from lrptrain.cues.text_form import text_form
from lrptrain.cues.texts import Language
from lrptrain.guidance.annotated_batches import AnnotatedBatches
from lrptrain.guidance.followed_cues import FollowedCues
from lrptrain.guidance.guided_step import GuidedStep, Progress
from lrptrain.guidance.objective import SWAP, Objective, parse_losses
from lrptrain.guidance.schedule import Decay, Schedule
from lrptrain.guidance.strength import Strength
from lrptrain.guidance.swap import Swap
from lrptrain.guidance.swap_names import FINDINGS, OUTSIDE, SwapOption, asked_for
from lrptrain.guidance.voice import Voice
from lrptrain.terminal import give_warning
from lrptrain.trainers.checks import check_counts, check_on_error
from lrptrain.trainers.failures import Failures
from lrptrain.trainers.messages import inform
from lrptrain.trainers.naming import NameSources, find_tokenizer, find_tokens
from lrptrain.trainers.processes import Processes


class GuidedTraining:
    """What a guidance is asked for, and what it has measured and counted so far; it knows no trainer.

    The options are those of `lrptrain.callbacks.RelevanceGuidance`, which says what they mean.

    Args:
        name: What messages to the user call the guidance.
        inform: Says something to the user, in the first process.

    Attributes:
        voice: Speaks to the user.
        objective: The losses.
        task: What the user says that the model's output means.
        languages: Finds out how texts are made up.
        batches: Reads the batches.
        schedule: How the weight rises and falls.
        strength: What scales the guidance.
        values: The values of the last guided batch, by the names that they are logged under.
        skipped: How often a loss or a gradient was not finite.
        goes_on: Whether the step goes on with what the model returns, which is no answer then.
        worked: Whether a batch was guided. Until then an error means a wrong setting, and ends the run.

    Raises:
        ValueError: If an option is wrong.
    """

    values: dict[str, float]
    skipped: int
    worked: bool
    goes_on: bool
    _part: nn.Module | None
    _asked: bool
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
        swap: SwapOption = OUTSIDE,
        warmup_steps: int = 0,
        decay: Decay = "none",
        adaptive: bool = False,
        batch_adapter: BatchAdapter | None = None,
        task: TaskName | Task | None = None,
        compare_every_n_batches: int = 50,
        on_error: Literal["warn", "raise"] = "warn",
        seed: int = 0,
        tokenizer: Any = None,
        annotate: Annotate | None = None,
        explain: str | None = None,
        name: str = "Guidance",
        inform: Callable[[str], None] = inform,
    ) -> None:
        factor = 1.0 if weight is None else weight
        weights = parse_losses(loss, factor)
        swapped_share = weights.pop(SWAP, None)
        if adaptive and not weights:
            raise ValueError(f"adaptive=True scales losses, and {SWAP} has none: leave it out")
        options = dict(method_options or {})
        asked = asked_for(swap)
        if asked.warning:
            give_warning(f"{name}: {asked.warning}")
        swapped = Swap(asked.several, asked.inputs)
        self.objective = Objective(
            weights, method, options, target, first_order, find_task(task, several=True), swapped_share, swapped
        )
        self.task = task
        self.languages = Languages(tokenizer)
        self.schedule = Schedule(warmup_steps, decay)
        check_counts(every_n_batches=every_n_batches, max_samples=1 if max_samples is None else max_samples)
        if not 0 < annotated_fraction <= 1:
            raise ValueError(f"annotated_fraction must lie in (0, 1], not {annotated_fraction}")
        check_on_error(on_error)
        # Without a loss there is no gradient to bound, and none would ever be measured.
        bounded = bool(weights) and weight is None and isinstance(loss, str) and not adaptive
        self.strength = Strength(factor, bounded, adaptive, compare_every_n_batches, every_n_batches)
        self.strength.dominance.watches &= bool(weights)
        self.strength.dominance.losses = self.objective.names
        self.voice = Voice(name, inform)
        self.failed = Failures(on_error, name)
        self.batches = AnnotatedBatches(
            self.objective,
            # Before the first finding nothing is swapped.
            sparse=sparse or annotated_fraction < 1 or swapped.followed is not None,
            annotated_fraction=annotated_fraction,
            max_samples=max_samples,
            batch_adapter=batch_adapter,
            seed=seed,
            failed=self.failed,
            annotate=annotate,
            explain=explain,
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
        self.worked = self.goes_on = False
        self._part = None
        self._asked = False
        self.voice.start_over()
        self.failed.count = 0
        self.strength.start_over()
        self.batches.start_over()
        self._guided = False
        if self.objective.swap.followed:
            self.objective.swap.followed.start_over()

    def listen_to(self, part: nn.Module) -> None:
        """Guide a part of the model from the next step on: the user's step calls it without the model's own forward.

        Args:
            part: The only one that is given the samples of a batch.
        """
        self._part = part
        self.voice.say(f"the training step calls its {type(part).__name__} itself, which is guided from now on")

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
        if progress.batch % self.strength.every_n_batches:
            return None
        if not (self.worked or self._asked):
            self._asked = True
            if not self.objective.swap.is_default:
                self.voice.say(f"samples swap {self.objective.swap.title}")
            if self.objective.swaps and isinstance(self.task, OneLabel):
                self.voice.say(
                    "a swap by one label moves the evidence of the others away from theirs: task=lrptrain.EachLabel() "
                    "leaves the evidence of each where it is"
                )
            # A model may say that it is none of classes. Only before its first step: those of transformers note in
            # their first forward pass with labels what the labels look like.
            find_task(self.task, model, several=True)
        swap = self.objective.swap
        swap.takes_mask = takes(self._part or model, "attention_mask")
        if swap.followed:
            self._follow(swap.followed, trained)
        columns, rows = self.batches.read(batch, self.worked, partial(self.languages.of, trained))
        swap.language = self.batches.language
        if swap.followed and swap.needs_annotation and not columns.keys() & set(ANNOTATIONS):
            self.voice.say_once(
                "what the monitor has found lies outside of annotations; batches without any are not swapped", "lacking"
            )
        return GuidedStep(self, self._part or model, trained, batch, columns, rows, progress, processes)

    def _follow(self, followed: FollowedCues, trained: nn.Module) -> None:
        """Swap what the run's own monitor has found by now, too, and say so.

        All processes of a monitor come to the same findings, so that they swap alike.

        Raises:
            ValueError: If no monitor watches the model.
        """
        followed.restore(partial(self.languages.of, trained))
        known = follow_known(trained)
        if known is None:
            raise ValueError(
                f"swap={FINDINGS!r} swaps what a monitor of the same run finds, and none watches this model: add "
                "RelevanceMonitor() (or lrptrain.Monitor, before the first step), or pass findings of an earlier run"
            )
        news = followed.follow(known)
        if news:
            self.voice.say(news)

    def mention_distance(self, distance: float) -> None:
        """Say once if a guidance that the task's gradient bounds leaves answers that change with what is swapped.

        Args:
            distance: The swap distance, in [0, 1], at a comparison after the first step.
        """
        if self.strength.bounded and distance > LEAST_EFFECT:
            self.voice.say_once(
                f"answers still change by {distance:.0%} when samples swap {self.objective.swap.title} "
                "(guidance/swap_distance). If that does not fall, train longer, or with loss='swap' or weight=10",
                "distance",
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
        followed = self.objective.swap.followed
        return {
            **self.strength.state_dict(),
            "skipped": self.skipped,
            "failures": self.failures,
            "worked": self.worked,
            "followed": None if followed is None else followed.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.strength.load_state_dict(state_dict)
        self.skipped = state_dict["skipped"]
        self.worked = state_dict["worked"]
        self.failed.count = state_dict["failures"]
        followed = state_dict.get("followed")  # checkpoints of earlier versions have none
        if followed is not None and self.objective.swap.followed:
            self.objective.swap.followed.load_state_dict(followed)


class Languages:
    """Finds out how the texts of a model are made up, with the names of their tokens where anybody knows them.

    Args:
        tokenizer: What the user says that reads the texts.

    Attributes:
        sources: Returns who is asked for the tokenizer beside the model, where the user names none.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.sources: Callable[[], NameSources] = tuple

    def of(self, trained: nn.Module) -> Language:
        """Return how the texts of a model are made up."""
        tokenizer = find_tokenizer(self._tokenizer, [*self.sources(), trained])
        return Language(find_tokens(tokenizer, []), text_form(tokenizer, trained), tokenizer is not None)


def _all_finite(gradients: list[Tensor]) -> bool:
    return bool(torch.stack(torch._foreach_norm(gradients)).isfinite().all())
