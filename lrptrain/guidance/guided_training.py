"""Guidance of a training, whoever runs its loop: what a trainer hands in is each step, and where it stands."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from lrptrain.batch.call import takes
from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.batch.task import OneLabel, find_task
from lrptrain.cues.followed import follow_known
from lrptrain.cues.text_form import text_form
from lrptrain.cues.texts import Language
from lrptrain.guidance.annotated_batches import AnnotatedBatches
from lrptrain.guidance.followed_cues import FollowedCues
from lrptrain.guidance.guided_step import GuidedStep, Progress
from lrptrain.guidance.losses import MapSettings
from lrptrain.guidance.objective import SWAP, Objective, parse_losses
from lrptrain.guidance.options import GuidanceOptions
from lrptrain.guidance.state import GuidanceMessages, GuidanceState
from lrptrain.guidance.strength import Strength
from lrptrain.guidance.swap import Swap
from lrptrain.guidance.swap_names import FINDINGS, asked_for
from lrptrain.terminal import give_warning
from lrptrain.trainers.failures import Failures
from lrptrain.trainers.messages import inform
from lrptrain.trainers.naming import NameSources, find_tokenizer, find_tokens
from lrptrain.trainers.processes import Processes


class GuidedTraining:
    """Guides one step of a training after another; it knows no trainer.

    Args:
        name: What messages to the user call the guidance.
        inform: Says something to the user, in the first process.

    Attributes:
        state: What the steps share.
        batches: Makes the batches ready.
        name_sources: Returns who is asked for the tokenizer beside the model, where the user names none.

    Raises:
        ValueError: If an option is wrong.
    """

    def __init__(
        self, options: GuidanceOptions, name: str = "Guidance", inform: Callable[[str], None] = inform
    ) -> None:
        objective = _objective(options, name)
        # Without a loss there is no gradient to bound, and none would ever be measured.
        bounded = bool(objective.weights) and options.is_bounded
        strength = Strength(bounded, options.compare_every_n_batches)
        self.state = GuidanceState(
            options, objective, strength, Failures(options.on_error, name), GuidanceMessages(name, inform)
        )
        self.batches = AnnotatedBatches(self.state)
        self.name_sources: Callable[[], NameSources] = tuple
        self._is_checked = False

    @property
    def values(self) -> dict[str, float]:
        """What the last batch measured, by the names that it is logged under."""
        return self.state.values

    @property
    def failures(self) -> int:
        """How often the guidance failed."""
        return self.state.failed.count

    @property
    def skipped(self) -> int:
        """How often a loss or a gradient was not finite."""
        return self.state.skipped

    @property
    def left_out(self) -> int:
        """How often a sample went unguided for its values: pixels that are not finite, a mask of other values."""
        return self.state.left_out

    def start_over(self) -> None:
        """Forget an earlier training."""
        self.state.start_over()
        self.batches.start_over()
        self._is_checked = False

    def begin(
        self, model: nn.Module, trained: nn.Module, batch: Any, progress: Progress, processes: Processes
    ) -> GuidedStep:
        """Begin the step of a batch.

        What is decided here is decided alike in all processes, or a collective would wait for ever: it follows the
        index of the batch and the state, which are the same in all of them.
        """
        if not (self.state.worked or self._is_checked):
            self._is_checked = True
            self._check_task(model)
        listened = self.state.part or model
        swap = self.state.objective.swap
        swap.takes_mask = takes(listened, "attention_mask")
        language = partial(self._language_of, trained)
        if swap.followed:
            swap.followed.restore(language)
            self._follow(swap.followed, trained)
        ready = self.batches.read(batch, language)
        swap.language = self.batches.language
        if swap.followed and swap.needs_annotation and not ready.columns.keys() & set(ANNOTATIONS):
            self.state.messages.inform_once(
                "what the monitor has found lies outside of annotations; batches without any are not swapped", "lacking"
            )
        return GuidedStep(self.state, listened, trained, ready, progress, processes)

    def _check_task(self, model: nn.Module) -> None:
        """Say what is swapped, and reject a model that says before its first step that it is no classifier."""
        objective, task = self.state.objective, self.state.options.task
        if not objective.swap.is_default:
            self.state.messages.inform(f"samples swap {objective.swap.title}")
        if objective.swaps and isinstance(task, OneLabel):
            self.state.messages.inform(
                "a swap by one label moves the evidence of the others away from theirs: task=lrptrain.EachLabel() "
                "leaves the evidence of each where it is"
            )
        find_task(task, model, several=True)

    def _follow(self, followed: FollowedCues, trained: nn.Module) -> None:
        """Swap what the run's own monitor has found by now, too, alike in all processes, and report it."""
        known = follow_known(trained)
        if known is None:
            raise ValueError(
                f"swap={FINDINGS!r} swaps what a monitor of the same run finds, and none watches this model: add "
                "RelevanceMonitor() (or lrptrain.Monitor, before the first step), or pass findings of an earlier run"
            )
        news = followed.follow(known)
        if news:
            self.state.messages.inform(news)

    def _language_of(self, trained: nn.Module) -> Language:
        """Return how the texts of a model are made up, with the names of their tokens where anybody knows them."""
        tokenizer = find_tokenizer(self.state.options.tokenizer, [*self.name_sources(), trained])
        return Language(find_tokens(tokenizer, []), text_form(tokenizer, trained), tokenizer is not None)

    def drop_not_finite(self, optimizer: torch.optim.Optimizer, scaled: bool = False) -> None:
        """Drop the gradients of a guided step if one is not finite, so that the step is not taken.

        Args:
            optimizer: The optimizer that is about to step.
            scaled: Whether a GradScaler watches over it, which leaves such a step out and lowers its scale.
        """
        is_guided, self.state.is_guided = self.state.is_guided, False
        if not is_guided or scaled:
            return
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if gradients and not torch.stack(torch._foreach_norm(gradients)).isfinite().all():
            self.state.skipped += 1
            optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues."""
        followed = self.state.objective.swap.followed
        return {
            **self.state.strength.state_dict(),
            "skipped": self.skipped,
            "failures": self.failures,
            "worked": self.state.worked,
            "followed": None if followed is None else followed.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.state.strength.load_state_dict(state_dict)
        self.state.skipped = state_dict["skipped"]
        self.state.worked = state_dict["worked"]
        self.state.failed.count = state_dict["failures"]
        followed = self.state.objective.swap.followed
        if state_dict["followed"] is not None and followed:
            followed.load_state_dict(state_dict["followed"])


def _objective(options: GuidanceOptions, name: str) -> Objective:
    weights = parse_losses(options.loss, 1.0 if options.weight is None else options.weight)
    swapped_share = weights.pop(SWAP, None)
    asked = asked_for(options.swap)
    if asked.warning:
        give_warning(f"{name}: {asked.warning}")
    maps = MapSettings(options.method, dict(options.method_options or {}), options.target)
    task = find_task(options.task, several=True)
    return Objective(weights, maps, task, swapped_share, Swap(asked.several, asked.inputs))
