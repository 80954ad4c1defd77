"""Explain one image or text with a checkpoint, from the command line."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from lrptrain.relevance import Relevance, attribute
from lrptrain.segmentation.sizes import native_size
from lrptrain.trainers.checks import check_looks


def attribute_file(
    checkpoint: str,
    source: str,
    target: int | None = None,
    method: str = "transformer_attribution",
    output: str = "relevance.png",
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    tokenizer: str | None = None,
    module: str | None = None,
) -> None:
    """Show which patches of an image, or which words of a text, speak for a class.

    Args:
        checkpoint: Of `lrptrain fit`, or of any LightningModule named by --module.
        source: The path of an image, or a text.
        target: The class to explain; else the predicted one.
        method: One of `lrptrain.methods()`.
        output: Where the overlay of an image is written.
        size: Side to which an image is resized; else the model's own.
        mean: Per channel, as the training images were normalised with; else as the checkpoint's datamodule says.
        std: Per channel, likewise.
        tokenizer: Name or folder of the tokenizer of a text model, or "minilm"; else the one of the checkpoint.
        module: Dotted path of the LightningModule; else this project's own for images and texts.

    Raises:
        ValueError: If a text's tokenizer is not known, or only one of mean and std is.
    """
    is_image = _is_file(source)
    own = "lrptrain.models.ImageClassifier" if is_image else "lrptrain.models.TextClassifier"
    model = load_module(module or own, checkpoint)
    trained = datamodule_settings(checkpoint)
    if is_image:
        mean, std = (trained.get(name) if given is None else given for name, given in (("mean", mean), ("std", std)))
        check_looks(mean, std)
        _image(model, Path(source), target, method, Path(output), size, mean, std)
        return
    known = tokenizer or trained.get("tokenizer")
    if known is None:
        raise ValueError("the checkpoint does not say which tokenizer its texts had: pass --tokenizer")
    _text(model, source, target, method, known)


def _is_file(source: str) -> bool:
    """Whether this is an image's path.

    Raises:
        FileNotFoundError: If it looks like one and is none.
    """
    try:
        found = Path(source).is_file()
    except OSError:  # longer than any path
        return False
    if not found and Path(source).suffix.lower() in (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"):
        raise FileNotFoundError(f"there is no image {source!r}")
    return found


def datamodule_settings(checkpoint: str) -> dict[str, Any]:
    """The arguments of the datamodule that a checkpoint was trained with, as far as it saved them."""
    saved = torch.load(checkpoint, map_location="cpu", weights_only=False)
    return dict(saved.get("datamodule_hyper_parameters", {}))


def load_module(path: str, checkpoint: str) -> Any:
    """The LightningModule at a dotted path, from a checkpoint, in evaluation mode.

    Raises:
        FileNotFoundError: If there is no such checkpoint.
    """
    if not Path(checkpoint).is_file():
        raise FileNotFoundError(f"there is no checkpoint {checkpoint!r}")
    package, _, name = path.rpartition(".")
    return getattr(import_module(package), name).load_from_checkpoint(checkpoint, map_location="cpu").eval()


def _image(
    model: Any,
    path: Path,
    target: int | None,
    method: str,
    output: Path,
    size: int | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> None:
    from PIL import Image

    from lrptrain.data.pictures import open_picture, to_image
    from lrptrain.render import overlay

    height, width = (size, size) if size is not None else image_size(model)
    image = to_image(open_picture(path), (height, width))
    if mean is not None and std is not None:
        image = (image - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)
    relevance = attribute(model, image[None], target, method)
    assert relevance.grid is not None
    picture = overlay(image, relevance.scores[0].unflatten(0, relevance.grid), mean=mean, std=std)
    Image.fromarray(picture).save(output)
    print(f"{_said(relevance)}\n{output}")


def image_size(model: torch.nn.Module) -> tuple[int, int]:
    """The size of image that a model was built for: timm's patch embedding or Hugging Face's config knows it.

    Raises:
        ValueError: If neither does.
    """
    if (size := native_size(model)) is not None:
        return size
    raise ValueError("the model does not say for which image size it was built: pass --size")


def _text(model: Any, text: str, target: int | None, method: str, tokenizer: str) -> None:
    from lrptrain.models.huggingface import load_pretrained
    from lrptrain.render import token_ansi

    words = load_pretrained("AutoTokenizer", tokenizer)
    encoded = words(text, return_tensors="pt", truncation=True)
    inputs = {name: encoded[name] for name in ("input_ids", "attention_mask")}
    relevance = attribute(model, inputs, target, method)
    ids = encoded["input_ids"][0].tolist()
    special = words.get_special_tokens_mask(ids, already_has_special_tokens=True)
    scored = [not each for each in special]
    print(f"{token_ansi(words.convert_ids_to_tokens(ids), relevance.scores[0].numpy(), scored=scored)}")
    print(_said(relevance))


def _said(relevance: Relevance) -> str:
    probabilities = relevance.logits[0].softmax(0)
    target, predicted = int(relevance.target[0]), int(probabilities.argmax())
    said = f"predicted class {predicted} ({float(probabilities[predicted]):.1%})"
    return said if target == predicted else f"{said}; explained class {target} ({float(probabilities[target]):.1%})"
