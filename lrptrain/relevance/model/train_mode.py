"""A model that is explained in train mode, whose map is one draw of many, or depends on its batch."""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from lrptrain.relevance.fast.walk import modules_of, named_modules_of
from lrptrain.relevance.notices import warn_once


def warn_of_train_mode(model: nn.Module) -> None:
    """Say once per model that it is in train mode, if that changes what it computes."""
    if True not in [module.training for module in modules_of(model)]:
        return
    active = [(name, module) for name, module in named_modules_of(model) if module.training and _is_active(module)]
    if not active:
        return
    name, module = active[0]
    warn_once(
        model,
        "train mode",
        f"the model is in train mode: its {type(module).__name__} '{name}' (one of {len(active)}) is active, so that "
        "the map is that of one frozen draw of dropout, or of the batch's own statistics; call model.eval() before",
    )


def _is_active(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) or (isinstance(module, _DropoutNd) and module.p > 0)
