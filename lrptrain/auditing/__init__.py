"""Is a map worth trusting at all? Tests of methods on a model, apart from any annotation, and a verdict on each."""

from lrptrain.auditing.attention import replaced_attention
from lrptrain.auditing.base import AuditTest, Check, Column, register, registered_tests, setting, unregister
from lrptrain.auditing.checks.adversarial import AdversarialAttention, adversarial_attention
from lrptrain.auditing.checks.adversary import ModelDifference, compare_models, train_adversary
from lrptrain.auditing.checks.agreement import agreement
from lrptrain.auditing.checks.permutation import PermutationEffect, permuted_attention
from lrptrain.auditing.checks.perturbation import perturbation_gain
from lrptrain.auditing.checks.randomisation import RandomisationCheck, randomisation_check
from lrptrain.auditing.checks.uniform import uniform_attention_logits
from lrptrain.auditing.context import AuditBatch, AuditContext
from lrptrain.auditing.correlation import MapCorrelation, map_correlation, reference_scores
from lrptrain.auditing.distances import as_distribution, jensen_shannon, total_variation
from lrptrain.auditing.result import AuditResult, UnitResult
from lrptrain.auditing.run import run_audit
from lrptrain.auditing.settings import AuditSettings
from lrptrain.auditing.token_model import token_features, train_frozen
from lrptrain.auditing.verdict import Verdict, reach_verdict

__all__ = [
    "AdversarialAttention",
    "AuditBatch",
    "AuditContext",
    "AuditResult",
    "AuditSettings",
    "AuditTest",
    "Check",
    "Column",
    "MapCorrelation",
    "ModelDifference",
    "PermutationEffect",
    "RandomisationCheck",
    "UnitResult",
    "Verdict",
    "adversarial_attention",
    "agreement",
    "as_distribution",
    "compare_models",
    "jensen_shannon",
    "map_correlation",
    "permuted_attention",
    "perturbation_gain",
    "randomisation_check",
    "reach_verdict",
    "reference_scores",
    "register",
    "registered_tests",
    "replaced_attention",
    "run_audit",
    "setting",
    "token_features",
    "total_variation",
    "train_adversary",
    "train_frozen",
    "uniform_attention_logits",
    "unregister",
]
