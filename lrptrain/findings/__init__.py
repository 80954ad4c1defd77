"""What the tests of cues say of a model: a record that can be read without one, and its words.

Examples:
    >>> from lrptrain.findings import Finding, announce, reliance
    >>> about = {"samples": 64, "epoch": 3, "step": 96, "first_epoch": 3, "history": (0.5,)}
    >>> found = Finding("the border", "border", "shortcut", "relies", effect=0.5, interval=(0.4, 0.6), **about)
    >>> print(*announce([found]))
    SHORTCUT: the model relies on the border.
      Effect 50 points (40 to 60), of 64 samples.
    >>> found.is_fault, found.needs_review, reliance([found])
    (True, False, 0.4)
"""

from lrptrain.findings.announcement import announce
from lrptrain.findings.finding import VERDICTS, Finding, HasFindings, Verdict, reliance

__all__ = ["VERDICTS", "Finding", "HasFindings", "Verdict", "announce", "reliance"]
