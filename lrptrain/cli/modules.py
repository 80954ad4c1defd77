"""The LightningModule of a checkpoint: the class it names, or the one the user brings, with its weights."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from lrptrain.batch import Sample, collate, model_inputs
from lrptrain.cli.checkpoint import Checkpoint
from lrptrain.cli.dotted import (
    described,
    find_object,
    is_config,
    made_from_section,
    read_section,
    required_parameters,
    split_call,
)
from lrptrain.cli.untrusted import ready_classes
from lrptrain.relevance.model.preserve import preserved

IMAGE_MODULE = "lrptrain.models.ImageClassifier"
TEXT_MODULE = "lrptrain.models.TextClassifier"


@dataclass(frozen=True)
class ModuleSource:
    """How a LightningModule is made.

    Attributes:
        path: Dotted path of its class.
        arguments: Arguments of its constructor, beside those that the checkpoint saved.
        section: The `model:` section of the config that names it; None without a config.
    """

    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    section: Mapping[str, Any] | None = None

    def load(self, checkpoint: Checkpoint) -> Any:
        """Return the module with the weights of the checkpoint, in evaluation mode.

        Raises:
            ValueError: If there is no such class, an argument is missing, its constructor fails, or the weights are of
                another module.
        """
        if "state_dict" not in checkpoint.content:
            raise ValueError(f"{checkpoint.path!r} is no checkpoint of a LightningModule: it has no 'state_dict'")
        if self.section is not None:
            module = _parsed(self.section)
        else:
            module_class = find_module_class(self.path)
            _check_arguments(module_class, self, checkpoint)
            saved = {} if checkpoint.trust else checkpoint.module_arguments(module_class)
        try:
            if self.section is None and checkpoint.trust:
                # Lightning's own way knows older checkpoints, and makes what LightningCLI saved by the names in it.
                module = module_class.load_from_checkpoint(
                    checkpoint.path, map_location="cpu", weights_only=False, **self.arguments
                )
                return module.eval()
            if self.section is None:
                module = module_class(**{**saved, **self.arguments})
            module.configure_model()
            module.on_load_checkpoint(checkpoint.content)
            module.load_state_dict(checkpoint.content["state_dict"], strict=module.strict_loading)
        except Exception as error:
            if "loading state_dict" in str(error):
                raise ValueError(_other_weights(self, checkpoint, error)) from error
            raise ValueError(f"{self.path} cannot be made: {described(error)}") from error
        return module.eval()


def find_module_class(path: str) -> Any:
    """Return the LightningModule's class at a dotted path.

    Raises:
        ValueError: If there is none.
    """
    module_class = find_object(path, "module", "a LightningModule")
    if not hasattr(module_class, "load_from_checkpoint"):
        raise ValueError(f"--module {path!r} is no LightningModule: it has no load_from_checkpoint")
    return module_class


def load_module(checkpoint: Checkpoint, is_image: bool, module: str | None = None) -> Any:
    """Return the LightningModule of a checkpoint, in evaluation mode.

    Args:
        checkpoint: The checkpoint.
        is_image: Whether its inputs are images, else texts.
        module: `package.Class`, `package.Class(argument=value)` or the path of a config, of which the `model:` section
            is read; None for the class that the checkpoint names, or this project's.

    Raises:
        FileNotFoundError: If there is no such config.
        ValueError: If it cannot be found or made; with what to write instead.
    """
    if module is None:
        source = _named_by(checkpoint, is_image)
    elif is_config(module):
        section = read_section(module, "model")
        source = ModuleSource(section["class_path"], section=section)
    else:
        source = ModuleSource(*split_call(module, "module"))
    return source.load(checkpoint)


def check_runs(network: nn.Module, sample: Sample, model: str | None) -> None:
    """Reject a part of a module that does not run on the inputs of the whole.

    Args:
        network: What `model` names.
        sample: One sample of the data.
        model: The attribute path that the user gave; None where no part was named, and nothing is to be checked.

    Raises:
        ValueError: With the error of its forward.
    """
    if model is None:
        return
    device = next(network.parameters(), torch.zeros(())).device
    inputs = model_inputs(network, collate([sample], device))
    try:
        with torch.no_grad(), preserved(network):
            network(**inputs) if isinstance(inputs, dict) else network(inputs)
    except Exception as error:
        raise ValueError(f"--model {model} does not run on the samples of the data: {described(error)}") from error


def _named_by(checkpoint: Checkpoint, is_image: bool) -> ModuleSource:
    saved = checkpoint.module_settings
    if path := saved.get("_class_path"):
        if checkpoint.trust or str(path) in ready_classes("lrptrain.models"):
            return ModuleSource(str(path))
        raise ValueError(
            f"{checkpoint.path!r} names the class {path}, which is not imported for it: if it is yours pass --module "
            f"{path}, or --trust true"
        )
    path = IMAGE_MODULE if is_image else TEXT_MODULE
    expected = inspect.signature(find_module_class(path)).parameters
    names = {name for name in saved if not name.startswith("_")}
    required = {name for name, each in expected.items() if each.default is each.empty}
    # The modules of this project save all of their arguments, and no other ones.
    if not required <= names <= set(expected):
        raise ValueError(
            f"{checkpoint.path!r} does not say of which LightningModule it is: pass --module package.Class, or "
            "--module 'package.Class(argument=value)' where it needs arguments"
        )
    return ModuleSource(path)


def _check_arguments(module_class: Any, source: ModuleSource, checkpoint: Checkpoint) -> None:
    """Reject a constructor of which an argument is neither saved nor given, or one given that it does not take."""
    parameters = inspect.signature(module_class).parameters
    open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    unknown = [name for name in source.arguments if name not in parameters and not open_ended]
    if unknown:
        raise ValueError(f"{source.path} takes no argument {', '.join(unknown)}; it has {', '.join(parameters)}")
    saved = {*checkpoint.module_settings, checkpoint.content.get("hparams_name")}
    missing = [name for name in required_parameters(module_class) if name not in {*saved, *source.arguments}]
    if missing:
        written = ", ".join(f"{name}=..." for name in missing)
        raise ValueError(
            f"{source.path} needs {', '.join(missing)}, which the checkpoint does not hold: write --module "
            f"'{source.path}({written})', or a config with its `model:` section; with save_hyperparameters() in its "
            "__init__ later checkpoints hold them"
        )


def _other_weights(source: ModuleSource, checkpoint: Checkpoint, error: Exception) -> str:
    """Say in one line that a state dict does not fit, which torch says in a line per tensor."""
    _, *reasons = [line.strip() for line in str(error).splitlines() if line.strip()]
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    first = (reasons[0] if reasons else str(error))[:200].rstrip(".")
    return (
        f"the weights of {checkpoint.path!r} are not those of {source.path} as it was made here: {first}{more}; if it "
        f"was trained with other arguments write --module '{source.path}(argument=value)'"
    )


def _parsed(section: Mapping[str, Any]) -> Any:
    """Return the module of a config's `model:` section."""
    from pytorch_lightning import LightningModule

    import lrptrain.models  # noqa: F401  (its classes may be named without the module)

    return made_from_section("model", section, LightningModule)
