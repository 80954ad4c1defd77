"""The data that verbs work on: a datamodule or a loader, named by the user or by the checkpoint."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch

from lrptrain.auditing.samples import EmptyLoaderError, draw_samples
from lrptrain.batch import BatchAdapter, Sample
from lrptrain.batch.task import CLASSES, Task, find_task
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

Split = Literal["train", "val", "test"]


def load_data(checkpoint: Checkpoint, data: str | None) -> Any:
    """Return the data that a user names, or else those that a checkpoint was trained with.

    Args:
        checkpoint: The checkpoint.
        data: `package.DataModule`, `package.DataModule(argument=value)`, a loader or a function that returns one; or
            the path of a config, of which the `data:` section is read. None for the data of the checkpoint.

    Returns:
        A LightningDataModule, or an iterable of batches.

    Raises:
        FileNotFoundError: If there is no such config.
        ValueError: If there are no such data, they cannot be made, or the checkpoint does not name them.
    """
    if data is None:
        return _named_by(checkpoint)
    if is_config(data):
        return _parsed(read_section(data, "data"))
    path, arguments = split_call(data, "data")
    return _made(path, find_object(path, "data", "a LightningDataModule or a loader"), arguments)


def _named_by(checkpoint: Checkpoint) -> Any:
    """Return the datamodule that a checkpoint was trained with.

    The class is saved by `lrptrain fit`; without it, a datamodule of this project is recognised by its arguments.

    Raises:
        ValueError: If it does not say, or names a class of others and is not trusted.
    """
    from lrptrain import data

    settings = checkpoint.datamodule_settings
    path = settings.pop("_class_path", None)
    settings.pop("_instantiator", None)
    datamodules = [each for each in vars(data).values() if inspect.isclass(each) and hasattr(each, "val_dataloader")]
    # A checkpoint saved by a Trainer alone has the arguments without the class, such as those of PlantedDigits only.
    alike = [each for each in datamodules if settings and set(inspect.signature(each).parameters) == set(settings)]
    if path is None and len(alike) == 1:
        path = f"lrptrain.data.{alike[0].__name__}"
    if path is None:
        raise ValueError(
            "the checkpoint does not say which data it was trained with: pass --data package.DataModule, or a config"
        )
    made = ready_classes("lrptrain.data").get(str(path))
    if made is not None:
        return _called(path, made, checkpoint.datamodule_arguments(made))
    if checkpoint.trust:
        return _parsed({"class_path": path, "init_args": settings})
    raise ValueError(
        f"{checkpoint.path!r} names the data {path}, which are not imported for it: if they are yours pass --data "
        f"{path}, or --trust true"
    )


def name_of(data: Any) -> str:
    """Return what the data are called in tables: the class of a datamodule, or of a loader's dataset."""
    return type(data if hasattr(data, "val_dataloader") else getattr(data, "dataset", data)).__name__


def loader_of(data: Any, split: Split) -> Iterable[Any]:
    """Return the batches of a split; a plain loader has the validation set alone.

    Raises:
        ValueError: If the data have no such split, or the datamodule fails.
    """
    if not hasattr(data, "val_dataloader"):
        if split != "val":
            raise ValueError(f"--data is a loader, which has no {split} set of its own: name a LightningDataModule")
        return data
    try:
        data.prepare_data()
        # In "fit" every datamodule that was trained with makes its validation set; in "validate" not every one does.
        data.setup("test" if split == "test" else "fit")
        loaders = getattr(data, f"{split}_dataloader")()
    except Exception as error:
        if _is_ours(data):
            raise
        raise ValueError(f"{name_of(data)} gives no {split} set: {described(error)}") from error
    return loaders[0] if isinstance(loaders, list | tuple) else loaders


def split_samples(
    data: Any,
    split: Split,
    max_samples: int,
    seed: int,
    batch_adapter: BatchAdapter | None = None,
    task: Task = CLASSES,
) -> list[Sample]:
    """Return samples of a split, drawn as evenly over the classes as they allow.

    Raises:
        ValueError: If there are none.
    """
    try:
        return draw_samples(loader_of(data, split), max_samples, seed, batch_adapter, task)
    except EmptyLoaderError as error:
        raise ValueError(f"the {split} set of {name_of(data)} is empty") from error


def load_adapter(path: str | None) -> BatchAdapter | None:
    """Return the function that brings batches to the names of the contract; None where none is named.

    Raises:
        ValueError: If there is no such function.
    """
    return None if path is None else find_object(path, "batch-adapter", "a function of a batch")


def load_task(text: str | None) -> Task:
    """Return the task that an option names: "binary", or `lrptrain.OneLabel(column=2)`; classes where none is named.

    Raises:
        ValueError: If there is no such task.
    """
    if text is None or "." not in text:
        return find_task(text)  # type: ignore[arg-type]
    path, arguments = split_call(text, "task")
    kind = find_object(path, "task", "a task")
    if not (isinstance(kind, type) and issubclass(kind, Task)):
        raise ValueError(f"--task {text!r} is no task: lrptrain.OneLabel, lrptrain.Ordinal and lrptrain.Regression are")
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(f"--task {text!r}: {error}") from error


def settings_of(data: Any) -> Mapping[str, Any]:
    """Return the arguments that a datamodule saved; empty where it saved none."""
    return dict(getattr(data, "hparams", None) or {})


def default_device(device: str | None) -> torch.device:
    """Return the device of that name; the GPU if there is one, else the CPU, where none is named."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def names_in(listed: str) -> list[str]:
    """Return names separated by commas, each once."""
    return list(dict.fromkeys(name.strip() for name in listed.split(",")))


def _made(path: str, named: Any, arguments: Mapping[str, Any]) -> Any:
    """Return the data that a class or a function makes; an object that is no function is taken as it stands."""
    data = named if not callable(named) else _called(path, named, arguments)
    if not hasattr(data, "val_dataloader") and not isinstance(data, Iterable):
        raise ValueError(f"--data {path!r} is neither a LightningDataModule nor a loader, but a {type(data).__name__}")
    return data


def _called(path: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    missing = [name for name in required_parameters(function) if name not in arguments]
    if missing:
        written = ", ".join(f"{name}=..." for name in missing)
        raise ValueError(f"{path} needs {', '.join(missing)}: write --data '{path}({written})'")
    try:
        return function(**arguments)
    except Exception as error:
        raise ValueError(f"{path} cannot be made: {described(error)}") from error


def _is_ours(data: Any) -> bool:
    return type(data).__module__.startswith("lrptrain.")


def _parsed(section: Mapping[str, Any]) -> Any:
    """Return the datamodule of a config's `data:` section."""
    from pytorch_lightning import LightningDataModule

    import lrptrain.data  # noqa: F401  (its classes may be named without the module)

    return made_from_section("data", section, LightningDataModule)
