"""Is a map worth trusting at all? Tests of methods on a model, apart from any annotation, and a verdict on each."""

from lrptrain.audit.adversarial_search import Adversarial, adversarial_attention
from lrptrain.audit.adversary import ModelDifference, compare_models, train_adversary
from lrptrain.audit.agreement import agreement
from lrptrain.audit.attention import replaced_attention
from lrptrain.audit.correlation import MapCorrelation, map_correlation, reference_scores
from lrptrain.audit.distances import as_distribution, jensen_shannon, total_variation
from lrptrain.audit.effort import Effort
from lrptrain.audit.frozen_attention import token_features, train_frozen
from lrptrain.audit.permutation import Permutation, permuted_attention
from lrptrain.audit.perturbation import perturbation_gain
from lrptrain.audit.randomisation import RandomisationCheck, randomisation_check
from lrptrain.audit.result import AuditResult, Unit
from lrptrain.audit.suite import run_audit
from lrptrain.audit.uniform import uniform_attention_logits
from lrptrain.audit.verdict import Verdict, judge

__all__ = [
    "Adversarial",
    "AuditResult",
    "Effort",
    "MapCorrelation",
    "ModelDifference",
    "Permutation",
    "RandomisationCheck",
    "Unit",
    "Verdict",
    "adversarial_attention",
    "agreement",
    "as_distribution",
    "compare_models",
    "jensen_shannon",
    "judge",
    "map_correlation",
    "permuted_attention",
    "perturbation_gain",
    "randomisation_check",
    "reference_scores",
    "replaced_attention",
    "run_audit",
    "token_features",
    "total_variation",
    "train_adversary",
    "train_frozen",
    "uniform_attention_logits",
]
