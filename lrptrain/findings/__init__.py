"""From metric values to findings: intervals, tests, and the flags that rest on them."""

from lrptrain.findings.finding import Finding, announce
from lrptrain.findings.focus import focus_findings, merge_findings
from lrptrain.findings.statistics import bootstrap_interval, holm, share_test

__all__ = ["Finding", "announce", "bootstrap_interval", "focus_findings", "holm", "merge_findings", "share_test"]
