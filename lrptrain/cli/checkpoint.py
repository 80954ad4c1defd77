"""A Lightning checkpoint, read as data: no object of it is made unless the user trusts the file."""

import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INSTANTIATORS = ("pytorch_lightning.cli.instantiate_module", "lightning.pytorch.cli.instantiate_module")
"""Functions with which Lightning makes a module from what LightningCLI saved; a checkpoint may name no other."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint and how it was read.

    Attributes:
        path: Path of the file.
        content: Everything that it holds.
        trust: Whether objects of any class were allowed in it.
    """

    path: str
    content: dict[str, Any]
    trust: bool = False

    @property
    def module_settings(self) -> dict[str, Any]:
        """The arguments of the LightningModule, as far as it saved them."""
        return _plain_dict(self.content.get("hyper_parameters"))

    @property
    def datamodule_settings(self) -> dict[str, Any]:
        """The arguments of the datamodule that it was trained with, as far as it saved them."""
        return _plain_dict(self.content.get("datamodule_hyper_parameters"))


def read_checkpoint(path: str, trust: bool = False) -> Checkpoint:
    """Read a checkpoint.

    Args:
        path: Path of the file.
        trust: Whether it may hold objects of any class, whose making runs code that the file brings.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it holds objects and is not trusted, or is no checkpoint.
    """
    import torch

    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no checkpoint {path!r}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=not trust)
    except pickle.UnpicklingError as error:
        name = re.search(r"GLOBAL ([\w.]+)", str(error))
        if trust or name is None:
            raise ValueError(f"{path!r} cannot be read as a checkpoint") from error
        raise ValueError(
            f"{path!r} holds more than numbers and texts ({name[1]}): to load such objects runs code from the file; "
            "if you trust its origin, pass --trust true"
        ) from error
    except (RuntimeError, EOFError, AttributeError, ImportError, OSError) as error:
        # A file that is cut short is an OSError without its name, and an empty one an EOFError without a word.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path!r} cannot be read as a checkpoint: {reason}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path!r} holds a {type(content).__name__}: it is no checkpoint of a LightningModule")
    instantiator = _plain_dict(content.get("hyper_parameters")).get("_instantiator")
    if not trust and instantiator not in (None, *INSTANTIATORS):
        raise ValueError(
            f"{path!r} asks for a function to be called, {instantiator}: if you trust its origin, pass --trust true"
        )
    return Checkpoint(path, content, trust)


def _plain_dict(settings: Any) -> dict[str, Any]:
    return dict(settings) if settings else {}
