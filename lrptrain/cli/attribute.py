"""`lrptrain attribute`: explain one image or text with a checkpoint."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from lrptrain.batch.task import Task
    from lrptrain.cli.checkpoint import Checkpoint
    from lrptrain.cli.normalisation import Normalisation
    from lrptrain.relevance import Relevance

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")


def show_relevance(
    checkpoint: str,
    source: str,
    target: int | str | None = None,
    method: str | None = None,
    output: str = "relevance.png",
    size: int | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    tokenizer: str | None = None,
    class_names: str | None = None,
    data: str | None = None,
    module: str | None = None,
    model: str | None = None,
    batch_adapter: str | None = None,
    task: str | None = None,
    device: str | None = None,
    trust: bool = False,
) -> None:
    """Show which patches of an image, or which words of a text, speak for a class.

    How images were normalised in training is read from the data, the checkpoint or the model's card, and said; where
    nobody says it, it is asked for.

    Args:
        checkpoint: Path of a checkpoint of `lrptrain fit`, or of any LightningModule named by --module.
        source: The path of an image, or a text.
        target: The class to explain, by its index or its name; else the predicted one.
        method: One of `lrptrain.methods()`; else the default one, or what takes its place where that cannot serve the
            model.
        output: The file to which an image is written, beside its map.
        size: Side to which an image is resized; else the model's own.
        mean: Mean of each channel that the training images were normalised with, in 0..1; else as the data, the
            checkpoint or the model's card says.
        std: Standard deviation of each channel that the training images were normalised with; else as the data, the
            checkpoint or the model's card says.
        tokenizer: Name or folder of the tokenizer of a text model, or "minilm"; else the one of the data, the
            checkpoint or the model.
        class_names: Names of all classes separated by commas, in the order of the logits; else as the data, the
            checkpoint or the model says.
        data: package.DataModule, "package.DataModule(argument=value)", a loader, or a config of which the `data:`
            section is read; else the data that the checkpoint was trained with, where it says so.
        module: package.Class of the LightningModule, "package.Class(argument=value)", or a config of which the `model:`
            section is read; else the checkpoint's own, or this project's for images and texts.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: package.function that brings a batch of another form to the names of the contract.
        task: What the output means, where it does not say so: "binary" (one logit), "lrptrain.OneLabel(column=2)" of
            several labels per sample, or "lrptrain.Regression(mean=3.5, std=1.2)".
        device: "cpu" (the default), "cuda" ...
        trust: Also load a checkpoint that holds objects of any class, whose making runs code that the file brings.

    Raises:
        ValueError: If a text's tokenizer or an image's normalisation is not known, or only one of mean and std is.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.cli.checkpoint import read_checkpoint
    from lrptrain.cli.datasets import load_adapter, load_data, load_task, loader_of, names_in
    from lrptrain.cli.modules import load_module
    from lrptrain.cli.normalisation import Normalisation, find_normalisation, given_numbers
    from lrptrain.trainers.checks import check_normalisation
    from lrptrain.trainers.discover import find_model
    from lrptrain.trainers.naming import find_tokenizer, loader_sources

    check_normalisation(mean, std)
    meaning = load_task(task)
    is_image = _is_file(source)
    saved = read_checkpoint(checkpoint, trust)
    owner = load_module(saved, is_image, module)
    named_data = None if data is None else load_data(saved, data)
    # Many datamodules make their tokenizer when they are set up, as for a loader.
    of_data = [] if named_data is None else [named_data, *loader_sources(loader_of(named_data, "val"))]
    explained = _Explained(
        model=find_model(owner, model).eval().to(device or "cpu"),
        name_sources=[*of_data, owner, saved.datamodule_settings, saved.module_settings],
        class_names=meaning.class_names if class_names is None else names_in(class_names),
        task=meaning,
        target=target,
        method=method,
    )
    if is_image:
        adapter = load_adapter(batch_adapter)
        if mean is not None and std is not None:
            normalisation = Normalisation(given_numbers(mean), given_numbers(std), "--mean and --std")
        else:
            if named_data is None and "mean" not in saved.datamodule_settings:
                named_data = _trained_with(saved)
            normalisation = find_normalisation(owner, saved, named_data, adapter)
        print(normalisation)
        _show_image(explained, Path(source), Path(output), size, normalisation)
        return
    words = find_tokenizer(tokenizer, explained.name_sources)
    if words is None:
        or_data = ", or --data package.DataModule that has one" if named_data is None else ""
        raise ValueError(f"nothing says which tokenizer the texts had: pass --tokenizer NAME{or_data}")
    _show_text(explained, source, words)


