"""Cues of images, an object in a file each. All modules are imported, so that a new file is a new cue."""

import importlib
import pkgutil

from lrptrain.cues.visual.base import register_look, register_parts, registered_looks, registered_parts

__all__ = ["register_look", "register_parts", "registered_looks", "registered_parts"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
