"""The one table of operations: their names, whichever way a model spells them, and the families that rules serve."""

import types
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.nn import functional as F


class Activation(NamedTuple):
    """An operation on every entry of one tensor, as the engine's families need it.

    Attributes:
        inplace_at: Position of the flag `inplace` among the arguments, or None where the operation has none.
        repeats: Whether a second call gives the same numbers, so that it may be part of a written-out activation.
        recomputed: Whether its output is worth less memory than time, and is made once more where it is needed.
    """

    inplace_at: int | None = None
    repeats: bool = True
    recomputed: bool = False


# The one table of activations; every other list of them is derived from it.
ACTIVATIONS: dict[str, Activation] = {
    "gelu": Activation(recomputed=True),
    "relu": Activation(1, recomputed=True),
    "sigmoid": Activation(recomputed=True),
    "silu": Activation(1, recomputed=True),
    "tanh": Activation(recomputed=True),
    "celu": Activation(2),
    "elu": Activation(2),
    "hardshrink": Activation(),
    "hardsigmoid": Activation(1),
    "hardswish": Activation(1),
    "hardtanh": Activation(3),
    "leaky_relu": Activation(2),
    "logsigmoid": Activation(),
    "mish": Activation(1),
    "prelu": Activation(),
    "relu6": Activation(1),
    "rrelu": Activation(4, repeats=False),  # its slopes are random in training
    "selu": Activation(1),
    "softplus": Activation(),
    "softshrink": Activation(),
    "softsign": Activation(),
    "tanhshrink": Activation(),
    "threshold": Activation(3),
    "clamp": Activation(),
    "clip": Activation(),
    "neg": Activation(),
    "nan_to_num": Activation(repeats=False),
    "dropout": Activation(3, repeats=False),
    "dropout1d": Activation(3, repeats=False),
    "dropout2d": Activation(3, repeats=False),
    "dropout3d": Activation(3, repeats=False),
    "alpha_dropout": Activation(3, repeats=False),
    "feature_dropout": Activation(repeats=False),
    "feature_alpha_dropout": Activation(3, repeats=False),
}

