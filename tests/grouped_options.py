"""Options of a monitor as one flat dict, which tests change here and there, brought to the groups that they lie in."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from lrptrain.monitor.config import GROUPS


def grouped(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with those of `Show`, `Judge` and `Run` in their group; unknown ones stay."""
    homes = {each.name: name for name, group in GROUPS.items() for each in fields(group)}
    direct = {name: value for name, value in options.items() if name not in homes}
    for name, group in GROUPS.items():
        inside = {each: value for each, value in options.items() if homes.get(each) == name}
        if inside:
            direct[name] = group(**inside)
    return direct
