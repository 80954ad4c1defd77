"""Is a map worth trusting at all? Tests of methods on a model, apart from any annotation, and a verdict on each."""

from lrptrain.audit.attention import replaced_attention
from lrptrain.audit.base import AuditTest, Check, Column, register, registered_tests, setting, unregister
from lrptrain.audit.context import AuditBatch, AuditContext
from lrptrain.audit.correlation import MapCorrelation, map_correlation, reference_scores
from lrptrain.audit.distances import as_distribution, jensen_shannon, total_variation
from lrptrain.audit.result import AuditResult, UnitResult
from lrptrain.audit.run import run_audit
from lrptrain.audit.settings import AuditSettings
from lrptrain.audit.tests.adversarial import AdversarialAttention, adversarial_attention
from lrptrain.audit.tests.adversary import ModelDifference, compare_models, train_adversary
from lrptrain.audit.tests.agreement import agreement
from lrptrain.audit.tests.permutation import PermutationEffect, permuted_attention
from lrptrain.audit.tests.perturbation import perturbation_gain
from lrptrain.audit.tests.randomisation import RandomisationCheck, randomisation_check
from lrptrain.audit.tests.uniform import uniform_attention_logits
from lrptrain.audit.token_model import token_features, train_frozen
from lrptrain.audit.verdict import Verdict, reach_verdict

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
