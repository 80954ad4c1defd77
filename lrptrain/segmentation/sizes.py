"""Let a ViT take images of another size than it was built for, for a time."""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from lrptrain.extras import require

_OPTION = "interpolate_pos_encoding"


@contextmanager
def any_size(model: nn.Module) -> Iterator[None]:
    """Let the ViTs of timm and Hugging Face in `model` resample their position embeddings to the image's patches.

    timm: what its option `dynamic_img_size` sets; Hugging Face: `interpolate_pos_encoding=True`, for images of another
    size than the model's own. Afterwards the model is as before. A model of another kind is left as it is.
    """
    native = native_size(model)
    with ExitStack() as stack:
        for module in model.modules():
            if getattr(module, "dynamic_img_size", None) is False and hasattr(module, "patch_embed"):
                # As timm's constructors do: the patches stay a grid until they get positions.
                grid = require("timm.layers", "timm").Format.NHWC
                for owner, values in (
                    (module, {"dynamic_img_size": True}),
                    (module.patch_embed, {"flatten": False, "output_fmt": grid, "strict_img_size": False}),
                ):
                    stack.callback(vars(owner).update, {name: getattr(owner, name) for name in values})
                    vars(owner).update(values)
            elif _OPTION in inspect.signature(module.forward).parameters:
                hook = partial(_interpolated, native)
                stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
        yield


def native_size(model: nn.Module) -> tuple[int, int] | None:
    """Return the height and width that a model was built for, by timm's patch embedding or Hugging Face's config."""
    for part in model.modules():
        for size in (getattr(part, "img_size", None), getattr(getattr(part, "config", None), "image_size", None)):
            if isinstance(size, int):
                return size, size
            if isinstance(size, tuple | list) and len(size) == 2:
                return int(size[0]), int(size[1])
    return None


def patch_size(model: nn.Module) -> tuple[int, int]:
    """Return height and width of a patch in pixels: the stride of the first convolution; (1, 1) without one."""
    first = next((part for part in model.modules() if isinstance(part, nn.Conv2d)), None)
    return (1, 1) if first is None else (first.stride[0], first.stride[1])


def scaled_size(size: tuple[int, int], scale: float, patch: tuple[int, int]) -> tuple[int, int]:
    """Return an image size times a number, rounded to whole patches, of which there is at least one."""
    # At scale 1.5 an image of 224 pixels in patches of 16 has 21 patches, 336 pixels.
    height, width = (max(round(side * scale / step), 1) * step for side, step in zip(size, patch, strict=True))
    return height, width


def _interpolated(
    native: tuple[int, int] | None, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call on images of another size, with the request to interpolate."""
    images = args[0] if args else kwargs.get("pixel_values")
    foreign = isinstance(images, Tensor) and images.ndim == 4 and tuple(images.shape[-2:]) != native
    return args, {**kwargs, _OPTION: True} if foreign else kwargs
