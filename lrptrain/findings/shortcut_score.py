"""One number of an evaluation: how much speaks for a shortcut, whether or not anything is confirmed.

A flag has a test and a bound, and is rarely wrong; most shortcuts that it misses leave a trace in what no single test
can prove. The sum of these traces ranks runs of the same data better than each of them (experiments/benchmark).
"""

import math

WEIGHT = 8.0
"""What the predictability of the answers and the missing relevance are multiplied by.

An eighth of the way from guessing to always, or of the relevance, counts as much as the effect that confirms a finding.
It was chosen in 102 development runs of the benchmark, in which 4 to 16 make less than 0.01 of difference.
"""


def shortcut_score(effect_ratio: float, predictability: float, focus: float, chance: float) -> float:
    """Return `effect_ratio + 8 predictability + 8 (chance - focus)`, without the last term where nothing is annotated.

    Args:
        effect_ratio: The largest effect of a test over the effect that confirms a finding.
        predictability: How well plain features tell the answers, 0..1.
        focus: The share of the relevance on the annotation, 0..1; nan without annotations.
        chance: The annotated share of the area, 0..1; nan without annotations.

    Returns:
        A number without bounds, larger where a shortcut is likelier. It is to be compared between evaluations of as
        many samples of the same data, of which either all or none have annotations. nan where the predictability is.
    """
    missing_relevance = chance - focus
    return effect_ratio + WEIGHT * (predictability + (0.0 if math.isnan(missing_relevance) else missing_relevance))