@dataclass(frozen=True)
class _Explained:
    """A model, what is known about it, and what of it is explained.

    Attributes:
        model: The model.
        name_sources: Who may know the names of classes and the tokenizer.
        class_names: As the user or the task says; None without.
        task: What the output means.
        target: The class, its name, or None for the predicted one.
        method: The name of the method; None for the default one.
    """

    model: "torch.nn.Module"
    name_sources: list[Any]
    class_names: list[str] | None
    task: "Task"
    target: int | str | None
    method: str | None

    @property
    def device(self) -> "torch.device":
        return next(self.model.parameters()).device

    def names(self, classes: int) -> list[str] | None:
        """Return the names of the classes; None where nobody names them."""
        from lrptrain.trainers.naming import find_class_names

        return find_class_names(self.class_names, self.name_sources, classes)

    def relevance(self, inputs: Any) -> "tuple[Relevance, list[str] | None]":
        """Return the relevance of one sample, and the names of the classes."""
        import torch

        from lrptrain.auditing.brought import predict_logits
        from lrptrain.relevance import attribute
        from lrptrain.trainers.naming import find_class

        target = self.target
        if isinstance(target, str):
            with torch.no_grad(), self.task.reading():
                classes = predict_logits(self.model, inputs).shape[1]
            target = find_class(target, self.names(classes))
        with self.task.reading():  # one logit as those of two classes
            relevance = attribute(self.model, inputs, target, self.method)
        return relevance, self.names(relevance.logits.shape[1])


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


def _trained_with(saved: "Checkpoint") -> Any:
    """Return the data that a checkpoint names, set up; None where it names none, or they are not here any more."""
    from lrptrain.cli.datasets import load_data, loader_of

    with suppress(ValueError, OSError, ImportError):
        data = load_data(saved, None)
        loader_of(data, "val")  # sets it up
        return data
    return None


def _image_size(model: "torch.nn.Module") -> tuple[int, int]:
    """Return height and width of the images that a model was built for, as timm's or Hugging Face's config knows them.

    Raises:
        ValueError: If neither does.
    """
    from lrptrain.segmentation.sizes import native_size

    if (size := native_size(model)) is not None:
        return size
    raise ValueError("the model does not say for which image size it was built: pass --size")


def _show_image(
    explained: _Explained, path: Path, output: Path, size: int | None, normalisation: "Normalisation"
) -> None:
    from PIL import Image

    from lrptrain.data.pictures import open_picture, to_image
    from lrptrain.render import titled_pair

    height, width = (size, size) if size is not None else _image_size(explained.model)
    # [3, height, width] in [0, 1], then as the model saw images in training.
    image = normalisation.apply(to_image(open_picture(path), (height, width)))
    relevance, names = explained.relevance(image[None].to(explained.device))
    assert relevance.grid is not None
    # Scores [1, patches] become a heat map [rows, columns].
    heat = relevance.scores[0].unflatten(0, relevance.grid)
    title = f"target {_named(relevance, names, int(relevance.target[0]))}"
    pair = titled_pair(image, heat, title=title, mean=normalisation.mean, std=normalisation.std)
    Image.fromarray(pair.picture).save(output)
    print(f"{_prediction(relevance, names)}\n{output}")


def _show_text(explained: _Explained, text: str, words: Any) -> None:
    from lrptrain.relevance.shown.showing import scored_by
    from lrptrain.render import token_ansi, token_words
    from lrptrain.render.view import takes_color
    from lrptrain.trainers.naming import check_vocabulary

    encoded = words(text, return_tensors="pt", truncation=True)
    ids = encoded["input_ids"][0].tolist()
    check_vocabulary(ids, explained.model)
    # Tensors [1, tokens]; token_type_ids are left out, as in the batches of training.
    inputs = {name: encoded[name].to(explained.device) for name in ("input_ids", "attention_mask")}
    relevance, names = explained.relevance(inputs)
    # [CLS] and [SEP] often hold nearly all of the relevance: they are not coloured, and do not set the scale.
    tokens = words.convert_ids_to_tokens(ids)
    show = token_ansi if takes_color() else token_words
    print(show(tokens, relevance.scores[0].cpu().numpy(), scored=scored_by(words, ids, tokens)))
    print(_prediction(relevance, names))


def _prediction(relevance: "Relevance", names: Sequence[str] | None) -> str:
    """Return a line with the predicted class, and the explained one where it is another, and their probabilities."""
    target = int(relevance.target[0])
    predicted = int(relevance.logits[0].argmax())
    text = f"predicted {_named(relevance, names, predicted)}"
    return text if target == predicted else f"{text}; explained {_named(relevance, names, target)}"


def _named(relevance: "Relevance", names: Sequence[str] | None, index: int) -> str:
    """Return a class by its number and name, and its probability."""
    name = "" if names is None else f" {names[index]!r}"
    return f"class {index}{name} ({float(relevance.logits[0].softmax(0)[index]):.1%})"
