"""The options `--settings.*` of `lrptrain audit`, without an import of the tests that declare them."""

import ast
from collections.abc import Iterator
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

CHECKS = Path(__file__).parents[1] / "auditing" / "checks"


def declared_settings() -> Iterator[tuple[str, str, Any, str]]:
    """Yield name, type, default and help of each `name: type = setting(default, "help")` in the tests' files.

    They are read from the source: to import the tests takes seconds, for which a help should not be waited.
    """
    for file in sorted(CHECKS.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.AnnAssign(
                    target=ast.Name(id=name),
                    annotation=kind,
                    value=ast.Call(func=ast.Name(id="setting"), args=[default, text]),
                ):
                    yield name, ast.unparse(kind), ast.literal_eval(default), ast.literal_eval(text)


def settings_class() -> type:
    """Return a dataclass with the fields of `lrptrain.auditing.AuditSettings`."""
    # By name: several tests may have a setting, with one default.
    declared = {name: (kind, default, text) for name, kind, default, text in declared_settings()}
    columns = [(name, kind, field(default=default)) for name, (kind, default, _) in declared.items()]
    settings = make_dataclass("CliAuditSettings", columns, frozen=True, kw_only=True)
    settings.__module__ = __name__  # where the names of its types are looked up
    # The command line reads its help from the docstring.
    lines = [f"    {name}: {text}" for name, (_, _, text) in declared.items()]
    settings.__doc__ = "\n".join(["How much an audit spends on each of its tests.", "", "Attributes:", *lines, ""])
    return settings


# The fields are those of the tests, so they are known at run time only.
if TYPE_CHECKING:

    class CliAuditSettings:
        """How much an audit spends on each of its tests; its fields are the settings of the tests."""

        def __init__(self, **settings: Any) -> None: ...

else:
    CliAuditSettings = settings_class()
