"""A finding on a share of the relevance that is higher than it should be, as most detectors make it."""

import numpy as np
from jaxtyping import Float, Int

from lrptrain.findings.detector import DetectionConfig, Detector
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.finding import MAX_WORST_SAMPLES, Evidence, Finding
from lrptrain.findings.scopes import Scope
from lrptrain.findings.statistics import bootstrap_interval


def high_share_finding(
    detector: Detector,
    evaluation: Evaluation,
    config: DetectionConfig,
    scope: Scope,
    where: str,
    rows: Int[np.ndarray, " n"],
    shares: Float[np.ndarray, " n"],
    reference: float,
    p_value: float = float("nan"),
) -> Finding:
    """Return a suspected finding for the first target, whose worst samples are those with the highest shares.

    Args:
        detector: The detector of the finding's kind.
        evaluation: What was explained, and when.
        config: The level of the interval.
        scope: Which samples the finding is about.
        where: The place of the relevance, in words.
        rows: The samples that show it, as indices into those of the evaluation.
        shares: The share of each sample's positive relevance at that place, in [0, 1].
        reference: The share that a uniform map has there.
        p_value: The corrected p-value; nan where nothing was tested.
    """
    mean, low, high = bootstrap_interval(shares, config.confidence)
    worst = rows[np.argsort(-shares, kind="stable")[:MAX_WORST_SAMPLES]]
    return Finding(
        kind=detector.kind,
        title=detector.title,
        scope=scope,
        where=where,
        target=evaluation.targets[0],
        relevance=Evidence(mean, (low, high), reference, p_value, len(rows)),
        confidence=config.confidence,
        worst_samples=tuple(evaluation.samples[row].sample.sample_id for row in worst),
        epoch=evaluation.epoch,
        step=evaluation.step,
        first_epoch=evaluation.epoch,
    )
