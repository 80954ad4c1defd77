"""What the tests of cues say of a model: a record that can be read without one, and its words."""

from lrptrain.findings.announcement import announce
from lrptrain.findings.finding import VERDICTS, Finding, HasFindings, Verdict, reliance

__all__ = ["VERDICTS", "Finding", "HasFindings", "Verdict", "announce", "reliance"]
