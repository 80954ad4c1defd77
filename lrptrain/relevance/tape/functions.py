"""Names and families of torch functions, so that one rule serves every spelling of an operation."""

import types
from collections.abc import Callable
from typing import Any

# The output's entries are copies of the input's entries: relevance follows them.
ENTRIES = frozenset({
    "reshape", "view", "view_as", "reshape_as", "flatten", "unflatten", "ravel", "permute", "transpose", "swapaxes",
    "swapdims", "movedim", "moveaxis", "t", "T", "mT", "unbind", "chunk", "split", "split_with_sizes", "tensor_split",
    "select", "narrow", "getitem", "squeeze", "unsqueeze", "expand", "expand_as", "broadcast_to", "repeat",
    "repeat_interleave", "tile", "cat", "concat", "concatenate", "stack", "roll", "flip", "rot90", "index_select",
    "gather", "take_along_dim", "pad", "constant_pad_nd", "unfold",
})  # fmt: skip
# One input, same shape: relevance passes unchanged.
ELEMENTWISE = frozenset({
    "softmax", "layer_norm", "rms_norm", "group_norm", "batch_norm", "native_layer_norm", "gelu", "relu", "relu6",
    "silu", "elu", "selu", "leaky_relu", "mish", "softplus", "hardswish", "tanh", "sigmoid", "hardtanh", "dropout",
    "alpha_dropout", "dropout1d", "dropout2d", "feature_dropout", "contiguous", "clone", "detach", "data", "to",
    "type", "type_as", "float", "double", "half", "bfloat16", "cuda", "cpu", "neg", "clamp", "clip", "nan_to_num",
    "identity", "pointwise",
})  # fmt: skip
# The same numbers in another place or precision.
CAST = frozenset({
    "to", "type", "type_as", "float", "double", "half", "bfloat16", "contiguous", "clone", "cuda", "cpu",
})  # fmt: skip
# Outputs that depend on the input's shape or type only.
CONSTANT = frozenset({
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones",
    "new_empty", "new_full", "new_tensor", "grad",
})  # fmt: skip
# Worth less memory than time: made once more from their input where they are needed.
REPEATABLE = frozenset({"layer_norm", "rms_norm", "group_norm", "gelu", "silu", "relu", "tanh", "sigmoid"})
# Operations that keep their input for the gradient of their weight.
WEIGHTED = frozenset({"linear", "conv1d", "conv2d", "conv3d", "matmul", "mm"})
COMPOSITE = frozenset({"multi_head_attention_forward", "normalize"})
# They may run checkpointed blocks again.
BACKWARD = frozenset({"grad", "backward"})

_SPELLINGS = {
    "truediv": "div",
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
}
_ALIASED = frozenset({"add", "sub", "mul", "truediv", "pow", "matmul"})
# Position of the flag `inplace`, for functions that take it by position.
_INPLACE_AT = {
    "relu": 1, "relu6": 1, "silu": 1, "selu": 1, "mish": 1, "hardswish": 1, "hardsigmoid": 1, "elu": 2, "celu": 2,
    "leaky_relu": 2, "hardtanh": 3, "threshold": 3, "dropout": 3, "alpha_dropout": 3, "dropout1d": 3, "dropout2d": 3,
    "dropout3d": 3, "feature_alpha_dropout": 3, "rrelu": 4,
}  # fmt: skip


def canonical_name(function: Callable) -> str:
    """Give one name to every spelling of an operation: `x + y`, `x += y`, `torch.add` and `x.add_` are all "add".

    `constant / x` and `constant @ x` keep names of their own: they are no linear functions of their first argument.
    """
    name = getattr(function, "__name__", type(function).__name__)
    if name == "__get__":
        name = function.__self__.__name__  # type: ignore[attr-defined]
    augmented = name.startswith(("__i", "__r"))
    name = name.strip("_")
    if augmented and name[1:] in _ALIASED and name != "rmatmul":
        name = name[1:]
    return _SPELLINGS.get(name, name)


def is_in_place(function: Callable, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Tell whether a call writes into its first argument."""
    name = getattr(function, "__name__", "")
    augmented = name.startswith("__i") and name[3:-2] in _ALIASED | {"floordiv", "and", "or"}
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
    place = _INPLACE_AT.get(name)
    return place is not None and len(args) > place and args[place] is True


def enterable(function: Any) -> Callable:
    """A Python function of torch whose body runs under the mode, instead of arriving there as one call."""
    blind = {name: _says_no for name in function.__globals__ if name.startswith("has_torch_function")}
    code, defaults, closure = function.__code__, function.__defaults__, function.__closure__
    entered = types.FunctionType(code, {**function.__globals__, **blind}, function.__name__, defaults, closure)
    entered.__kwdefaults__ = function.__kwdefaults__
    return entered


def _says_no(*_: Any) -> bool:
    return False