_INPLACE_AT = {name: x.inplace_at for name, x in ACTIVATIONS.items() if x.inplace_at is not None}
# The same numbers in another place or precision.
CAST = frozenset({
    "to", "type", "type_as", "float", "double", "half", "bfloat16", "contiguous", "clone", "cuda", "cpu",
})  # fmt: skip
# The same numbers, also without their graph.
COPIES = CAST | {"detach", "data", "identity"}
# A tensor less its mean, or as it is, over its own size; `normalisation.frozen` holds the size fixed.
NORMALISATIONS = frozenset({"layer_norm", "rms_norm", "group_norm", "batch_norm"})
# One input, same shape: relevance passes unchanged. "pointwise" is an activation that the model writes out.
ELEMENTWISE = ACTIVATIONS.keys() | COPIES | NORMALISATIONS | {"softmax", "native_layer_norm", "pointwise"} | {
    "abs", "exp", "expm1", "log", "log1p", "sqrt", "square", "pow", "rpow", "erf", "sin", "cos", "atan", "clamp_min",
    "clamp_max",
}  # fmt: skip
# One over something: a product with it is a quotient, of which the denominator is held fixed.
INVERSES = frozenset({"rsqrt", "reciprocal", "rdiv"})
# Elementary functions of which models write activations.
POINTWISE = {name for name, activation in ACTIVATIONS.items() if activation.repeats} | CAST | {
    "abs", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "square", "erf", "sin", "cos", "atan",
    "clamp_min", "clamp_max", "rpow",
}  # fmt: skip
# The output's entries are copies of the input's entries: relevance follows them.
ENTRIES = frozenset({
    "reshape", "view", "view_as", "reshape_as", "flatten", "unflatten", "ravel", "permute", "transpose", "swapaxes",
    "swapdims", "movedim", "moveaxis", "t", "T", "mT", "unbind", "chunk", "split", "split_with_sizes", "tensor_split",
    "select", "narrow", "slice", "getitem", "squeeze", "unsqueeze", "expand", "expand_as", "broadcast_to", "repeat",
    "repeat_interleave", "tile", "cat", "concat", "concatenate", "stack", "roll", "flip", "rot90", "index_select",
    "gather", "take_along_dim", "pad", "constant_pad_nd", "unfold", "pixel_shuffle", "pixel_unshuffle",
    "channel_shuffle", "fliplr", "flipud", "hstack", "vstack", "diagonal", "topk", "sort", "copy", "fill",
    "write_through", "take",
})  # fmt: skip
# Those of them that change the order of axes, and nothing else.
TRANSPOSITIONS = frozenset({"permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "mT"})
# Those of them that keep every entry at its place in reading order.
RESHAPES = frozenset({
    "reshape", "view", "view_as", "reshape_as", "flatten", "unflatten", "ravel", "squeeze", "unsqueeze",
})  # fmt: skip
# Those of them that choose entries along an axis by their size, and the position and name of that argument.
CHOOSING: dict[str, tuple[int, str]] = {"topk": (2, "dim"), "sort": (1, "dim")}
# The output's entries are copies of one of two inputs' entries: of what was there, or of what was written over it.
WRITTEN = frozenset({"setitem", "scatter", "index_copy"})
# So they do, or add to what was there if they are told to accumulate.
SUMS = frozenset({"add", "sub", "rsub"})
PUTS = frozenset({"put", "index_put"})
# They add entries to others where indices say.
ADDING = frozenset({"index_add", "scatter_add"})
# Linear layers and convolutions: a weight that does not depend on the input.
DENSE = frozenset({
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
})  # fmt: skip
# Products of two tensors, of which one may be a weight.
PRODUCTS = frozenset({"matmul", "bmm", "mm", "einsum"})
# Operations that keep their input for the gradient of their weight.
WEIGHTED = DENSE | {"matmul", "mm"}
AVERAGES = frozenset({f"{kind}avg_pool{n}d" for kind in ("", "adaptive_") for n in (1, 2, 3)})
MAXIMA = frozenset(
    {f"{kind}max_pool{n}d" for kind in ("", "adaptive_") for n in (1, 2, 3)}
    | {"max", "amax", "maximum", "min", "amin", "minimum"}
)
# Sums of entries with fixed weights: every entry of the output is a mean or a sum of some. The weights are not
# negative, but for those of a bicubic interpolation and of `index_add(..., alpha=-1)`.
MIXTURES = ADDING | {"interpolate", "upsample", "fold", "cumsum"}
# Sizes along axes, which grow as their input does: |c x| = c |x|.
SIZES = frozenset({"norm", "vector_norm", "linalg_vector_norm", "linalg_norm", "std"})
# They mix what is along an axis, which must not be that of the samples.
ALONG = SIZES | {"cumsum"}
# Outputs that depend on the input's shape or type only.
CONSTANT = frozenset({
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones",
    "new_empty", "new_full", "new_tensor", "grad",
})  # fmt: skip
# Of whole numbers: each result is made of one number, where the other arguments are constants.
HASHING = frozenset({
    "add", "sub", "rsub", "mul", "mod", "remainder", "fmod", "floordiv", "floor_divide", "xor", "bitwise_xor", "to",
    "long", "int", "clone", "contiguous",
})  # fmt: skip
# In place, they read nothing of what was there.
OVERWRITING = frozenset({"copy", "fill", "zero"})
# Of their second tensor they read type or shape only.
OF_FIRST = frozenset({"type_as", "view_as", "reshape_as", "expand_as"})
# A second argument, if there is one, gives a type or a shape only.
AS_ANOTHER = OF_FIRST | {"to"}
# The same numbers without their graph, by what they are for.
DETACHING = CONSTANT | {"detach", "data", "tensor", "as_tensor", "asarray"}
# Worth less memory than time: made once more from their input where they are needed.
REPEATABLE = frozenset(name for name, activation in ACTIVATIONS.items() if activation.recomputed) | {
    "layer_norm",
    "rms_norm",
    "group_norm",
}
# What is asked of a tensor without reading a number of it; the answer is no tensor.
QUESTIONS = frozenset({
    "shape", "size", "dim", "ndim", "ndimension", "numel", "nelement", "stride", "storage_offset", "element_size",
    "device", "get_device", "dtype", "layout", "len", "is_floating_point", "is_complex", "is_signed", "is_contiguous",
    "is_nested", "is_sparse", "is_quantized", "is_cuda", "is_cpu", "is_meta",
})  # fmt: skip
# Python functions of torch whose body is recorded in their place.
DECOMPOSED = frozenset({"multi_head_attention_forward", "normalize", "softmin"})
# They may run checkpointed blocks again.
BACKWARD = frozenset({"grad", "backward"})

# Attention whose scores the caller changes one by one; scaled_dot_product_attention takes the same masks.
FLEX_ATTENTION = "flex_attention"
# What hands the numbers of a tensor out: to numpy, DLPack, lists. A single number (`item`) is for control flow.
EXPORTS = frozenset({"numpy", "array", "array_wrap", "dlpack", "tolist"})
# What refuses a tensor with a graph, or warns of it. The graph is the tape's: the model's own call may have none.
_WITHOUT_GRAPH = frozenset({"numpy", "__array__", "__dlpack__", "__float__", "__int__", "__complex__", "__index__"})

_SPELLINGS = {
    "truediv": "div",
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "log_sigmoid": "logsigmoid",
    "special_expit": "sigmoid",
    "special_softmax": "softmax",
}
_COMMUTATIVE = frozenset({"add", "mul"})
_ALIASED = frozenset({"add", "sub", "mul", "truediv", "pow", "matmul"})
FUNCTIONS = 1024  # of so many the names are remembered: a model has some hundred


@lru_cache(FUNCTIONS)
def canonical_name(function: Callable[..., Any]) -> str:
    """Give one name to every spelling of an operation: `x + y`, `x += y`, `torch.add` and `x.add_` are all "add".

    `constant / x`, `constant - x`, `constant ** x` and `constant @ x` keep names of their own ("rdiv", "rsub"): they
    are other functions of their first argument. The name of an overload is that of the operation: `aten.add.Tensor`.
    """
    # An operation of `torch.ops` names its overload, too: "add.Tensor".
    name = getattr(function, "__name__", type(function).__name__).partition(".")[0]
    if name == "__get__":
        name = function.__self__.__name__  # type: ignore[attr-defined]
    augmented = name.startswith("__i")
    reflected = name.startswith("__r")
    name = name.partition(".")[0].strip("_")
    if (augmented and name[1:] in _ALIASED) or (reflected and name[1:] in _COMMUTATIVE):
        name = name[1:]
    return _SPELLINGS.get(name, name)


def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, *settings: Any) -> tuple[Any, ...]:
    training, momentum, epsilon, *_ = settings
    return x, mean, var, weight, bias, training, momentum, epsilon


def _instance_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, *settings: Any) -> tuple[Any, ...]:
    use_input_stats, momentum, epsilon, *_ = settings
    return x, mean, var, weight, bias, use_input_stats, momentum, epsilon


