"""One number of an evaluation: how much speaks for a shortcut, whether or not anything is confirmed.

A flag has a test and a bound, and is rarely wrong; most shortcuts that it misses leave a trace in what no single test
can prove. The sum of these traces ranks runs better than each of them (experiments/benchmark).
"""

import math

from lrptrain.findings.plain_features import Predictability

WEIGHT = 8.0
"""What the plainness of the answers is multiplied by where nothing is annotated.

An eighth of the way from guessing to always counts as much as the effect that confirms a finding. It was chosen in 102
development runs of the benchmark, in which 4 to 16 make less than 0.01 of difference.
"""
WEIGHT_WITH_ANNOTATIONS = 2.0
"""The same with annotations, and that of the relevance that they lack: what lies outside of them is tested as a whole,
and comes to a large effect in most shortcuts, so that the other traces need not. It was chosen in 580 runs of six
earlier tests of the benchmark, in which 1 to 8 make 0.003 of difference in the mean, and 0.02 in the worst."""


def shortcut_score(effect_ratio: float, predictability: Predictability, focus: float, chance: float) -> float:
    """Return `effect_ratio + 2 (plainness + chance - focus)`, or `effect_ratio + 8 plainness` without annotations.

    The plainness is the geometric mean of how well plain features tell the answers and the labels: it is large where
    there is something plain to be taken up, and the model may have done so.

    Args:
        effect_ratio: The largest effect of a test over the effect that confirms a finding.
        predictability: How well plain features tell the answers and the labels; the answers alone count without labels.
        focus: The share of the relevance on the annotation, 0..1; nan without annotations, or positive relevance.
        chance: The annotated share of the area, 0..1; nan without annotations.

    Returns:
        A number without bounds, larger where a shortcut is likelier. It is to be compared between evaluations of as
        many samples of one kind of data, of which either all or none have annotations. nan where the predictability of
        the answers is.
    """
    labels = predictability.answers if math.isnan(predictability.labels) else predictability.labels
    plainness = math.sqrt(predictability.answers * labels)
    if math.isnan(chance):
        return effect_ratio + WEIGHT * plainness
    # Maps without any positive relevance lack none: the weight is that of the run's other evaluations.
    missing_relevance = 0.0 if math.isnan(focus) else chance - focus
    return effect_ratio + WEIGHT_WITH_ANNOTATIONS * (plainness + missing_relevance)
