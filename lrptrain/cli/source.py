"""The model and the data that verbs work on: returned by a function of the user, or made from a LightningCLI config."""

import inspect
import os
import pickle
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from lrptrain.extras import require
from lrptrain.files import read_text

EXAMPLE = """
  def trained():
      model = MyModel.load_from_checkpoint("model.ckpt", weights_only=True)
      return model, MyData().val_dataloader()"""
LONGEST = 300
"""Characters of an error that are printed: torch lists every weight that does not fit."""


def read_source(
    names: tuple[str, ...], source: str | None = None, config: str | None = None, ckpt_path: str | None = None
) -> dict[str, Any]:
    """Return the arguments of a verb's Python call.

    A verb takes these options as its `**options`: jsonargparse lists them in its help.

    Args:
        names: The parameters of the call for the model and its data; then those that a datamodule may know.
        source: my_module:function, a function of yours without arguments, found in this folder or on the Python path.
            It returns the model and its data, or a dict of arguments.
        config: A config of LightningCLI, of which `model:` and `data:` are made, such as the config.yaml that
            `lrptrain fit` saves; validation samples are used.
        ckpt_path: The checkpoint for --config; only its weights are read.

    Raises:
        FileNotFoundError: If there is no such config or checkpoint.
        ValueError: If neither or both are named, the function cannot be found or called, or returns something else.
    """
    pair = f"({', '.join(names[:2])})"
    if (source is None) == (config is None):
        raise ValueError(f"name a function that returns {pair}, as my_module:function, or else --config FILE")
    if config is not None:
        module, data = _from_config(config, ckpt_path)
        samples = data if names[1] == "datamodule" else _validation_loader(data)
        return {names[0]: module, names[1]: samples, **given(**{name: getattr(data, name, None) for name in names[2:]})}
    if ckpt_path is not None:
        raise ValueError(f"--ckpt_path needs --config: {source} loads its weights itself")
    returned = find_function(str(source))()
    if isinstance(returned, tuple) and len(returned) == 2:
        returned = dict(zip(names, returned, strict=False))
    if not isinstance(returned, dict):
        raise ValueError(f"{source} returns a {type(returned).__name__}: return {pair}, or a dict of arguments")
    if missing := [name for name in names[:2] if name not in returned]:
        written = ", ".join(f'"{name}": {name}' for name in missing)
        raise ValueError(f"{source} returns a dict without {' and '.join(missing)}: add {written}")
    return returned


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were typed; they count before those that a function returns."""
    return {name: value for name, value in options.items() if value is not None}


def find_modules_here() -> None:
    """Let modules of the working directory be imported, as `python -m lrptrain` does; the installed command does not.

    Only what the user names is looked for there: a verb that reads the run folder of somebody else must not import a
    `wandb.py` that lies in it.
    """
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())


def find_function(source: str) -> Callable[[], Any]:
    """Return the function that `my_module:function` names.

    Raises:
        ValueError: If there is no such module or function, or it needs arguments.
    """
    path, colon, name = source.partition(":")
    if not colon or not name:
        raise ValueError(
            f"{source!r} is not my_module:function. Put a function that returns model and data into my_module.py, and "
            f"name it in its place, my_module:trained:{EXAMPLE}"
        )
    module = _imported(path)
    function = getattr(module, name, None)
    if not callable(function):
        own = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        near = ", ".join(f"{path}:{each}" for each in get_close_matches(name, own, 1) or own)
        raise ValueError(f"{path} has no function {name!r}; it has {near or 'none'}")
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        call = f"def trained(): return {name}(...)"
        raise ValueError(f"{source} needs arguments ({error}): name a function without any, {call}") from error
    return function


def _imported(path: str) -> Any:
    """Return a module; what fails in it is an error of the user's code, and keeps its traceback."""
    find_modules_here()
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        if not f"{path}.".startswith(f"{error.name}."):
            raise
        raise ValueError(
            f"there is no module {path!r} in this folder or on the Python path: of the file my_module.py write "
            "my_module:function"
        ) from error


def instantiated(parser: Any, parsed: Any) -> Any:
    """Return what jsonargparse has parsed, the objects made."""
    return (getattr(parser, "instantiate", None) or parser.instantiate_classes)(parsed)  # its name before 4.49


def _from_config(config: str, ckpt_path: str | None) -> tuple[Any, Any]:
    """Return the LightningModule and the datamodule of a config, on the GPU if there is one."""
    import torch
    from pytorch_lightning import LightningDataModule, LightningModule

    import lrptrain.data
    import lrptrain.models  # noqa: F401  (their classes may be named without the module)

    find_modules_here()
    parser = require("jsonargparse", "cli").ArgumentParser(exit_on_error=False)
    for section, base in (("model", LightningModule), ("data", LightningDataModule)):
        parser.add_subclass_arguments(base, section)
    made = instantiated(parser, parser.parse_object(_sections(config)))
    if ckpt_path is None:
        print(f"no --ckpt_path: the model has the weights that {config} gives it")
    else:
        load_weights(made["model"], ckpt_path)
    return made["model"].eval().to("cuda" if torch.cuda.is_available() else "cpu"), made["data"]


def _validation_loader(data: Any) -> Any:
    data.prepare_data()
    data.setup("fit")  # in which every datamodule makes its validation set; in "validate" not every one does
    loaders = data.val_dataloader()
    return loaders[0] if isinstance(loaders, list | tuple) else loaders


def _sections(config: str) -> dict[str, Any]:
    """Return the `model:` and `data:` sections of a config."""
    if not Path(config).is_file():
        raise FileNotFoundError(f"there is no config {config!r}")
    yaml = require("yaml", "cli")
    try:
        content = yaml.safe_load(read_text(Path(config)))
    except yaml.YAMLError as error:
        raise ValueError(f"{config} is no YAML: {' '.join(str(error).split())}") from error
    sections = {name: content.get(name) if isinstance(content, dict) else None for name in ("model", "data")}
    for name, section in sections.items():
        # `class_path` may stand alone, as LightningCLI allows it.
        if not isinstance(section, str) and not (isinstance(section, dict) and "class_path" in section):
            raise ValueError(
                f"{config} has no `{name}:` with a class_path, as configs of `lrptrain fit` have: write a function "
                "that returns model and data, and name it in the place of --config, my_module:function"
            )
    return sections


def load_weights(module: Any, path: str) -> None:
    """Load the weights of a checkpoint into a LightningModule; nothing else that it holds is used.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it holds objects of Python, cannot be read, or its weights are of another model.
    """
    import torch

    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no checkpoint {path!r}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        module.configure_model()
        module.on_load_checkpoint(content)
        module.load_state_dict(content["state_dict"], strict=module.strict_loading)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path!r} is damaged, or holds objects beside its weights, and to unpickle them could run code: if it is "
            "yours, write a function that loads it, and name it in the place of --config, my_module:function"
        ) from error
    except Exception as error:  # a damaged file can fail in any way
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:LONGEST]}"
        raise ValueError(f"{path!r} cannot be loaded into {type(module).__name__}: {reason}") from error
    saved = content.get("hyper_parameters")
    made = module.hparams if isinstance(saved, dict) else {}
    if other := [name for name in made if name in saved and str(saved[name]) != str(made[name])]:
        print(f"{path} was saved with another {', '.join(other)} than the config has: the config's is used")
