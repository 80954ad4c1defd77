"""From metric values to findings: intervals, tests, suspicions, and what an intervention says of them."""

from lrptrain.findings.finding import Evidence, Finding, announce, worst_severity
from lrptrain.findings.focus import focus_findings
from lrptrain.findings.judge import Effect, judge, merge_findings
from lrptrain.findings.statistics import bootstrap_interval, holm, max_test, share_test

__all__ = [
    "Effect",
    "Evidence",
    "Finding",
    "announce",
    "bootstrap_interval",
    "focus_findings",
    "holm",
    "judge",
    "max_test",
    "merge_findings",
    "share_test",
    "worst_severity",
]
