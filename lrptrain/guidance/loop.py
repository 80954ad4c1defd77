"""Guidance in a training loop of one's own: plain PyTorch, accelerate or Fabric."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lrptrain.batch import model_inputs
from lrptrain.guidance.guided_step import GuidedStep, Progress
from lrptrain.guidance.guided_training import GuidedTraining
from lrptrain.guidance.options import GuidanceOptions
from lrptrain.relevance.model.preserve import preserved
from lrptrain.relevance.passes.interception import checkpoints
from lrptrain.trainers.discover import bare_model, find_model
from lrptrain.trainers.processes import torch_processes


class Guidance(GuidedTraining):
    """Adds a guidance loss to that of a training loop.

    The model is called as it is prepared, by DDP, Accelerate or Fabric. Autocast, a `GradScaler` and gradient
    accumulation need nothing else: divide the guided loss as your own. All processes call `step` equally often.

    With a fixed weight, and at the price of a forward pass, one line does: `loss = loss + guidance(model, batch)`.

    Examples:
        >>> import torch, lrptrain
        >>> batch = {"image": torch.rand(8, 1, 8, 8), "label": torch.arange(8) % 2, "mask": torch.ones(8, 8, 8)}
        >>> batch["mask"][:, :4] = 0  # the upper half should not matter
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> guidance = lrptrain.Guidance("energy", optimizer=optimizer)
        >>> with guidance.step(model, batch) as step:
        ...     loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        ...     step.guided(loss).backward()
        >>> optimizer.step()
        >>> guidance.values["guidance/samples"]
        8.0

    Args:
        loss: The losses, as in `lrptrain.guidance.GuidanceOptions`.
        weight: A factor for all losses. By default as large as the task's gradient allows.
        optimizer: The optimizer: a guided step whose gradient is not finite is left out. Without it none is.
        model: The attribute path of the network on the module that `step` is given, where the annotations belong to
            what a part of it is called with.
        options: The other ones of `lrptrain.guidance.GuidanceOptions`.

    Attributes:
        values: What the last guided batch measured, by the names that `RelevanceGuidance` logs it under.

    Raises:
        ValueError: At construction or in the first batch, with what to change.
    """

    def __init__(
        self,
        loss: str | Mapping[str, float],
        weight: float | None = None,
        *,
        optimizer: Optimizer | None = None,
        model: str | None = None,
        **options: Any,
    ) -> None:
        self._optimizer = None if optimizer is None else _innermost(optimizer)
        self._model_path = model
        self._batches = 0
        self._steps = 0
        super().__init__(GuidanceOptions(loss, weight, **options))
        if self._optimizer is not None:
            self._optimizer.register_step_pre_hook(self._before_optimizer_step)
            self._optimizer.register_step_post_hook(self._after_optimizer_step)

    def step(self, model: nn.Module, batch: Any) -> "LoopStep":
        """Return a guided training step, `with guidance.step(model, batch) as step`, which listens to the model.

        Args:
            model: The model that is trained, as the loop calls it.
            batch: The batch, with its annotations.
        """
        return LoopStep(self._begin(model, batch))

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the guidance alone, on a forward pass of its own: what to add to the loss of the task.

        Raises:
            ValueError: If it swaps, has no weight of its own, or the model computes its blocks again: see `step`.
        """
        if self.state.objective.swaps:
            raise ValueError(
                "swap changes what your own step gives the model, which a call with model and batch does not see: "
                "write `with guidance.step(model, batch) as step: ...` and step.guided(loss)"
            )
        if self.state.strength.bounded:
            raise ValueError(
                "without a weight the task's gradient scales the guidance, which a call with model and batch does not "
                "know: pass weight=, or write `with guidance.step(model, batch) as step: ...` and step.guided(loss)"
            )
        if checkpoints(model):
            raise ValueError(
                "a model that computes its blocks again in the backward pass must do so as they were recorded: write "
                "`with guidance.step(model, batch) as step: ...` with step.guided(loss).backward() inside"
            )
        step = self._begin(model, batch)
        with step.listening(), preserved(step.model):
            # Not through the wrappers: DDP counts the calls of a step, and synchronises the gradients of all at once.
            if step.samples:
                inputs = model_inputs(step.model, step.batch.columns)
                step.model(**inputs) if isinstance(inputs, dict) else step.model(inputs)
        loss = step.guided(torch.zeros((), device=next(model.parameters()).device))
        self.state.values.pop("guidance/norm_ratio", None)  # there is no task beside it
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues."""
        return {**super().state_dict(), "batches": self._batches, "steps": self._steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        super().load_state_dict(state_dict)
        self._batches = state_dict["batches"]
        self._steps = state_dict["steps"]

    def _begin(self, model: nn.Module, batch: Any) -> GuidedStep:
        inner = bare_model(model)
        listened = inner if self._model_path is None else find_model(inner, self._model_path)
        progress = Progress(self._batches, self._batches if self._optimizer is None else self._steps)
        self._batches += 1
        return self.begin(listened, model, batch, progress, torch_processes())

    def _before_optimizer_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self.drop_not_finite(optimizer)

    def _after_optimizer_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._steps += 1


class LoopStep:
    """A guided step of a loop."""

    def __init__(self, step: GuidedStep) -> None:
        self._step = step
        self._listening = ExitStack()
        self._replaying = ExitStack()
        self._ended = False

    def __enter__(self) -> "LoopStep":
        """Listen to the model from here on."""
        self._listening.enter_context(self._step.listening())
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the model as it was."""
        self._ended = True
        self._replaying.close()
        self._listening.close()

    def guided(self, loss: Tensor, share: float = 1.0) -> Tensor:
        """Return the loss of the task plus the guidance.

        Args:
            loss: The loss of the task.
            share: A factor of the guidance that the loss has already: 1 / n, if the losses of n batches are summed.
        """
        self._listening.close()
        guided = self._step.guided(loss, share)
        if not self._ended:
            self._replaying.enter_context(self._step.replaying())
        elif self._step.replay is not None and checkpoints(self._step.model):
            raise ValueError(
                "the model computes its blocks again in the backward pass, and must do so as they were recorded: call "
                "step.guided(loss).backward() inside of `with guidance.step(model, batch) as step`"
            )
        return guided


def _innermost(optimizer: Any) -> Optimizer:
    """Return the optimizer that steps, out of what accelerate and Fabric wrap it in."""
    while isinstance(getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = optimizer.optimizer
    return optimizer