def _embedding(weight: Any, indices: Any, *settings: Any) -> tuple[Any, ...]:
    padding = settings[0] if settings and settings[0] >= 0 else None
    return indices, weight, padding


# Functions of C++ of which the Python function of the same name takes the same arguments in another order.
REORDERED: dict[Any, tuple[Callable[..., Any], Callable[..., tuple[Any, ...]]]] = {
    torch.batch_norm: (F.batch_norm, _batch_norm),
    torch.ops.aten.batch_norm.default: (F.batch_norm, _batch_norm),
    torch.instance_norm: (F.instance_norm, _instance_norm),
    torch.ops.aten.instance_norm.default: (F.instance_norm, _instance_norm),
    torch.embedding: (F.embedding, _embedding),
    torch.ops.aten.embedding.default: (F.embedding, _embedding),
}


def as_python(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The call of `torch.nn.functional` that a call of a function in `REORDERED` is."""
    python, reorder = REORDERED[function]
    return python, reorder(*args)


def is_in_place(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether a call writes into its first argument.

    F.relu(x, True) and F.dropout(x, p, training, True) pass the flag by position.
    """
    if _is_named_in_place(function) or kwargs.get("inplace") is True:
        return True
    position = _INPLACE_AT.get(canonical_name(function))
    return position is not None and len(args) > position and args[position] is True


@lru_cache(FUNCTIONS)
def _is_named_in_place(function: Callable[..., Any]) -> bool:
    name = getattr(function, "__name__", "").partition(".")[0]
    augmented = name.startswith("__i") and name[3:-2] in _ALIASED | {"floordiv", "and", "or"}
    trailing = name.endswith("_") and not name.endswith("__")
    return augmented or trailing or name == "__setitem__"


def without_weights(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a call that would keep its input for the gradient of its weight, which nobody asks for.

    What has no gradient but that of its weight keeps it: gradients at what comes next need it.
    """
    if name not in WEIGHTED or not any(_in_graph(x) for x in args):
        return args
    return tuple(x.detach() if isinstance(x, nn.Parameter) else x for x in args)


def _in_graph(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad and not isinstance(x, nn.Parameter)


@lru_cache(FUNCTIONS)
def hands_out(function: Any) -> bool:
    """Whether a call hands out numbers to where no graph is."""
    return getattr(function, "__name__", "") in _WITHOUT_GRAPH


def without_graph(function: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a call that hands out numbers, as it takes them."""
    if not hands_out(function):
        return args
    return tuple(x.detach() if isinstance(x, Tensor) else x for x in args)


@lru_cache(FUNCTIONS)
def is_of_torch(function: Callable[..., Any]) -> bool:
    """Whether an operation is one of torch's own, of which torch knows the gradient."""
    qualified = getattr(function, "_qualified_op_name", "aten").partition(":")[0]
    return getattr(function, "namespace", qualified) in ("aten", "prim", "prims")


@lru_cache(FUNCTIONS)
def sets_no_numbers(function: Callable[..., Any]) -> bool:
    """Tell whether a call sets an attribute of a tensor that is no number: its gradient, or its hooks.

    torch itself sets hooks on a view while it holds the view's lock: who asks for the view's `grad_fn` there waits for
    ever.
    """
    if getattr(function, "__name__", "") != "__set__":
        return False
    return function.__self__.__name__ not in ("data", "real", "imag")  # type: ignore[attr-defined]


def enterable(function: Any) -> Callable[..., Any]:
    """A Python function of torch whose body runs under the mode, instead of arriving there as one call."""
    redispatch = getattr(torch.overrides, "redispatch_function", None)
    if redispatch is not None:
        return lambda *args, **kwargs: redispatch(function, (), args, kwargs)
    # Older versions of torch: the same function, which finds no mode to hand the call to.
    without_modes = {name: _no_torch_function for name in function.__globals__ if name.startswith("has_torch_function")}
    code = function.__code__
    defaults = function.__defaults__
    closure = function.__closure__
    entered = types.FunctionType(code, {**function.__globals__, **without_modes}, function.__name__, defaults, closure)
    entered.__kwdefaults__ = function.__kwdefaults__
    return entered


def _no_torch_function(*_: Any) -> bool:
    return False


# -- torch.func and vmap, for which torch has no public question ------------------------------------------------------

_functorch = torch._C._functorch
# What of `torch.func` runs now, the innermost; None for nothing.
transformation: Callable[[], Any] = _functorch.peek_interpreter_stack


def is_transforming() -> bool:
    """Whether a function of `torch.func`, or `torch.vmap`, runs now."""
    return transformation() is not None


def unwrapped(tensor: Tensor) -> Tensor:
    """The tensor of which such a function sees a sample, or follows the gradient."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def untransformed() -> AbstractContextManager[object]:
    """Compute inside as if no such function ran."""
    return temporarily_clear_interpreter_stack()
