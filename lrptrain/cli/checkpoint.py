"""The one door through which checkpoints come: read as data, of which nothing is made unless the user trusts the file.

What of a file that is not trusted may become an argument, `lrptrain.cli.untrusted` says.
"""

import pickle
import re
from collections.abc import Mapping
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
        """The arguments of the LightningModule, as far as it saved them; what they say, to be read as text."""
        return self._settings("hyper_parameters")

    @property
    def datamodule_settings(self) -> dict[str, Any]:
        """The arguments of the datamodule that it was trained with, as far as it saved them; to be read as text."""
        return self._settings("datamodule_hyper_parameters")

    def module_arguments(self, made: type) -> dict[str, Any]:
        """Return what the constructor of a LightningModule may be given of the arguments that were saved.

        Raises:
            ValueError: If an argument may not come from a file that is not trusted.
        """
        saved = self.module_settings
        if name := self.content.get("hparams_name"):
            # `save_hyperparameters(config)` saves one argument, `config`, in the place of all.
            saved = saved if name == "kwargs" else {str(name): saved}
        return self._arguments(made, saved)

    def datamodule_arguments(self, made: type) -> dict[str, Any]:
        """Return what the constructor of a datamodule may be given of the arguments that were saved.

        Raises:
            ValueError: As `module_arguments`.
        """
        return self._arguments(made, self.datamodule_settings)

    def _arguments(self, made: type, saved: dict[str, Any]) -> dict[str, Any]:
        from lrptrain.cli.untrusted import RefusedError, arguments_of

        # Names that begin with "_" are Lightning's own, such as `_class_path`.
        own = {name: value for name, value in saved.items() if not str(name).startswith("_")}
        if self.trust:
            return own
        try:
            return arguments_of(made, own)
        except RefusedError as error:
            raise refusal(self.path, str(error)) from error

    def _settings(self, key: str) -> dict[str, Any]:
        settings = self.content.get(key)
        return dict(settings) if isinstance(settings, Mapping) else {}


def refusal(path: str, what: str) -> ValueError:
    """Return the error that a checkpoint asks for what it may not without trust."""
    return ValueError(f"{path!r} asks for {what}: if you trust its origin, pass --trust true")


def read_checkpoint(path: str, trust: bool = False) -> Checkpoint:
    """Read a checkpoint.

    Args:
        path: Path of the file.
        trust: Whether it may hold objects of any class, whose making runs code that the file brings, and name classes
            to import.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it holds objects, or asks for code, and is not trusted; or is no checkpoint.
    """
    import torch

    from lrptrain.cli.dotted import find_modules_here
    from lrptrain.cli.untrusted import RefusedError, check_plain

    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no checkpoint {path!r}")
    if trust:
        find_modules_here()  # its objects may be of the user's own classes
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
    except Exception as error:  # a damaged file can fail in any way
        # A file that is cut short is an OSError without its name, and an empty one an EOFError without a word.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{path!r} cannot be read as a checkpoint: {reason}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path!r} holds a {type(content).__name__}: it is no checkpoint of a LightningModule")
    if trust:
        return Checkpoint(path, content, trust)
    try:
        for key in ("hyper_parameters", "datamodule_hyper_parameters"):
            settings = content.get(key) or {}
            if not isinstance(settings, Mapping):
                raise RefusedError(f"{key} that are a {type(settings).__name__}")
            # LightningCLI's own: it is not called where the file is not trusted.
            if settings.get("_instantiator") not in (None, *INSTANTIATORS):
                raise RefusedError(f"a function to be called, {settings['_instantiator']}")
            check_plain(settings)
    except RefusedError as error:
        raise refusal(path, str(error)) from error
    return Checkpoint(path, content)
