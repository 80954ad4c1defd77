"""What classes and tokens are called: as the user says, or the data, the checkpoint or the model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from torch import nn

from lrptrain.terminal import give_warning
from lrptrain.trainers.failures import describe_error

if TYPE_CHECKING:
    import pytorch_lightning as pl

NameSources = Sequence[Any]
"""Objects that may know the names of classes and the tokenizer, or mappings of arguments; the first one first."""
CLASS_NAMES = ("class_names", "classes", "label_names", "labels", "id2label", "names")
"""What datamodules, datasets and modules call the names of their classes."""
_FAILED: list[Any] = []
"""Tokenizers that could not name tokens: they are not asked again."""


def name_sources(trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> NameSources:
    """Return the datamodule, the validation set, what stacks its batches, and the module: they count in this order."""
    loaders = getattr(trainer, "val_dataloaders", None)
    return [getattr(trainer, "datamodule", None), *loader_sources(loaders), pl_module]


def loader_sources(loaders: Any) -> list[Any]:
    """Return the dataset of a dataloader, or of the first of several, those it is a part of, and its collate_fn."""
    if isinstance(loaders, Mapping):
        loaders = list(loaders.values())
    loader = loaders[0] if isinstance(loaders, list | tuple) and loaders else loaders
    sources = []
    dataset = getattr(loader, "dataset", None)
    while dataset is not None:
        sources.append(dataset)
        dataset = getattr(dataset, "dataset", None)  # a subset holds the dataset that it is of
    return [*sources, getattr(loader, "collate_fn", None)]


def find_class_names(given: Sequence[str] | None, sources: NameSources, classes: int) -> list[str] | None:
    """Return the names of all classes, in the order of the logits; None where nobody names them."""
    if given is not None:
        if len(given) != classes:
            raise ValueError(
                f"class_names has {len(given)} names for {classes} logits: name all classes, in the order of the logits"
            )
        return [str(name) for name in given]
    for source in sources:
        for names in _candidates(source):
            if (listed := _listed(names)) is not None and len(listed) == classes:
                return listed
    return None


def class_names_or_numbers(given: Sequence[str] | None, sources: NameSources, classes: int) -> list[str]:
    """Return the names of all classes, or else their numbers; a name that occurs twice gets the number of its class."""
    names = find_class_names(given, sources, classes) or [str(index) for index in range(classes)]
    return [name if names.count(name) == 1 else f"{name} ({index})" for index, name in enumerate(names)]


def find_class(target: int | str | None, names: Sequence[str]) -> int | None:
    """Return the index of a class that may be named."""
    if not isinstance(target, str):
        return target
    if target.isdecimal():
        return int(target)
    if target not in names:
        raise ValueError(f"there is no class {target!r}; there are {', '.join(names)}")
    return list(names).index(target)


def find_tokenizer(given: Any, sources: NameSources) -> Any:
    """Return the tokenizer of a model's texts; None where nobody says which.

    Asked in this order: the user; an attribute `tokenizer` of a source; any other attribute that can name tokens; a
    saved argument that names a tokenizer, and the folder from which a Hugging Face model among the modules was loaded,
    both here or in the cache of the hub.
    """
    if isinstance(given, str):
        return _loaded(given)
    attributes = (_asked(source, "tokenizer") for source in sources)
    others = (value for source in sources for value in getattr(source, "__dict__", {}).values())
    for each in (given, *attributes, *others):
        if callable(_asked(each, "convert_ids_to_tokens")) and not any(each is other for other in _FAILED):
            return each
    # Whoever wrote the arguments, as those of a checkpoint, nothing is fetched for them.
    saved = [
        value
        for source in sources
        for name, value in _arguments(source).items()
        if "tokenizer" in str(name) and isinstance(value, str)
    ]
    return next((each for each in map(_loaded_here, [*saved, *_folders(sources)]) if each is not None), None)


def find_tokens(tokenizer: Any, sources: NameSources) -> Callable[[list[int]], list[str]]:
    """Return a function that brings token ids to token strings; without a tokenizer that can, their numbers."""
    chosen = find_tokenizer(tokenizer, sources)

    def named(ids: list[int]) -> list[str]:
        if chosen is not None:
            try:
                return chosen.convert_ids_to_tokens(ids)
            except Exception as error:
                _FAILED.append(chosen)
                _say(f"the tokenizer {type(chosen).__name__} fails ({describe_error(error)}): tokens go by their ids")
        return [f" {number}" for number in ids]

    return named


def has_tokenizer(tokenizer: Any, sources: NameSources) -> bool:
    """Return whether `find_tokens` would find a tokenizer; one that is named is not loaded for it."""
    return isinstance(tokenizer, str) or find_tokenizer(tokenizer, sources) is not None


def check_vocabulary(ids: Sequence[int], model: nn.Module) -> None:
    """Reject token ids that the model's embedding has no row for."""
    find = getattr(model, "get_input_embeddings", None)
    embedding = next((each for each in model.modules() if isinstance(each, nn.Embedding)), None)
    rows = getattr(find() if find is not None else embedding, "num_embeddings", None)
    if rows is not None and max(ids) >= rows:
        raise ValueError(
            f"the tokenizer gives token {max(ids)}, and the model has {rows}: it is not the one that the model was "
            "trained with"
        )


