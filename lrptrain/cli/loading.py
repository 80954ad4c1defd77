"""What verbs load: a checkpoint's model, the data that it was trained with, and samples of them."""

import inspect
import math
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lrptrain.batch import IMAGES, Sample, batch_length, read_batch, take
from lrptrain.extras import require
from lrptrain.monitor.stratified_sample import ValidationSample
from lrptrain.segmentation.sizes import native_size
from lrptrain.trainers.discover import find_model

IMAGE_MODULE = "lrptrain.models.ImageClassifier"
TEXT_MODULE = "lrptrain.models.TextClassifier"


def read_checkpoint(checkpoint: str) -> dict[str, Any]:
    """Return everything that a checkpoint holds.

    Raises:
        FileNotFoundError: If there is no such file.
    """
    if not Path(checkpoint).is_file():
        raise FileNotFoundError(f"there is no checkpoint {checkpoint!r}")
    # Hyper-parameters are any objects, which `weights_only` refuses: a checkpoint must come from a trusted source.
    return torch.load(checkpoint, map_location="cpu", weights_only=False)


def datamodule_settings(checkpoint: str) -> dict[str, Any]:
    """The arguments of the datamodule that a checkpoint was trained with, as far as it saved them."""
    return dict(read_checkpoint(checkpoint).get("datamodule_hyper_parameters", {}))


def module_settings(checkpoint: str) -> dict[str, Any]:
    """The arguments of the LightningModule of a checkpoint, as far as it saved them."""
    return dict(read_checkpoint(checkpoint).get("hyper_parameters", {}))


def module_path(checkpoint: str, is_image: bool) -> str:
    """Where a checkpoint's LightningModule is defined: as it says, or this project's for images or texts."""
    return module_settings(checkpoint).get("_class_path", IMAGE_MODULE if is_image else TEXT_MODULE)


def module_class(path: str) -> Any:
    """The class at a dotted path.

    Raises:
        ValueError: If there is none.
    """
    package, _, name = path.rpartition(".")
    try:
        return getattr(import_module(package), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"--module {path!r} is not the dotted path of a LightningModule: {error}") from error


def load_module(path: str, checkpoint: str) -> Any:
    """The LightningModule at a dotted path, from a checkpoint, in evaluation mode.

    Raises:
        FileNotFoundError: If there is no such checkpoint.
        ValueError: If there is no such class.
    """
    if not Path(checkpoint).is_file():
        raise FileNotFoundError(f"there is no checkpoint {checkpoint!r}")
    return module_class(path).load_from_checkpoint(checkpoint, map_location="cpu").eval()


def load_model(checkpoint: str, is_image: bool, module: str | None, model: str | None) -> nn.Module:
    """The model of a checkpoint, in evaluation mode.

    Args:
        checkpoint: Path of the file.
        is_image: Whether its inputs are images, else texts.
        module: Dotted path of the LightningModule; None for the one that the checkpoint names, or this project's.
        model: Attribute path of the model on it; None to find it, see `find_model`.

    Raises:
        FileNotFoundError: If there is no such checkpoint.
        ValueError: If there is no such class or attribute.
    """
    return find_model(load_module(module or module_path(checkpoint, is_image), checkpoint), model).eval()


def load_data(checkpoint: str, config: str | None) -> Any:
    """The datamodule of a config, or else the one that a checkpoint was trained with.

    Raises:
        FileNotFoundError: If there is no such config or checkpoint.
        ValueError: If the config has no `data:`, or the checkpoint does not say.
    """
    # The same parser as that of `lrptrain fit`, so that a class may be named as it is in a config.
    jsonargparse = require("jsonargparse", "cli")
    from pytorch_lightning import LightningDataModule

    import lrptrain.data  # noqa: F401  (its classes may be named without the module)

    if config is not None:
        if not Path(config).is_file():
            raise FileNotFoundError(f"there is no config {config!r}")
        section = (require("yaml", "cli").safe_load(Path(config).read_text(encoding="utf-8")) or {}).get("data")
        if not isinstance(section, dict):
            raise ValueError(f"{config} has no `data:` section with a class_path, as configs of `lrptrain fit` do")
    else:
        section = saved_data(checkpoint)
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(LightningDataModule, "data")
    instantiate = getattr(parser, "instantiate", None) or parser.instantiate_classes  # its name before 4.49
    return instantiate(parser.parse_object({"data": section})).data


