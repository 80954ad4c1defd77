"""YAML that somebody else wrote: what it would unpack to is counted before anything of it is made."""

from functools import cache
from typing import Any

from lrptrain.extras import require

MOST_CHARACTERS = 2**20
"""Of a config; those of `configs/` have some thousands."""
MOST_NODES = 100_000
"""Values with those that aliases repeat: nine lists of nine aliases to the one before are a billion.

A config with the names of 21,000 classes, twice, has half as many.
"""
DEEPEST = 100
"""Of values within values: Python's own limit, which ends a deeper file in a traceback, is 1000 calls."""


def load_yaml(text: str) -> Any:
    """Return what a text of YAML, or JSON, says.

    Raises:
        ValueError: If it is none, or too large.
    """
    yaml = require("yaml", "cli")
    try:
        check_yaml(text)
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {' '.join(str(error).split())}") from error


def check_yaml(text: str) -> None:
    """Refuse a text that unpacks to more than any config.

    Raises:
        yaml.YAMLError: If it is none, or too large; with what there is too much of.
    """
    yaml = require("yaml", "cli")
    if len(text) > MOST_CHARACTERS:
        raise yaml.YAMLError(f"{len(text)} characters, more than {MOST_CHARACTERS}")
    sizes: dict[str, int] = {}  # the values below each anchor that has ended, and itself
    open_nodes: list[tuple[str | None, int]] = []  # the anchor of each node that has begun, and the count before it
    count = 0
    # Events come one after the other: neither depth nor aliases cost anything here.
    for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise yaml.YAMLError(f"the alias {event.anchor!r} of a value that it is part of, or of none")
            count += sizes[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, count))
            count += 1
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            sizes |= {event.anchor: 1} if event.anchor else {}
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            sizes |= {anchor: count - before} if anchor else {}
        if len(open_nodes) > DEEPEST:
            raise yaml.YAMLError(f"values nested more than {DEEPEST} deep")
        if count > MOST_NODES:
            raise yaml.YAMLError(f"more than {MOST_NODES} values, with those that aliases repeat")


@cache
def guard_configs() -> None:
    """Let jsonargparse, which reads the configs of all verbs, refuse such texts, too, wherever it finds one."""
    jsonargparse = require("jsonargparse", "cli")
    yaml = require("yaml", "cli")
    load = jsonargparse.get_loader("yaml")

    def load_checked(text: str) -> Any:
        check_yaml(text)
        return load(text)

    jsonargparse.set_loader("yaml", load_checked, exceptions=(yaml.YAMLError,))
