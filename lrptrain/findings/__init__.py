"""From relevance maps to findings: kinds of findings, statistics, and what an intervention says of them."""

from lrptrain.findings.announcement import announce
from lrptrain.findings.detector import Candidate, DetectionConfig, Detector, detect_candidates, register_detector
from lrptrain.findings.evaluation import Evaluation, ExplainedSample
from lrptrain.findings.facts import fold, unfold
from lrptrain.findings.finding import Evidence, Finding, worst_severity
from lrptrain.findings.nearness import WORTH_SAYING, Nearness, can_confirm, nearest_test
from lrptrain.findings.scopes import OVERALL, Scope
from lrptrain.findings.statistics import bootstrap_interval, holm, max_test, sign_flip_test
from lrptrain.findings.verdicts import Effect, carry_over, news_among, reach_verdicts

__all__ = [
    "OVERALL",
    "WORTH_SAYING",
    "Candidate",
    "DetectionConfig",
    "Detector",
    "Effect",
    "Evaluation",
    "Evidence",
    "ExplainedSample",
    "Finding",
    "Nearness",
    "Scope",
    "announce",
    "bootstrap_interval",
    "can_confirm",
    "carry_over",
    "detect_candidates",
    "fold",
    "holm",
    "max_test",
    "nearest_test",
    "news_among",
    "reach_verdicts",
    "register_detector",
    "sign_flip_test",
    "unfold",
    "worst_severity",
]