def saved_data(checkpoint: str) -> dict[str, Any]:
    """Class and arguments of the datamodule that a checkpoint was trained with.

    The class is saved by `lrptrain fit`; without it, a datamodule of this project is recognised by its arguments.

    Raises:
        FileNotFoundError: If there is no such checkpoint.
        ValueError: If it does not say.
    """
    from lrptrain import data

    settings = datamodule_settings(checkpoint)
    path = settings.pop("_class_path", None)
    settings.pop("_instantiator", None)
    datamodules = [each for each in vars(data).values() if inspect.isclass(each) and hasattr(each, "val_dataloader")]
    # A checkpoint saved by a Trainer alone has the arguments without the class, such as those of PlantedDigits only.
    alike = [each for each in datamodules if settings and set(inspect.signature(each).parameters) == set(settings)]
    if path is None and len(alike) == 1:
        path = f"lrptrain.data.{alike[0].__name__}"
    if path is None:
        raise ValueError("the checkpoint does not say which data it was trained with: pass --data CONFIG")
    return {"class_path": path, "init_args": settings}


def draw_samples(datamodule: Any, split: str, max_samples: int, seed: int) -> list[Sample]:
    """Samples of a split ("val" or "test"), drawn as evenly over the classes as they allow.

    Raises:
        ValueError: If there are none.
    """
    datamodule.prepare_data()
    datamodule.setup("validate" if split == "val" else "test")
    loaders = datamodule.val_dataloader() if split == "val" else datamodule.test_dataloader()
    # The monitor's own way to draw, of which nothing is known before the last batch: classes may come in any order.
    sample = ValidationSample(max_samples, seed)
    for batch in loaders[0] if isinstance(loaders, list | tuple) else loaders:
        sample.add_batch(read_batch(batch), math.inf)
    samples = sample.finish()
    if not samples:
        raise ValueError(f"the {split} set of {type(datamodule).__name__} is empty")
    return samples


def training_samples(datamodule: Any, max_samples: int, seed: int) -> list[Sample]:
    """The first samples that a datamodule's training loader gives, which the seed of its shuffling fixes."""
    datamodule.setup("fit")
    samples: list[Sample] = []
    # Shuffling takes its seed from the global generator, which is left as it was.
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for batch in datamodule.train_dataloader():
            columns = read_batch(batch)
            samples += [take(columns, row, len(samples) + row) for row in range(batch_length(columns))]
            if len(samples) >= max_samples:
                break
    return samples[:max_samples]


def are_images(samples: Sequence[Sample]) -> bool:
    """Whether samples are images, else texts."""
    return any(name in samples[0].tensors for name in IMAGES)


def black_of(datamodule: Any) -> float | list[float]:
    """Black in the units of the datamodule's images: -mean / std where it says how it normalises, else 0."""
    settings = dict(getattr(datamodule, "hparams", {}))
    # A black pixel is 0 before normalisation, and (0 - mean) / std after it.
    mean = settings.get("mean")
    std = settings.get("std")
    return 0.0 if mean is None or std is None else [-m / s for m, s in zip(mean, std, strict=True)]


def image_size(model: nn.Module) -> tuple[int, int]:
    """Height and width of the images that a model was built for, as timm's or Hugging Face's config knows them.

    Raises:
        ValueError: If neither does.
    """
    if (size := native_size(model)) is not None:
        return size
    raise ValueError("the model does not say for which image size it was built: pass --size")


def default_device(device: str | None) -> torch.device:
    """The device of that name; the GPU if there is one, else the CPU, where none is named."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def names_in(listed: str) -> list[str]:
    """Names separated by commas, each once."""
    return list(dict.fromkeys(name.strip() for name in listed.split(",")))
