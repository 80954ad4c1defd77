"""One walk over a model, where torch's own are called several times a map: each of them calls itself at every level."""

from torch import Tensor, nn


def modules_of(model: nn.Module) -> list[nn.Module]:
    """Return all modules, each once, a module before those that it holds."""
    found = {model: None}
    waiting = [model]
    while waiting:
        inner = [x for x in waiting.pop()._modules.values() if x is not None and x not in found]
        found.update(dict.fromkeys(inner))
        waiting += inner
    return list(found)


def weights_of(model: nn.Module) -> list[Tensor]:
    """Return the parameters and buffers of a model; those that are shared several times."""
    stores = [store for module in modules_of(model) for store in (module._parameters, module._buffers)]
    return [x for store in stores for x in store.values() if x is not None]
