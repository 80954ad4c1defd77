"""One file per kind of finding (focus.py has three, which one family of tests decides), registered in their order."""

from lrptrain.findings.detector import register_detector
from lrptrain.findings.detectors.clusters import RelevanceCluster
from lrptrain.findings.detectors.focus import FocusInRegion, FocusOutsideAnnotation, RelianceOutsideAnnotation
from lrptrain.findings.detectors.positions import FocusAtPosition
from lrptrain.findings.detectors.tokens import SuspiciousToken

for _detector in (
    FocusOutsideAnnotation(),
    RelianceOutsideAnnotation(),
    FocusInRegion(),
    FocusAtPosition(),
    RelevanceCluster(),
    SuspiciousToken(),
):
    register_detector(_detector)

__all__ = [
    "FocusAtPosition",
    "FocusInRegion",
    "FocusOutsideAnnotation",
    "RelevanceCluster",
    "RelianceOutsideAnnotation",
    "SuspiciousToken",
]
