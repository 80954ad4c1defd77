"""Names and families of torch functions, so that one rule serves every spelling of an operation."""

from collections.abc import Callable
from typing import Any

# The output's entries are copies of the input's entries: relevance follows them.
ENTRIES = frozenset(
    """reshape view view_as reshape_as flatten unflatten ravel permute transpose swapaxes swapdims movedim moveaxis t T mT
    unbind chunk split split_with_sizes tensor_split select narrow getitem squeeze unsqueeze expand expand_as broadcast_to
    repeat repeat_interleave tile cat concat concatenate stack roll flip rot90 index_select gather take_along_dim
    pad constant_pad_nd unfold""".split()
)
# One input, same shape: relevance passes unchanged.
ELEMENTWISE = frozenset(
    """softmax layer_norm rms_norm group_norm batch_norm native_layer_norm gelu relu relu6 silu elu selu leaky_relu mish
    softplus hardswish tanh sigmoid hardtanh dropout alpha_dropout dropout1d dropout2d feature_dropout
    contiguous clone detach data to type type_as float double half bfloat16 cuda cpu requires_grad
    neg clamp clip nan_to_num identity""".split()
)
NORMALISATIONS = frozenset("layer_norm rms_norm group_norm batch_norm native_layer_norm".split())
# Outputs that depend on the input's shape or type only.
CONSTANT = frozenset(
    """zeros_like ones_like empty_like full_like rand_like randn_like new_zeros new_ones new_empty new_full new_tensor
    grad""".split()
)
AFFINE = frozenset("linear conv1d conv2d conv3d".split())
PRODUCTS = frozenset("matmul bmm mm einsum".split())
AVERAGES = frozenset("mean sum".split())
COMPOSITE = frozenset({"multi_head_attention_forward"})

_SPELLINGS = {
    "truediv": "div",
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "rmatmul": "matmul",
}
_ALIASED = frozenset("add sub mul truediv matmul pow".split())


def canonical_name(function: Callable) -> str:
    """Give one name to every spelling of an operation: `x + y`, `x += y`, `torch.add` and `x.add_` are all "add"."""
    name = getattr(function, "__name__", type(function).__name__)
    if name == "__get__":
        name = function.__self__.__name__  # type: ignore[attr-defined]
    name = name.strip("_")
    if name not in _SPELLINGS and name[:1] in ("i", "r") and name[1:] in _ALIASED:
        name = name[1:]
    return _SPELLINGS.get(name, name)


def is_in_place(function: Callable, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Tell whether a call writes into its first argument."""
    name = getattr(function, "__name__", "")
    augmented = name.startswith("__i") and name.endswith("__") and name[3:-2] in _ALIASED | {"floordiv", "and", "or"}
    trailing = name.endswith("_") and not name.endswith("__")
    return (
        augmented
        or trailing
        or name == "__setitem__"
        or kwargs.get("inplace") is True
        or _positional_inplace(name, args)
    )


def _positional_inplace(name: str, args: tuple) -> bool:
    """F.relu(x, True) and F.dropout(x, p, training, True) pass the flag by position."""
    place = {"relu": 1, "relu6": 1, "silu": 1, "elu": 2, "dropout": 3, "hardswish": 1}.get(name)
    return place is not None and len(args) > place and args[place] is True