@cache
def _say(problem: str) -> None:
    """Warn of what names nothing, once."""
    give_warning(f"lrptrain: {problem}")


def _asked(owner: Any, name: str) -> Any:
    """Return an attribute; None where there is none, or the user's property fails."""
    try:
        return getattr(owner, name, None)
    except Exception as error:
        _say(f"{name} of {type(owner).__name__} cannot be read ({describe_error(error)}), and names nothing")
        return None


def _candidates(source: Any) -> Iterator[Any]:
    """Yield what a source may mean as the names of classes."""
    for name in CLASS_NAMES:
        yield source.get(name) if isinstance(source, Mapping) else _asked(source, name)
    # A dataset of Hugging Face's `datasets` says of its columns what their numbers mean.
    features = getattr(source, "features", None)
    if isinstance(features, Mapping):
        yield from (getattr(features.get(column), "names", None) for column in ("label", "labels"))
    for part in source.modules() if isinstance(source, nn.Module) else ():
        names = getattr(getattr(part, "config", None), "id2label", None)
        # `LABEL_0`, `LABEL_1` ... are what transformers writes where nobody has named them.
        if isinstance(names, Mapping) and set(names.values()) != {f"LABEL_{index}" for index in range(len(names))}:
            yield names


def _listed(names: Any) -> list[str] | None:
    """Return names by the index of their class; None for anything else, such as the labels of all samples."""
    if isinstance(names, Mapping):
        numbered = {str(index): name for index, name in names.items()}
        names = [numbered.get(str(index)) for index in range(len(numbered))]
    if not isinstance(names, Sequence) or isinstance(names, str) or not all(isinstance(name, str) for name in names):
        return None
    return [str(name) for name in names]


def _arguments(source: Any) -> Mapping[str, Any]:
    """Return the arguments that a module or datamodule saved, or a checkpoint holds."""
    return source if isinstance(source, Mapping) else dict(getattr(source, "hparams", None) or {})


def _folders(sources: Iterable[Any]) -> Iterator[str]:
    """Yield where the Hugging Face models among some modules were loaded from."""
    for source in sources:
        for part in source.modules() if isinstance(source, nn.Module) else ():
            if folder := getattr(getattr(part, "config", None), "name_or_path", ""):
                yield str(folder)


@cache
def _loaded(name: str) -> Any:
    from lrptrain.models.pretrained import load_pretrained

    return load_pretrained("AutoTokenizer", name)


@cache
def _loaded_here(name: str) -> Any:
    """Return the tokenizer of a folder, or of the hub's cache; None where there is none."""
    from lrptrain.models.pretrained import TOKENIZER_FILES, folder_here, load_pretrained

    try:
        folder = folder_here(name, *TOKENIZER_FILES)
        return None if folder is None else load_pretrained("AutoTokenizer", folder, local_files_only=True)
    except Exception:  # a folder of others may hold anything
        return None
