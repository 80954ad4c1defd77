"""What the tests of cues say of a model: a record that can be read without one, and its words."""

from lrptrain.findings.announcement import announce
from lrptrain.findings.finding import VERDICTS, Finding, Verdict, reliance

__all__ = ["VERDICTS", "Finding", "Verdict", "announce", "reliance"]
