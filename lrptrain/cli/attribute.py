"""`lrptrain attribute`: explain one image or text with a checkpoint."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from lrptrain.cli.loading import datamodule_settings, image_size, load_model
from lrptrain.relevance import Relevance, attribute
from lrptrain.trainers.checks import check_normalisation

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")


def show_relevance(
    checkpoint: str,
    source: str,
    target: int | None = None,
    method: str | None = None,
    output: str = "relevance.png",
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    tokenizer: str | None = None,
    module: str | None = None,
    model: str | None = None,
    device: str | None = None,
) -> None:
    """Show which patches of an image, or which words of a text, speak for a class.

    Args:
        checkpoint: Path of a checkpoint of `lrptrain fit`, or of any LightningModule named by --module.
        source: The path of an image, or a text.
        target: The class to explain; else the predicted one.
        method: One of `lrptrain.methods()`; else the default one, or what takes its place where that cannot serve the
            model.
        output: The file to which the overlay of an image is written.
        size: Side to which an image is resized; else the model's own.
        mean: Mean of each channel that the training images were normalised with; else as the checkpoint's datamodule
            says.
        std: Standard deviation of each channel that the training images were normalised with; else as the checkpoint's
            datamodule says.
        tokenizer: Name or folder of the tokenizer of a text model, or "minilm"; else the one of the checkpoint.
        module: Dotted path of the LightningModule's class; else the checkpoint's own, or this project's for images and
            texts.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        device: "cpu" (the default), "cuda" ...

    Raises:
        ValueError: If a text's tokenizer is not known, or only one of mean and std is.
    """
    is_image = _is_file(source)
    network = load_model(checkpoint, is_image, module, model).to(device or "cpu")
    settings = datamodule_settings(checkpoint)
    # What the command says counts before what the checkpoint's datamodule says.
    if is_image:
        mean = settings.get("mean") if mean is None else mean
        std = settings.get("std") if std is None else std
        check_normalisation(mean, std)
        _show_image(network, Path(source), target, method, Path(output), size, mean, std)
        return
    tokenizer = tokenizer or settings.get("tokenizer")
    if tokenizer is None:
        raise ValueError("the checkpoint does not say which tokenizer its texts had: pass --tokenizer")
    _show_text(network, source, target, method, tokenizer)


def _is_file(source: str) -> bool:
    """Whether this is an image's path.

    Raises:
        FileNotFoundError: If it looks like one, but no file is there.
    """
    try:
        exists = Path(source).is_file()
    except OSError:  # longer than any path
        return False
    if not exists and Path(source).suffix.lower() in PICTURES:
        raise FileNotFoundError(f"there is no image {source!r}")
    return exists


def _show_image(
    model: torch.nn.Module,
    path: Path,
    target: int | None,
    method: str | None,
    output: Path,
    size: int | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> None:
    from PIL import Image

    from lrptrain.data.pictures import open_picture, to_image
    from lrptrain.render import overlay

    height, width = (size, size) if size is not None else image_size(model)
    # [3, height, width] in [0, 1], then as the model saw images in training.
    image = to_image(open_picture(path), (height, width))
    if mean is not None and std is not None:
        image = (image - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)
    relevance = attribute(model, image[None].to(_device_of(model)), target, method)
    assert relevance.grid is not None
    # Scores [1, patches] become a heat map [rows, columns].
    picture = overlay(image, relevance.scores[0].unflatten(0, relevance.grid), mean=mean, std=std)
    Image.fromarray(picture).save(output)
    print(f"{_prediction(relevance)}\n{output}")


def _show_text(model: torch.nn.Module, text: str, target: int | None, method: str | None, tokenizer: str) -> None:
    from lrptrain.models.pretrained import load_pretrained
    from lrptrain.render import token_ansi

    words: Any = load_pretrained("AutoTokenizer", tokenizer)
    encoded = words(text, return_tensors="pt", truncation=True)
    # Tensors [1, tokens]; token_type_ids are left out, as in the batches of training.
    inputs = {name: encoded[name].to(_device_of(model)) for name in ("input_ids", "attention_mask")}
    relevance = attribute(model, inputs, target, method)
    ids = encoded["input_ids"][0].tolist()
    # [CLS] and [SEP] often hold nearly all of the relevance: they are not coloured, and do not set the scale.
    special = words.get_special_tokens_mask(ids, already_has_special_tokens=True)
    scored = [not each for each in special]
    print(token_ansi(words.convert_ids_to_tokens(ids), relevance.scores[0].cpu().numpy(), scored=scored))
    print(_prediction(relevance))


def _device_of(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device


def _prediction(relevance: Relevance) -> str:
    """Return a line with the predicted class, and the explained one where it is another, and their probabilities."""
    probabilities = relevance.logits[0].softmax(0)
    target = int(relevance.target[0])
    predicted = int(probabilities.argmax())
    text = f"predicted class {predicted} ({float(probabilities[predicted]):.1%})"
    if target == predicted:
        return text
    return f"{text}; explained class {target} ({float(probabilities[target]):.1%})"
