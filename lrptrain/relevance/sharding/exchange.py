"""How processes hand each other the shards of weights, each at the moment when it needs them.

A gather is collective: each process must take part in each. Processes that explain need not do the same at the same
time, though: one may have a batch more, another a sample that is misread and explained twice. So every gather begins
with a question round, in which each process says which module's weights it needs, or that it needs none any more; all
take part in the gathers that anybody needs. Who is done keeps asking until all are, so that nobody waits for ever.
"""

import zlib
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from lrptrain.relevance.types import UnsupportedModelError

NONE = -1


class WeightExchange:
    """Gathers the weights of modules, which are known by their numbers."""

    def __init__(self, units: Sequence[Sequence[tuple[str, Tensor]]]) -> None:
        self._units = [[parameter for _, parameter in unit] for unit in units]
        self._group = _group([parameter for unit in self._units for parameter in unit])
        description = [(name, tuple(x.shape), str(x.dtype)) for unit in units for name, x in unit]
        self._fingerprint = zlib.crc32(repr(description).encode())
        self._device = torch.device(self._units[0][0].device_mesh.device_type)  # type: ignore[attr-defined]

    def gather(self, number: int) -> list[Tensor]:
        """Return the whole weights of a module."""
        return self._round(number)[1]

    def wait(self) -> None:
        """Take part in what other processes gather, until all wait."""
        while self._round(NONE)[0]:
            pass

    def _round(self, wanted: int) -> tuple[set[int], list[Tensor]]:
        """Ask which modules are wanted, and gather them; return their numbers, and the weights that are wanted here."""
        modules = self._asked(wanted)
        mine: list[Tensor] = []
        for number in sorted(modules):
            gathered = [parameter.full_tensor() for parameter in self._units[number]]  # type: ignore[attr-defined]
            if number == wanted:
                mine = gathered
        return modules, mine

    def _asked(self, wanted: int) -> set[int]:
        mine = torch.tensor([wanted, self._fingerprint], device=self._device)
        everybody = [torch.empty_like(mine) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(everybody, mine, group=self._group)
        questions = torch.stack(everybody).tolist()
        if any(fingerprint != self._fingerprint for _, fingerprint in questions):
            raise UnsupportedModelError(
                "the processes explain different models, or hold different layers of one (pipeline parallel?): a "
                "sharded model is explained in all processes at the same time, as it is called"
            )
        return {number for number, _ in questions} - {NONE}


def _group(shards: Sequence[Tensor]) -> dist.ProcessGroup | None:
    """The processes among which the shards lie; None for all that there are."""
    meshes = [shard.device_mesh for shard in shards]  # type: ignore[attr-defined]
    largest = max(meshes, key=lambda mesh: mesh.size())
    # Of tensor parallel below DDP, say, each replica exchanges among its own.
    alone = largest.ndim == 1 and largest.size() < dist.get_world_size() and all(mesh == largest for mesh in meshes)
    return largest.get_group() if alone else None
