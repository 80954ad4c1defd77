"""The settings of all audit tests in one place, as a user or the command line sets them."""

from collections.abc import Sequence
from dataclasses import Field, field, fields, make_dataclass
from typing import TYPE_CHECKING, Any

import lrptrain.auditing.checks  # noqa: F401  (registers the tests)
from lrptrain.auditing.base import AuditTest, registered_tests


def settings_class(tests: Sequence[AuditTest]) -> type:
    """Return a dataclass with a field per setting of the tests; a setting that several tests have is one field."""
    settings: dict[str, Field] = {}
    for test in tests:
        for each in fields(test):
            settings.setdefault(each.name, each)
    columns = [
        (name, each.type, field(default=each.default, metadata=each.metadata)) for name, each in settings.items()
    ]
    settings_type = make_dataclass("AuditSettings", columns, frozen=True, kw_only=True)
    settings_type.__module__ = __name__  # so that its objects can be pickled
    # The command line reads its help from the docstring.
    lines = [f"    {name}: {each.metadata['help']}" for name, each in settings.items()]
    settings_type.__doc__ = "\n".join(["How much an audit spends on each of its tests.", "", "Attributes:", *lines, ""])
    return settings_type


# The fields are those of the registered tests, so they are known at run time only.
if TYPE_CHECKING:

    class AuditSettings:
        """How much an audit spends on each of its tests; its fields are the settings of the tests."""

        def __init__(self, **settings: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    AuditSettings = settings_class(registered_tests())
