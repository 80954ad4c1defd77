"""What a user names on the command line: `package.Class`, `package.Class(width=64)`, or a section of a config."""

import ast
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from lrptrain.extras import require
from lrptrain.files import read_text

LONGEST = 300
"""Characters of an error that are told: some hold all that a file says."""
CONFIG_ENDINGS = (".yaml", ".yml", ".json")


def find_modules_here() -> None:
    """Let modules of the working directory be imported, as `python -m lrptrain` does.

    The installed command has its own folder on the path instead, where nobody keeps a LightningModule. Only what the
    user names is looked for there: a verb that reads a stranger's folder must not import a `wandb.py` that lies in it.
    """
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())


def is_config(text: str) -> bool:
    """Whether a value names a config, rather than an object of Python."""
    return Path(text).suffix.lower() in CONFIG_ENDINGS or (os.sep in text and "(" not in text) or Path(text).is_file()


def read_section(config: str, section: str) -> dict[str, Any]:
    """Return the `model:` or `data:` section of a config of LightningCLI.

    Raises:
        FileNotFoundError: If there is no such config.
        ValueError: If it has no such section with a class_path.
    """
    if not Path(config).is_file():
        raise FileNotFoundError(f"there is no config {config!r}")
    yaml = require("yaml", "cli")
    try:
        content = yaml.safe_load(read_text(Path(config)))
    except yaml.YAMLError as error:
        raise ValueError(f"{config} is no YAML: {' '.join(str(error).split())}") from error
    values = content.get(section) if isinstance(content, dict) else None
    # `class_path` may stand alone, as LightningCLI allows it.
    values = {"class_path": values} if isinstance(values, str) else values
    if not isinstance(values, dict) or "class_path" not in values:
        raise ValueError(
            f"{config} has no `{section}:` section with a class_path, as configs of `lrptrain fit` do: name the class "
            f"itself, --{'module' if section == 'model' else section} package.Class"
        )
    return values


def made_from_section(section: str, values: Mapping[str, Any], base: type) -> Any:
    """Return the object that a section of a config names, made as `lrptrain fit` makes it.

    Args:
        section: "model" or "data".
        values: What the section holds: a class_path, and perhaps init_args.
        base: The class that the object's class must be or inherit from; a class that was imported may be named without
            its module.

    Raises:
        argparse.ArgumentError: If there is no such class, or it does not take the arguments.
    """
    find_modules_here()
    parser = require("jsonargparse", "cli").ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(base, section)
    instantiate = getattr(parser, "instantiate", None) or parser.instantiate_classes  # its name before 4.49
    return instantiate(parser.parse_object({section: dict(values)}))[section]


def required_parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters of a function or a class that have no default and may be given by name."""
    parameters = inspect.signature(function).parameters
    return [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]


def split_call(text: str, option: str) -> tuple[str, dict[str, Any]]:
    """Split `package.Class(width=64, names=["a"])` into the dotted path and the arguments, which are literals.

    Raises:
        ValueError: If it is neither a dotted path nor such a call.
    """
    try:
        node: ast.AST = ast.parse(text.strip(), mode="eval").body
        arguments = {}
        if isinstance(node, ast.Call):
            if node.args or any(keyword.arg is None for keyword in node.keywords):
                raise ValueError("arguments are given by name")
            arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
            node = node.func
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise ValueError(f"--{option} {text!r} is no package.Class or package.Class(name=value): {reason}") from error
    return ast.unparse(node), arguments


def find_object(path: str, option: str, kind: str) -> Any:
    """Import what a dotted path names.

    Args:
        path: Such as `package.module.Class`; modules of the working directory are found.
        option: The option that names it, for the message.
        kind: What it should be, for the message: "a LightningModule" ...

    Raises:
        ValueError: If there is no such object, or its module cannot be imported.
    """
    package, _, name = path.rpartition(".")
    if not package:
        raise ValueError(f"--{option} {path!r} is not the dotted path of {kind}: write it as package.{path}")
    find_modules_here()
    try:
        return getattr(import_module(package), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"--{option} {path!r} is not the dotted path of {kind}: {error}") from error
    except Exception as error:
        raise ValueError(f"--{option} {path!r} cannot be imported: {described(error)}") from error


def described(error: BaseException) -> str:
    """Return the kind, message and place of an error of the user's code in one line."""
    said = " ".join(str(error).split())
    text = f"{type(error).__name__}: {said if len(said) <= LONGEST else f'{said[:LONGEST]} ...'}"
    if isinstance(error, SyntaxError):
        return text
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text


def _is_users(filename: str) -> bool:
    """Whether a file is neither of an installed package, nor of this one, nor of Python."""
    folders = ("site-packages", str(Path(__file__).parents[1]), os.path.dirname(os.__file__), "<frozen")
    return not any(folder in filename for folder in folders) and filename not in sys.builtin_module_names
