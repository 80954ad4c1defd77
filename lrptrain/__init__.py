"""lrptrain: what is my model looking at, and how do I make it look at the right thing?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lrptrain import rules, targets
    from lrptrain.auditing.audit import audit
    from lrptrain.batch.task import EachLabel, Head, OneLabel, Ordinal, Regression
    from lrptrain.guidance.loop import Guidance
    from lrptrain.guidance.transformers_trainer import guide
    from lrptrain.monitor.check import check
    from lrptrain.monitor.config import Judge, Run, Show
    from lrptrain.monitor.inspection import inspect
    from lrptrain.monitor.loop_monitor import Monitor
    from lrptrain.monitor.preview import preview
    from lrptrain.monitor.summary import register_metric
    from lrptrain.relevance import (
        Composite,
        Decomposition,
        Explanation,
        NonFiniteError,
        Recording,
        Relevance,
        RelevanceMaps,
        RelevanceWarning,
        Rule,
        TokenLayout,
        UnsupportedMethodError,
        UnsupportedModelError,
        UnsupportedOperationError,
        attribute,
        decompose,
        methods,
        record,
        register_method,
        register_rule,
        use_rules,
    )
    from lrptrain.repairing.repair import repair

__all__ = [
    "Composite",
    "Decomposition",
    "EachLabel",
    "Explanation",
    "Guidance",
    "Head",
    "Judge",
    "Monitor",
    "NonFiniteError",
    "OneLabel",
    "Ordinal",
    "Recording",
    "Regression",
    "Relevance",
    "RelevanceMaps",
    "RelevanceWarning",
    "Rule",
    "Run",
    "Show",
    "TokenLayout",
    "UnsupportedMethodError",
    "UnsupportedModelError",
    "UnsupportedOperationError",
    "attribute",
    "audit",
    "check",
    "decompose",
    "guide",
    "inspect",
    "methods",
    "preview",
    "record",
    "register_method",
    "register_metric",
    "register_rule",
    "repair",
    "rules",
    "targets",
    "use_rules",
]

_ORIGINS = {
    "audit": "lrptrain.auditing.audit",
    "check": "lrptrain.monitor.check",
    "inspect": "lrptrain.monitor.inspection",
    "repair": "lrptrain.repairing.repair",
    "Head": "lrptrain.batch.task",
    "OneLabel": "lrptrain.batch.task",
    "EachLabel": "lrptrain.batch.task",
    "Ordinal": "lrptrain.batch.task",
    "Regression": "lrptrain.batch.task",
    "Judge": "lrptrain.monitor.config",
    "Run": "lrptrain.monitor.config",
    "Show": "lrptrain.monitor.config",
    "Monitor": "lrptrain.monitor.loop_monitor",
    "preview": "lrptrain.monitor.preview",
    "register_metric": "lrptrain.monitor.summary",
    "Guidance": "lrptrain.guidance.loop",
    "guide": "lrptrain.guidance.transformers_trainer",
}
_WITHOUT_GROUPS = '; RelevanceGuidance("swap") needs no groups, and experiments/ has this one'
_GONE = {
    "compare": "; lrptrain.audit(model, loader, methods) measures the same",
    "compare_repairs": "; lrptrain.repair(...) says before and after",
    "compare_models": "; lrptrain.inspect(model, loader) of each says what it relies on",
    **dict.fromkeys(("GroupDROLoss", "group_dro", "jtt_weights"), _WITHOUT_GROUPS),
}
"""What to use in place of names of earlier versions."""
_MODULES = ("rules", "targets")
_FOLDERS = ("batch", "callbacks", "cues", "guidance", "loggers", "segmentation")
"""What is reached as `lrptrain.loggers.read_findings` is, without an import of its own."""


def __getattr__(name: str) -> Any:
    """Import what is asked for, and only then: `lrptrain --help` must not wait for torch, nor `attribute` for more."""
    if name in _FOLDERS:
        return import_module(f"lrptrain.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_GONE.get(name, '')}")
    if name in _MODULES:
        return import_module(f"lrptrain.{name}")
    value = getattr(import_module(_ORIGINS.get(name, "lrptrain.relevance")), name)
    globals()[name] = value  # found at once the next time
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
