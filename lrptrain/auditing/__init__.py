"""Is a map worth trusting at all? Tests of methods on a model, apart from any annotation, and a verdict on each."""

from lrptrain.auditing.attention import replaced_attention
from lrptrain.auditing.audit import run_audit
from lrptrain.auditing.base import AuditTest, Check, Column, register, registered_tests, unregister
from lrptrain.auditing.checks.agreement import agreement
from lrptrain.auditing.checks.perturbation import perturbation_gain
from lrptrain.auditing.checks.randomisation import RandomisationCheck, randomisation_check
from lrptrain.auditing.context import AuditBatch, AuditContext, AuditSettings
from lrptrain.auditing.correlation import MapCorrelation, map_correlation, reference_scores
from lrptrain.auditing.result import AuditResult, UnitResult
from lrptrain.auditing.verdict import Verdict, reach_verdict

__all__ = [
    "AuditBatch",
    "AuditContext",
    "AuditResult",
    "AuditSettings",
    "AuditTest",
    "Check",
    "Column",
    "MapCorrelation",
    "RandomisationCheck",
    "UnitResult",
    "Verdict",
    "agreement",
    "map_correlation",
    "perturbation_gain",
    "randomisation_check",
    "reach_verdict",
    "reference_scores",
    "register",
    "registered_tests",
    "replaced_attention",
    "run_audit",
    "unregister",
]
