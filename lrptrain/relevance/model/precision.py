"""In which precision a model is recorded: float32, whatever it trains in, where a method would amplify its rounding."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lrptrain.relevance.fast.walk import modules_of, once_per_walk, weights_of
from lrptrain.relevance.notices import share_notices
from lrptrain.relevance.types import UnsupportedModelError

HALF = (torch.float16, torch.bfloat16)


class AutocastState(NamedTuple):
    """The precision in which the caller runs the model, for methods that run it again."""

    devices: tuple[tuple[str, torch.dtype, bool], ...]

    @property
    def is_on(self) -> bool:
        """Whether some device runs in mixed precision."""
        return any(enabled for _, _, enabled in self.devices)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Run what is inside in this precision."""
        with ExitStack() as stack:
            for kind, dtype, enabled in self.devices:
                stack.enter_context(torch.autocast(kind, dtype, enabled))
            yield


def autocast_state() -> AutocastState:
    """Return the state of autocast on the CPU and on the accelerator at hand, as it is now."""
    accelerator = torch.accelerator.current_accelerator()
    kinds = ["cpu", *([] if accelerator is None else [accelerator.type])]
    return AutocastState(
        tuple((kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in kinds)
    )


@contextmanager
def without_autocast() -> Iterator[None]:
    """Run what is inside in the precision of its tensors, on every device."""
    with ExitStack() as stack:
        for kind, dtype, enabled in autocast_state().devices:
            if enabled:
                stack.enter_context(torch.autocast(kind, dtype, enabled=False))
        yield


@once_per_walk
def has_half_weights(model: nn.Module) -> bool:
    """Whether weights themselves are float16 or bfloat16, as those of `model.bfloat16()`."""
    return not {x.dtype for x in weights_of(model)}.isdisjoint(HALF)


def inputs_in_float32(inputs: Any) -> Any:
    """The inputs of a model, floating-point ones in float32 at least."""
    if isinstance(inputs, Mapping):
        return {name: _in_float32(x) if isinstance(x, Tensor) else x for name, x in inputs.items()}
    return _in_float32(inputs)


def model_in_float32(model: nn.Module, *, keep_graph: bool) -> nn.Module:
    """Return a copy of a model whose half-precision weights are in float32; the model itself is not touched.

    It takes the memory of its weights in float32, as long as it lives. Hooks are those of the model. What is float32
    or float64 in the model is shared, not copied, where it is a parameter.
    """
    memo: dict[int, Any] = {}
    for module in modules_of(model):
        for parameter in module._parameters.values():
            if parameter is not None:
                memo[id(parameter)] = _weight_in_float32(parameter, keep_graph)
        for x in (*module._buffers.values(), *vars(module).values()):
            if isinstance(x, Tensor):
                memo[id(x)] = _in_float32(x.detach().clone())
        memo.update({id(hook): hook for hook in _hooks_of(module)})
    try:
        copied = deepcopy(model, memo)
    except Exception as error:
        raise no_run_in_float32(error, "no float32 copy of it can be made") from error
    share_notices(copied, model)
    return copied


def no_run_in_float32(error: Exception, why: str = "its float32 copy does not run") -> UnsupportedModelError:
    """The error for a model of which the float32 copy does not run, or is none."""
    return UnsupportedModelError(
        f"the model has weights in half precision, in which the method's rounding is amplified, and {why} "
        f"({type(error).__name__}: {_first_line(error)}); call model.float() before, or take attnlrp, which bears half "
        "precision"
    )


def _in_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in HALF else x


def _weight_in_float32(parameter: Tensor, keep_graph: bool) -> Tensor:
    if parameter.dtype not in HALF:
        return parameter
    if keep_graph:
        with torch.enable_grad():
            return parameter.float()
    return nn.Parameter(parameter.detach().float(), requires_grad=parameter.requires_grad)


def _hooks_of(module: nn.Module) -> list[Any]:
    """What runs at the module's calls: it may hold anything, and belongs to whoever registered it."""
    stores = (store for name, store in vars(module).items() if name.endswith("_hooks") and isinstance(store, dict))
    return [hook for store in stores for hook in store.values()]


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]
