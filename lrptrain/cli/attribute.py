"""`lrptrain attribute`: what in a picture, a text or the first samples of a loader speaks for a class."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lrptrain.cli.source import given, read_source


def attribute_samples(
    sample: str | None = None,
    target: int | str | None = None,
    method: str | None = None,
    output: str | None = None,
    max_samples: int = 4,
    **options: Any,
) -> None:
    """Show which patches of an image, or which words of a text, speak for a class.

    `lrptrain attribute my_module:function cat.png --target 3`, where the function returns (model, loader) or a dict of
    the arguments of `lrptrain.attribute` and `Relevance.show` with the `model` and the `loader`. A picture needs a
    `transform` in it, which makes the model's input [channels, height, width] of an RGB image of PIL; batches of
    another form need a `batch_adapter`.

    Args:
        sample: The path of a picture, or a text; else the first samples of the loader are explained.
        target: The class to explain, by its index or its name; else the predicted one.
        method: One of `lrptrain.methods()`; else the default one, or what takes its place where that cannot serve the
            model.
        output: The file to which the maps are written, .png, .html or .json; of images relevance.png by default.
        max_samples: How many samples of the loader.
        **options: As for `read_source`.

    Raises:
        ValueError: If the picture cannot be read or has no transform, or there is no such class.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.relevance import attribute
    from lrptrain.trainers.checks import check_counts
    from lrptrain.trainers.discover import logits_model
    from lrptrain.trainers.naming import find_class, find_tokenizer, loader_sources

    check_counts(max_samples=max_samples)
    returned = read_source(("model", "loader", "tokenizer", "class_names"), **options)
    arguments = returned | given(target=target, method=method)
    model, loader = logits_model(arguments.pop("model")).eval(), arguments.pop("loader")
    shown = {name: arguments.pop(name, None) for name in ("class_names", "mean", "std", "multi_label")}
    reading = {name: arguments.pop(name, None) for name in ("transform", "batch_adapter")}
    sources = [*loader_sources(loader), model]
    arguments["tokenizer"] = find_tokenizer(arguments.get("tokenizer"), sources)
    if sample is None:
        inputs = _first(loader, model, max_samples, reading["batch_adapter"])
    else:
        inputs = _named(sample, model, reading["transform"], arguments["tokenizer"])
    if isinstance(arguments.get("target"), str):
        names = _class_names(shown["class_names"], sources, _count_classes(model, inputs))
        # Without names, those of a Hugging Face configuration are looked up with the map.
        arguments |= {} if names is None else {"target": find_class(arguments["target"], names)}
    relevance = attribute(model, inputs, **arguments)
    shown["class_names"] = _class_names(shown["class_names"], sources, relevance.logits.shape[1])
    relevance.show(**shown, max_samples=max_samples)
    if output is None and relevance.grid is not None:
        output = "relevance.png"
    if output is not None:
        relevance.save(output, **shown, max_samples=max_samples)
        print(output)


def _class_names(named: Any, sources: Sequence[Any], classes: int) -> list[str] | None:
    """Return the names of all classes, of which the user may have given a list, or a mapping as `id2label`."""
    from lrptrain.trainers.naming import find_class_names

    if isinstance(named, Mapping):
        named, sources = None, [{"class_names": named}]
    return find_class_names(named, sources, classes)


def _count_classes(model: Any, inputs: Any) -> int:
    import torch

    from lrptrain.auditing.brought import predict_logits

    with torch.no_grad():
        return predict_logits(model, inputs).shape[1]


def _first(loader: Any, model: Any, most: int, batch_adapter: Any) -> Any:
    """Return the model's arguments for the first samples of a loader."""
    from torch import Tensor

    from lrptrain.batch import model_inputs
    from lrptrain.batch.call import samples_of
    from lrptrain.batch.reading import read_columns
    from lrptrain.trainers.discover import device_of

    batch = next(iter(loader), None)
    if batch is None:
        raise ValueError("the loader has no sample")
    rows = samples_of(read_columns(batch, batch_adapter), slice(most))
    return model_inputs(
        model, {name: x.to(device_of(model)) if isinstance(x, Tensor) else x for name, x in rows.items()}
    )


def _named(sample: str, model: Any, transform: Any, tokenizer: Any) -> Any:
    """Return the model's arguments for a picture by its path, or for a text."""
    from torch import Tensor

    from lrptrain.data.pictures import ENDINGS, open_picture
    from lrptrain.relevance.model.arguments import as_arguments
    from lrptrain.trainers.discover import device_of
    from lrptrain.trainers.naming import check_vocabulary

    if Path(sample).suffix.lower() not in ENDINGS:
        arguments = as_arguments(model, sample, tokenizer)
        ids = arguments if isinstance(arguments, Tensor) else arguments["input_ids"]
        check_vocabulary(ids[0].tolist(), model)
        return arguments
    if transform is None:
        raise ValueError(
            "a picture needs the transform of the validation images: write a function that returns "
            '{"model": model, "loader": loader, "transform": transform}, which makes [channels, height, width] of an '
            "RGB image of PIL"
        )
    picture = open_picture(Path(sample))
    # As torchvision's ImageFolder opens them; of 16 bits a conversion would leave white.
    pixels = transform(picture if picture.mode.startswith(("I", "F")) else picture.convert("RGB"))
    if not isinstance(pixels, Tensor) or pixels.ndim != 3:
        made = list(pixels.shape) if isinstance(pixels, Tensor) else f"a {type(pixels).__name__}"
        raise ValueError(f"the transform makes {made} of {sample}: it must make a tensor [channels, height, width]")
    return pixels[None].to(device_of(model))
