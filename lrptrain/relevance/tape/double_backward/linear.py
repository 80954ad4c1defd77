"""Linear layers that keep nothing of an input that can be made again: the output of a GELU, or of a layer norm.

The gradient of a weight needs the layer's input. What a GELU or a layer norm makes follows from its own input in one
pass over memory, and that input is kept for its second derivative in any case.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

# What a graph's node has that can make its output again: a function of the node, which holds what the output follows
# from. The functions of this folder set it.
AGAIN = "again"


def linear(
    x: Float[Tensor, "*tokens features"],
    weight: Float[Tensor, "outputs features"],
    bias: Float[Tensor, " outputs"] | None = None,
) -> Float[Tensor, "*tokens outputs"]:
    """Return `F.linear` of an input that `is_made_again`; the graph does not hold it."""
    pack = partial(_packed, x.untyped_storage()._cdata, x.numel(), x.grad_fn)
    with torch.autograd.graph.saved_tensors_hooks(pack, _unpacked):
        return F.linear(x, weight, bias)


def is_made_again(x: Tensor) -> bool:
    """Whether a tensor is as its function has made it, and can be made again; and nobody else packs what is kept."""
    if getattr(x.grad_fn, AGAIN, None) is None or x._version > 0 or not x.is_contiguous():
        return False
    graphs: Any = torch._C._autograd
    # The user's own way of keeping tensors (on another device, say), or that of a checkpoint, has priority.
    return bool(graphs._saved_tensors_hooks_is_enabled()) and graphs._top_saved_tensors_default_hooks(False) is None


class _Kept(NamedTuple):
    """A tensor that is kept, and how often it was written into until then."""

    tensor: Tensor
    version: int


class _MadeAgain(NamedTuple):
    """A tensor that is made again: the place in the graph that makes it, and the shape in which it was read."""

    maker: Any
    shape: torch.Size


def _packed(storage: int, entries: int, maker: Any, tensor: Tensor) -> _Kept | _MadeAgain:
    is_input = tensor.untyped_storage()._cdata == storage and tensor.numel() == entries and tensor.is_contiguous()
    return _MadeAgain(maker, tensor.shape) if is_input else _Kept(tensor, tensor._version)


def _unpacked(packed: _Kept | _MadeAgain) -> Tensor:
    if isinstance(packed, _MadeAgain):
        again: Callable[[Any], Tensor] = getattr(packed.maker, AGAIN)
        with torch.no_grad():
            return again(packed.maker).view(packed.shape)
    if packed.tensor._version != packed.version:  # torch does not look where it does not keep the tensor itself
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: a weight "
            f"{list(packed.tensor.shape)} is at version {packed.tensor._version}, expected version {packed.version}"
        )
    return packed.tensor
