"""Find what the monitor needs on a trainer and a LightningModule, and say what to change where it is missing."""

import json
import operator
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from torch import nn

from lrptrain.extras import require


def find_model(pl_module: Any, path: str | None) -> nn.Module:
    """The module whose forward gives logits: at `path`, the LightningModule itself, or its only child with parameters.

    Raises:
        ValueError: If there is none, or several could be meant.
    """
    if path is not None:
        try:
            model = operator.attrgetter(path)(pl_module)
        except AttributeError as error:
            raise ValueError(f"model={path!r}: {type(pl_module).__name__} has no such attribute ({error})") from error
        if not isinstance(model, nn.Module):
            raise ValueError(f"model={path!r} is a {type(model).__name__}, not a torch module")
        return model
    # Lightning's own forward only calls torch's, which refuses.
    if type(pl_module).forward.__module__.partition(".")[0] not in ("pytorch_lightning", "lightning", "torch"):
        return pl_module
    children = {name: child for name, child in pl_module.named_children() if any(True for _ in child.parameters())}
    if len(children) == 1:
        return next(iter(children.values()))
    raise ValueError(
        f"{type(pl_module).__name__} has no forward of its own, and its model could be any of {sorted(children)}: say which "
        "with model='<attribute>'"
    )


def find_tokens(tokenizer: Any, *owners: Any) -> Callable[[list[int]], list[str]]:
    """How to name tokens: the tokenizer given (or its name or folder), or the one of an owner, or else their numbers."""
    if isinstance(tokenizer, str):
        tokenizer = require("transformers", "transformers").AutoTokenizer.from_pretrained(tokenizer)
    candidates = [tokenizer, *(getattr(owner, "tokenizer", None) for owner in owners)]
    found = next((one for one in candidates if hasattr(one, "convert_ids_to_tokens")), None)
    return found.convert_ids_to_tokens if found is not None else lambda ids: [f" {number}" for number in ids]


def find_class_names(given: Sequence[str] | None, owners: Sequence[Any], classes: int) -> list[str]:
    """Names of all classes: as given, as an owner's `class_names`, or their numbers. Names that recur get their number.

    Raises:
        ValueError: If names were given, but too few.
    """
    names = (
        given if given is not None else next((own for o in owners if (own := getattr(o, "class_names", None))), None)
    )
    if names is None:
        return [str(i) for i in range(classes)]
    if len(names) < classes:
        raise ValueError(
            f"{len(names)} class_names for {classes} classes: name all of them, in the order of the logits"
        )
    return [name if list(names).count(name) == 1 else f"{name} ({i})" for i, name in enumerate(map(str, names))]


def new_run_folder(root: str | Path, name: str | None) -> Path:
    """`<root>/relevance/<name>`, named by the time where no name is given; an existing one is not reused."""
    base = Path(root) / "relevance" / (name or datetime.now().strftime("%Y-%m-%d_%H-%M-%S"))
    folder, number = base, 2
    while folder.exists() and name is None:
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Write `run.json`: what was monitored, and how."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(settings, indent=1, default=str), encoding="utf-8")


def logged_step(trainer: Any) -> int:
    """The step at which Lightning logs validation values: batches that stepped, not `global_step`."""
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)
