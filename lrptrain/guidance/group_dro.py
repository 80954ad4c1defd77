"""Group DRO: the group that the model is worst at counts most, which needs to be told the groups.

Sagawa et al. 2020, "Distributionally robust neural networks for group shifts", algorithm 1.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.batch import BatchAdapter, batch_length, read_batch
from lrptrain.batch.forms import as_mapping
from lrptrain.guidance.guided_step import Progress
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.passes.interception import InterceptedForward, intercepted
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.tape.tape import Tape
from lrptrain.trainers.checks import check_counts
from lrptrain.trainers.discover import choice_of_parts
from lrptrain.trainers.processes import Processes, torch_processes

SampleLoss = Callable[[Float[Tensor, "batch classes"], Int[Tensor, " batch"]], Float[Tensor, " batch"]]
GroupOf = str | Callable[[Any], Any]
TOLERANCES = {torch.float16: 0.05, torch.bfloat16: 0.05}
"""How far, relatively, the mean of the samples' losses may be from the step's own loss; 1e-3 in other types."""


class GroupDROLoss:
    """The losses of samples, as one loss in which the groups are weighted.

        robust = lrptrain.GroupDROLoss(groups=4)
        losses = F.cross_entropy(model(batch["image"]), batch["label"], reduction="none")
        robust(losses, batch["group"]).backward()

    Every group has a share, at first the same one. In each step the share of a group is multiplied by
    exp(`step_size` * its mean loss), all are divided by their sum, and the loss is the sum of the groups' mean losses,
    each times its share. A group that has no sample in the batch keeps its factor. Under several processes of torch's
    default group, means are those of all of them, the shares are the same in all, and the mean of the gradients, which
    DDP takes, is that of the loss over all samples.

    Within `torch.no_grad()` the shares stay as they are. A step in which a group's mean loss is not finite leaves them,
    too.

    Args:
        groups: How many groups there are: those of class and shortcut together, as a rule.
        step_size: How fast shares move.

    Attributes:
        values: Of the last step, `share_0`, ... of all groups, and `loss_0`, ... of those that had a sample.

    Raises:
        ValueError: If there is no group, or the step size is negative.
        TypeError: If `groups` is no number, such as the name of the groups' entry.
    """

    values: dict[str, float]
    _logarithms: Float[Tensor, " groups"]
    """Of the shares, on the CPU in float64: a share that has become tiny can grow again."""

    def __init__(self, groups: int, step_size: float = 0.01) -> None:
        # The number comes first, and the name of the entry is what comes to mind first.
        if not isinstance(groups, int):
            raise TypeError(f"groups is the number of groups, not {groups!r}; what tells a sample's group is group=")
        check_counts(groups=groups)
        if not 0 <= step_size < math.inf:
            raise ValueError(f"step_size must not be negative, and finite, not {step_size}")
        self.groups = groups
        self.step_size = step_size
        self.start_over()

    @property
    def shares(self) -> list[float]:
        """The share of each group; they sum to 1."""
        return self._logarithms.exp().tolist()

    def start_over(self) -> None:
        """Forget an earlier training."""
        self.values = {}
        self._logarithms = torch.full((self.groups,), -math.log(self.groups), dtype=torch.float64)

    def __call__(self, losses: Float[Tensor, " batch"], group: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        """Return the weighted loss, after the shares have moved.

        Args:
            losses: One loss per sample.
            group: The group of each sample, from 0.

        Raises:
            ValueError: In all processes, if groups and losses of one of them do not fit.
        """
        processes = torch_processes()
        problem = self._problem(losses, group)
        row = self._counted(losses, group) if not problem else at_least_float32(losses).new_zeros(2, self.groups + 1)
        row[0, -1] = float(bool(problem))
        counted, totals = processes.reduced(row, "sum")
        if counted[-1]:  # in all processes, or the others would wait for this one in the next step
            raise ValueError(problem or "the groups of another process do not fit its losses")
        count = counted[:-1]
        means = torch.where(count > 0, totals[:-1] / count.clamp(min=1), 0.0)
        if torch.is_grad_enabled():
            self._move(means)
        shares = self._logarithms.exp()
        self.values = {f"share_{index}": share for index, share in enumerate(shares.tolist())}
        present = [index for index, members in enumerate(count.tolist()) if members]
        self.values |= {f"loss_{index}": means[index].item() for index in present}
        # A group of 3 samples here and 1 in another of 2 processes: each counts share * 2 / 4, and DDP halves that.
        weights = shares.to(means) * processes.size / count.clamp(min=1)
        return (weights[group.to(weights.device).long()] * losses).sum()

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues."""
        return {"logarithms": self._logarithms.tolist()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue a run; see `state_dict`.

        Raises:
            ValueError: If it had another number of groups.
        """
        logarithms = torch.tensor(state_dict["logarithms"], dtype=torch.float64)
        if len(logarithms) != self.groups:
            raise ValueError(f"the run that goes on had {len(logarithms)} groups, and this one has {self.groups}")
        self._logarithms = logarithms

    def _move(self, means: Float[Tensor, " groups"]) -> None:
        if bool(means.isfinite().all()):
            moved = self._logarithms + self.step_size * means.detach().cpu().double()
            self._logarithms = moved - moved.logsumexp(0)

    def _counted(self, losses: Tensor, group: Tensor) -> Float[Tensor, "2 groups_and_one"]:
        """Return the number of samples and the sum of losses of each group, and room for one number more."""
        values = at_least_float32(losses.detach())
        member = F.one_hot(group.to(values.device).long(), self.groups + 1).bool()
        # A loss that is not finite belongs to its own group alone, which a product with 0 would not do.
        return torch.stack([member.sum(0).to(values), torch.where(member, values[:, None], 0.0).sum(0)])

    def _problem(self, losses: Tensor, group: Any) -> str:
        """Return in a line what does not fit; "" if all does."""
        if not isinstance(group, Tensor) or group.is_floating_point() or group.ndim != 1 or losses.ndim != 1:
            return "group DRO takes one loss and one integer, the group, per sample"
        if len(group) != len(losses):
            return f"group DRO was given {len(losses)} losses and {len(group)} groups"
        beyond = group[(group < 0) | (group >= self.groups)]
        if len(beyond):
            return f"group {int(beyond[0])} is none of the {self.groups} groups, which are counted from 0: say groups="
        return ""


def cross_entropy(logits: Float[Tensor, "batch classes"], label: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """Return the cross-entropy of each sample; one logit tells two classes apart."""
    logits = at_least_float32(logits)
    if logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(logits[:, 0], label.to(logits), reduction="none")
    return F.cross_entropy(logits, label, reduction="none")


class GroupDROTraining:
    """Group DRO of a training, whoever runs its loop; the options are those of `lrptrain.callbacks.GroupDRO`.

    Attributes:
        robust: The weighted loss, with the shares of the groups.
        name: What messages to the user call it.
    """

    def __init__(
        self,
        groups: int,
        group: GroupOf = "group",
        step_size: float = 0.01,
        loss: SampleLoss | None = None,
        batch_adapter: BatchAdapter | None = None,
        name: str = "GroupDRO",
    ) -> None:
        self.robust = GroupDROLoss(groups, step_size)
        self.name = name
        self._group = group
        self._loss = loss
        self._batch_adapter = batch_adapter
        self.start_over()

    @property
    def values(self) -> dict[str, float]:
        """What was measured in the last step, by the names that it is logged under."""
        return {f"group_dro/{name}": value for name, value in self.robust.values.items()}

    def start_over(self) -> None:
        """Forget an earlier training."""
        self.robust.start_over()
        self._worked = False

    def begin(
        self, model: nn.Module, trained: nn.Module, batch: Any, progress: Progress, processes: Processes
    ) -> "GroupDROStep":
        """Begin the step of a batch.

        Args:
            model: The module that the step calls with the samples of the batch.
            trained: The module with all weights that the step may train.
            batch: The batch, as the step gets it.
            progress: Where the training stands.
            processes: The processes that take part.

        Raises:
            ValueError: If the batch lacks labels or groups.
        """
        columns = read_batch(batch, self._batch_adapter)
        label = columns.get("label")
        if not isinstance(label, Tensor) or bool((label < 0).any()):
            raise ValueError(f"{self.name} needs the label of every sample, and a batch has samples without")
        return GroupDROStep(self, model, GroupedBatch(label, self._groups_of(batch), batch_length(columns)))

    def weighted(
        self, task_loss: Tensor, logits: Float[Tensor, "batch classes"], batch: "GroupedBatch", share: float
    ) -> Tensor:
        """Return the loss of the step with the weighted losses of the samples in place of their mean.

        Args:
            task_loss: The loss of the user's step.
            logits: What the model returned.
            batch: Labels and groups.
            share: What the trainer leaves to be multiplied to a loss of one batch among several that it accumulates.

        Raises:
            ValueError: If the loss of the first step is not the mean that is weighted.
        """
        losses = (self._loss or cross_entropy)(logits, batch.label.to(logits.device))
        if losses.shape != (batch.samples,):
            raise ValueError(f"loss= must return one loss per sample, not a tensor of shape {list(losses.shape)}")
        mean = share * losses.mean()
        if self._loss is None and not self._worked:
            self._check_mean(task_loss, mean)
        self._worked = True
        # What a step adds to the mean of its samples' losses, a penalty say, stays as it is.
        return task_loss + (share * self.robust(losses, batch.group) - mean)

    def drop_not_finite(self, optimizer: torch.optim.Optimizer, scaled: bool = False) -> None:
        """Leave the gradients as they are: a loss that is not finite is the user's own."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues."""
        return {**self.robust.state_dict(), "worked": self._worked}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.robust.load_state_dict(state_dict)
        self._worked = state_dict["worked"]

    def _groups_of(self, batch: Any) -> Any:
        """Return the group of each sample of a batch.

        Raises:
            ValueError: If the batch does not hold it.
        """
        if not isinstance(self._group, str):
            group = self._group(batch)
        else:
            entries = as_mapping(batch if self._batch_adapter is None else self._batch_adapter(batch))
            if self._group not in entries:
                raise ValueError(
                    f"{self.name} finds no {self._group!r} in a batch with {list(entries)}: group= names the entry, or "
                    "is a function of the batch, as in group=lambda batch: batch[2]"
                )
            group = entries[self._group]
        group = torch.as_tensor(group)
        return group[:, 0] if group.ndim == 2 and group.shape[1] == 1 else group

    def _check_mean(self, task_loss: Tensor, mean: Tensor) -> None:
        """Reject a step whose loss is another one: its samples would be weighted by what they are not trained on.

        Raises:
            ValueError: With the way out.
        """
        step_loss = float(task_loss.detach())
        expected = float(mean.detach())
        tolerance = TOLERANCES.get(task_loss.dtype, 1e-3)
        if math.isfinite(step_loss) and abs(step_loss - expected) > tolerance * max(abs(expected), 1.0):
            raise ValueError(
                f"{self.name} weights the cross-entropy of samples, whose mean is {expected:.4g}, and the training "
                f"step returned {step_loss:.4g}: say loss=, a function of logits and labels with one loss per sample; "
                "what your step adds to their mean stays as it is"
            )


@dataclass(frozen=True)
class GroupedBatch:
    """What is read of a batch.

    Attributes:
        label: The class of each sample.
        group: The group of each sample.
        samples: How many there are.
    """

    label: Int[Tensor, " batch"]
    group: Any
    samples: int


class GroupDROStep:
    """A step of group DRO: listens to the user's own, and weights its loss; see `GuidedStep`."""

    replay: Tape | None = None
    """Blocks that are computed again in the backward pass are so as ever."""

    def __init__(self, training: GroupDROTraining, model: nn.Module, batch: GroupedBatch) -> None:
        self.model = model
        self._training = training
        self._batch = batch
        self._forwards: list[InterceptedForward] = []

    @property
    def values(self) -> dict[str, float]:
        """What the step has measured."""
        return self._training.values

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to the model during the user's step."""
        with intercepted(self.model, self._batch.samples, record=False) as forwards:
            self._forwards = forwards
            yield

    def guided(self, task_loss: Tensor, share: float = 1.0) -> Tensor:
        """Return the loss of the step in which groups are weighted.

        Args:
            task_loss: The loss of the user's step, a mean over its samples.
            share: What the trainer leaves to be multiplied to a loss of one batch among several that it accumulates.

        Raises:
            ValueError: If the model was not called, or the loss is not that of its logits.
        """
        if not self._forwards:
            raise ValueError(
                f"the training step never called {type(unwrap(self.model)).__name__} with the {self._batch.samples} "
                f"samples of its batch: say which module it calls with them, {choice_of_parts(self.model)}"
            )
        return self._training.weighted(task_loss, self._forwards[0].logits(), self._batch, share)

    def replaying(self) -> AbstractContextManager[None]:
        """Return what a backward pass runs in: nothing."""
        return nullcontext()
