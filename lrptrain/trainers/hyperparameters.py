"""What a training was started with, as plain values: what tells the runs of a comparison apart."""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MOST = 100
"""More hyperparameters are left out, as are the entries of a very long configuration."""
_LONGEST = 120  # characters of a value
_DEEPEST = 4
# What a settings object may hold that must not be written to a record which others read, such as `hub_token`.
_SECRET = re.compile(
    r"(^|_)((token|secret|credentials?|passphrase)|\w*passw(or)?d\w*|secret_\w+|"
    r"(\w+_)?((access|account|api|auth|client|encryption|private|ssh)_?key(_id)?|apikey))$"
)
# An address that holds a password: "postgres://me:password@host/runs".
_SECRET_ADDRESS = re.compile(r"://[^/@\s]*:[^/@\s]+@")
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def find_hyperparameters(sources: Iterable[Any]) -> dict[str, Any]:
    """Return the hyperparameters of a training by name.

    Args:
        sources: Objects that may have some, the most important one first: a mapping, a module or datamodule with the
            `hparams` of `save_hyperparameters`, an optimizer, or a dataclass of settings such as `TrainingArguments`,
            of which only what differs from its default counts.

    Returns:
        Numbers, booleans and short texts, nested ones by names such as `model.depth`. Of a name that several sources
        have, the first one counts. Objects and secrets are left out.
    """
    values: dict[str, Any] = {}
    for source in sources:
        for name, value in _plain(_settings(source)):
            if len(values) < MOST:
                values.setdefault(name, value)
    return values


def _settings(source: Any) -> Mapping[str, Any]:
    """Return what an object was made with; empty if it does not say."""
    if isinstance(source, Mapping):
        return source
    hparams = getattr(source, "hparams", None)
    if isinstance(hparams, Mapping):
        return hparams
    groups = getattr(source, "param_groups", None)
    if isinstance(groups, list) and groups:
        group = groups[0]
        # A scheduler writes the rate of the moment to `lr`, and has kept the one it began with.
        rate = group.get("initial_lr", group.get("lr"))
        return {"optimizer": type(source).__name__, "lr": rate, "weight_decay": group.get("weight_decay")}
    if dataclasses.is_dataclass(source) and not isinstance(source, type):
        return {
            field.name: getattr(source, field.name) for field in dataclasses.fields(source) if _differs(source, field)
        }
    return {}


def _differs(source: Any, field: Any) -> bool:
    value = getattr(source, field.name)
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        return False  # made anew by each: mostly objects, which are no plain values anyway
    return type(value) is not type(default) or value != default


def _is_secret(name: str, value: Any) -> bool:
    # However it is spelled: `hub_token`, `hubToken` and `hub-token` are one name, as is a dotted one by its last part.
    spelled = re.sub(r"\W", "_", _CAMEL_CASE.sub("_", name.rpartition(".")[2])).lower()
    return _SECRET.search(spelled) is not None or (isinstance(value, str) and _SECRET_ADDRESS.search(value) is not None)


def _plain(settings: Mapping[Any, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the plain values of a mapping and of those within it."""
    # Simple values first: a long configuration must not use up the room of the learning rate that stands behind it.
    for key, value in sorted(settings.items(), key=lambda item: isinstance(item[1], Mapping)):
        name = f"{prefix}{key}"
        if _is_secret(str(key), value):
            continue
        if isinstance(value, Mapping) and depth < _DEEPEST:
            yield from _plain(value, f"{name}.", depth + 1)
        elif isinstance(value, bool | int | str):
            yield name, value if not isinstance(value, str) else value[:_LONGEST]
        elif isinstance(value, float) and math.isfinite(value):
            yield name, value
        elif (
            isinstance(value, list | tuple)
            and value
            and all(isinstance(entry, bool | int | float | str) for entry in value)
        ):
            yield name, str(list(value))[:_LONGEST]
