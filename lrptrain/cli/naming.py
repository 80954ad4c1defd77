"""The tokenizer and the class names that belong to a model: of the user, the data, the checkpoint or the model."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn

NAMES = ("class_names", "classes", "label_names", "labels")
"""What datamodules, datasets and modules call the names of their classes."""


def find_class_names(given: Sequence[str] | None, sources: Iterable[Any], classes: int) -> list[str] | None:
    """Return the names of all classes, in the order of the logits; None where nobody names them.

    Args:
        given: As the user says.
        sources: Datamodule, dataset, module and dicts of their arguments, which are asked in this order.
        classes: The number of logits.

    Raises:
        ValueError: If the user names another number of classes.
    """
    if given is not None:
        if len(given) != classes:
            raise ValueError(f"--class-names has {len(given)} names, and the model {classes} classes: name all of them")
        return list(given)
    for source in sources:
        for name in NAMES:
            names = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
            if names is not None and _are_names(names, classes):
                return list(names)
        if isinstance(source, nn.Module) and (names := _of_config(source, classes)):
            return names
    return None


def find_class(target: int | str | None, names: Sequence[str] | None) -> int | None:
    """Return the index of a class that may be named.

    Raises:
        ValueError: If there is no class of this name.
    """
    if not isinstance(target, str):
        return target
    if target.isdecimal():
        return int(target)
    if names is None:
        raise ValueError(f"--target {target!r}: nobody says how the classes are called; pass --class-names or an index")
    if target not in names:
        raise ValueError(f"there is no class {target!r}; there are {', '.join(names)}")
    return list(names).index(target)


def find_tokenizer(given: str | None, objects: Iterable[Any], settings: Iterable[Mapping[str, Any]]) -> Any:
    """Return the tokenizer of a model's texts.

    Args:
        given: Its name or folder, as the user says.
        objects: Datamodule and module: one of their attributes may be the tokenizer, whatever it is called.
        settings: Arguments that datamodule and module saved: one of them may name the tokenizer.

    Raises:
        OSError: If a tokenizer of that name is not found.
        ValueError: If nobody says which.
    """
    from lrptrain.models.pretrained import load_pretrained

    if given is not None:
        return load_pretrained("AutoTokenizer", given)
    objects = [each for each in objects if each is not None]
    for each in objects:
        for value in vars(each).values():
            if hasattr(value, "convert_ids_to_tokens"):
                return value
    for saved in settings:
        for name, value in saved.items():
            if "tokenizer" in name and isinstance(value, str):
                return load_pretrained("AutoTokenizer", value)
    for folder in _folders(objects):
        try:
            return load_pretrained("AutoTokenizer", folder, local_files_only=True)
        except (OSError, ValueError):
            continue
    raise ValueError(
        "nothing says which tokenizer the texts had: pass --tokenizer NAME, or --data package.DataModule that has one"
    )


def check_vocabulary(ids: Sequence[int], model: nn.Module) -> None:
    """Reject token ids that the model's embedding has no row for.

    Raises:
        ValueError: If the tokenizer is that of another model.
    """
    find = getattr(model, "get_input_embeddings", None)
    embedding = next((each for each in model.modules() if isinstance(each, nn.Embedding)), None)
    rows = getattr(find() if find is not None else embedding, "num_embeddings", None)
    if rows is not None and max(ids) >= rows:
        raise ValueError(
            f"the tokenizer gives token {max(ids)}, and the model has {rows}: it is not the one that the model was "
            "trained with; pass --tokenizer NAME"
        )


def _are_names(names: Any, classes: int) -> bool:
    is_list = isinstance(names, Sequence) and not isinstance(names, str)
    return is_list and len(names) == classes and all(isinstance(name, str) for name in names)


def _of_config(module: nn.Module, classes: int) -> list[str] | None:
    """Return the names in the config of a Hugging Face model; None where it only numbers them."""
    for part in module.modules():
        names = getattr(getattr(part, "config", None), "id2label", None)
        if isinstance(names, Mapping) and len(names) == classes and sorted(names) == list(range(classes)):
            listed = [str(names[index]) for index in range(classes)]
            return None if listed == [f"LABEL_{index}" for index in range(classes)] else listed
    return None


def _folders(objects: Iterable[Any]) -> Iterator[str]:
    """Yield where the Hugging Face models among some modules were loaded from."""
    for each in objects:
        for part in each.modules() if isinstance(each, nn.Module) else ():
            if folder := getattr(getattr(part, "config", None), "name_or_path", ""):
                yield str(folder)
