"""Which weights an evaluation is of: a fingerprint tells them from others, and from those that training keeps."""

import hashlib
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lrptrain.loggers.timeline import Moment
from lrptrain.relevance.sharding.shards import is_shard, is_sharded, without_strategy
from lrptrain.relevance.tape.nodes import version_of

# Numbers of any kind are summed as the integers that their bits are: exact, whatever the order of the sum.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprint(model: nn.Module) -> str:
    """Return what tells a model's parameters and buffers from others: the same text for the same bits.

    It is a hash of the sum of each tensor's bits, modulo 2**64. A training step changes it; moving the model to another
    device does not. A sum does not see the order of its terms. Of a sharded model it is that of this process's shards.
    """
    by_device: dict[torch.device, list[Tensor]] = {}
    # A validation leaves some parameters whole, and the step behind it does not: their shards are there in either case.
    with without_strategy(model) if is_sharded(model) else nullcontext():
        for each in chain(model.parameters(), model.buffers()):
            if not (is_lazy(each) or each.is_meta):
                bits = _sum_of_bits(each)
                by_device.setdefault(bits.device, []).append(bits)
    sums = [torch.stack(each).tolist() for each in by_device.values()]  # each device is waited for once
    return hashlib.blake2b(repr(sums).encode(), digest_size=8).hexdigest()


def _sum_of_bits(tensor: Tensor) -> Tensor:
    """Return the sum of a tensor's bits, read as integers: a number on its device."""
    local: Tensor = tensor.to_local() if is_shard(tensor) else tensor  # type: ignore[attr-defined]
    try:
        numbers = torch.view_as_real(local.detach()) if local.is_complex() else local.detach()
        numbers = numbers.contiguous().flatten()  # whatever its strides: those of a copy may be others
        size = numbers.element_size()
        # Read by eight bytes where that comes out even: 25 million float32 in 4 ms, by four bytes in 100 ms.
        if numbers.numel() * size % 8 == 0:
            numbers = numbers if numbers.storage_offset() * size % 8 == 0 else numbers.clone()
            size = 8
        return numbers.view(_INTEGERS[size]).sum(dtype=torch.int64)
    except (RuntimeError, TypeError, KeyError):
        # Numbers that cannot be read like this, such as quantized ones: a step or a loading writes them.
        return torch.tensor(version_of(local))


@dataclass
class WeightsWatch:
    """Knows of which validation weights are, and of which weights the last evaluation was.

    Attributes:
        moments: Epoch and step of the last validation of the weights of a fingerprint.
        tried: The fingerprint and the number of samples of the last evaluation, which may have failed; None before it.
        evaluated: The same of the last evaluation that did not fail.
        kept: The fingerprint of the weights that training has left; None before its end, or if they could not be had.
    """

    moments: dict[str, Moment] = field(default_factory=dict)
    tried: tuple[str, int] | None = None
    evaluated: tuple[str, int] | None = None
    kept: str | None = None

    def is_decided(self, weights: str, samples: int) -> bool:
        """Return whether the last evaluation was of these weights, and of as many samples; it may have failed."""
        return self.tried is not None and self.tried[0] == weights and self.tried[1] >= samples

    @property
    def moment(self) -> Moment | None:
        """Of which validation the weights of the last evaluation are; None if of none."""
        return None if self.evaluated is None else self.moments.get(self.evaluated[0])

    @property
    def evaluated_kept(self) -> bool:
        """Whether the last evaluation that did not fail is of the weights that training has left."""
        return self.kept is not None and self.evaluated is not None and self.evaluated[0] == self.kept

    @property
    def judged_kept(self) -> bool:
        """Whether the last evaluation is of the weights that training has left, and did not fail."""
        return self.evaluated_kept and self.evaluated == self.tried

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues."""
        return {"moments": dict(self.moments), "tried": self.tried, "evaluated": self.evaluated}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a run; checkpoints of earlier versions hold nothing of this."""
        self.moments = {weights: (moment[0], moment[1]) for weights, moment in state.get("moments", {}).items()}
        self.tried, self.evaluated = (
            None if each is None else (each[0], each[1]) for each in (state.get("tried"), state.get("evaluated"))
        )
