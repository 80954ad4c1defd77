"""When a suspicion is worth a word: it needs an effect that matters, and a model that tells classes apart at all."""

from collections.abc import Sequence

import numpy as np

from lrptrain.extras import require
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.finding import Finding

LEAST_DEPARTURE = 0.2
"""So far from the share of a uniform map, as a part of it, must a mean share of the relevance lie to be suspected.

In the development runs of experiments/detection the maps of clean models never lie below the annotated area at the end
(three times above it), those of shortcuts that a map shows lie 33 to 89 % below it, and those that miss it by less, up
to 12 %, are maps of the first epoch or of shortcuts that only the intervention shows.
"""


def worth_saying(findings: Sequence[Finding], evaluation: Evaluation, confidence: float) -> list[Finding]:
    """Return the findings without those suspicions that say nothing.

    What an intervention has confirmed or refuted stays, whatever the map: so no suspicion is lost that is right. And
    whoever demands a share with `bound` hears of every scope that falls short of it.

    Args:
        findings: Findings with their verdicts.
        evaluation: The samples that they are about.
        confidence: `1 - confidence` is the level of the test in `tells_classes_apart`.
    """
    doubtful = [each.state == "suspected" and not _is_demanded(each) for each in findings]
    if not any(doubtful):
        return list(findings)
    apart = tells_classes_apart(evaluation, confidence)
    return [each for each, doubt in zip(findings, doubtful, strict=True) if not doubt or (apart and departs(each))]


def _is_demanded(finding: Finding) -> bool:
    """Return whether the finding falls short of a share that the user has set, not of that of a uniform map."""
    return finding.bound is not None and finding.relevance is not None and finding.bound != finding.relevance.reference


def departs(finding: Finding) -> bool:
    """Return whether the share of the relevance lies far from that of a uniform map; yes where no map says."""
    evidence = finding.relevance
    # The share of an annotation is too low, that of any other place too high: in either direction it has to be far.
    return evidence is None or abs(evidence.effect - evidence.reference) >= LEAST_DEPARTURE * evidence.reference


def tells_classes_apart(evaluation: Evaluation, confidence: float) -> bool:
    """Return whether a model is surely right more often than its answers would be if they ignored the samples.

    If answers and labels had nothing to do with each other, the accuracy would be the sum over the classes of the share
    of the labels times the share of the answers (the agreement by chance in Cohen's kappa, 1960). The accuracy has to
    lie above it by an exact binomial test. Without labels of two classes, nothing can be tested: then the model only
    has to give more than one answer, unless all labels are one class.

    Args:
        evaluation: The samples.
        confidence: `1 - confidence` is the level of the test.
    """
    labels = np.array([each.sample.label for each in evaluation.samples])
    answers = np.array([each.predicted for each in evaluation.samples])
    labelled = labels >= 0
    classes = np.unique(labels[labelled])
    if len(classes) < 2:
        return len(classes) == 1 or len(np.unique(answers)) > 1
    labels = labels[labelled]
    answers = answers[labelled]
    # e.g. labels half and half, and one answer given to 90 % of the samples: 0.5 * 0.9 + 0.5 * 0.1 = 0.5.
    by_chance = float(sum((labels == each).mean() * (answers == each).mean() for each in classes))
    right = int((labels == answers).sum())
    if by_chance in (0.0, 1.0):  # no answer is a class that is there; or all are, with one label
        return by_chance == 0.0 and right > 0
    test = require("scipy.stats", "monitor").binomtest(right, len(labels), by_chance, alternative="greater")
    return bool(test.pvalue <= 1 - confidence)
