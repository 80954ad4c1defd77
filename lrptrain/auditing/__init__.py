"""Is a map worth trusting at all? Tests of methods on a model, apart from any annotation, and a verdict on each."""

from lrptrain.auditing.base import AuditTest, Check, Column, register, registered_tests, unregister
from lrptrain.auditing.checks.agreement import agreement
from lrptrain.auditing.checks.randomisation import randomisation_check
from lrptrain.auditing.context import AuditBatch, AuditContext, AuditSettings
from lrptrain.auditing.result import AuditResult, UnitResult, Verdict, reach_verdict

__all__ = [
    "AuditBatch",
    "AuditContext",
    "AuditResult",
    "AuditSettings",
    "AuditTest",
    "Check",
    "Column",
    "UnitResult",
    "Verdict",
    "agreement",
    "randomisation_check",
    "reach_verdict",
    "register",
    "registered_tests",
    "unregister",
]
