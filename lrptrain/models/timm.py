"""Build a timm classifier, with weights from the hub, from a file, or none."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lrptrain.extras import require


def timm_classifier(name: str, num_classes: int, pretrained: bool | str = False, **options: Any) -> nn.Module:
    """A model of timm.

    Weights from a file must fit the model; timm resamples its position embedding if the image size differs. Its head is
    kept if it has `num_classes` rows, and is otherwise replaced by a new one.

    Args:
        name: As in `timm.list_models()`.
        num_classes: Rows of the head.
        pretrained: `False` random weights, `True` timm's own from the hub, else the path of a file.
        **options: Passed to `timm.create_model`, for example `img_size=32`.

    Raises:
        FileNotFoundError: There is no such file of weights.
        OSError: The hub cannot be reached and has not been asked before.
        RuntimeError: The weights do not fit the model, or timm knows no such model.
    """
    timm = require("timm", "timm")
    if isinstance(pretrained, str):
        return _from_file(timm, name, num_classes, Path(pretrained), options)
    try:
        return timm.create_model(name, pretrained=pretrained, num_classes=num_classes, **options)
    except OSError as error:
        raise OSError(
            f"cannot get timm's weights of {name!r} from the hub. Offline? Download them where there is a network and "
            "pass the file as `pretrained`, or start from random weights with `pretrained=False`"
        ) from error


def _from_file(timm: Any, name: str, num_classes: int, path: Path, options: dict[str, Any]) -> nn.Module:
    if not path.is_file():
        raise FileNotFoundError(f"no weights at {path}: `pretrained` is False, True or the path of a state dict")
    state = {key.removeprefix("net."): value for key, value in timm.models.load_state_dict(str(path)).items()}
    rows = _head_rows(state, timm.get_pretrained_cfg_value(name, "classifier"))
    overlay = {"state_dict": state, "num_classes": rows, "source": "", "custom_load": False}
    model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=rows, **options)
    if rows != num_classes:
        model.reset_classifier(num_classes)
    return model


def _head_rows(state: dict[str, Tensor], head: str | tuple[str, ...] | None) -> int:
    """Classes of the head in a state dict, 0 if it has none."""
    name = head if isinstance(head, str) or head is None else head[0]
    weight = state.get(f"{name}.weight")
    return 0 if weight is None else len(weight)
