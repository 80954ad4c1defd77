"""Does one draw of donors leave open whether an effect is large enough to be confirmed?"""

import numpy as np
from jaxtyping import Float

from lrptrain.findings.finding import Finding
from lrptrain.findings.statistics import bootstrap_interval, fewest_for_a_flag
from lrptrain.findings.verdicts import MIN_TESTED_SAMPLES, demanded_effect, demanded_exchange
from lrptrain.intervention import Region


def is_in_doubt(
    candidate: Finding,
    differences: Float[np.ndarray, " n"],
    region: Region,
    *,
    tests: int,
    min_effect: float,
    confidence: float,
) -> bool:
    """Return whether the interval of the mean effect holds the least effect that would confirm a candidate.

    What a sample takes from its donor is a matter of luck: single draws on one model came to either side of the bar.
    Where the interval lies on one side of it, or so few samples were tested that nothing could be confirmed, further
    draws would change nothing.

    Args:
        candidate: What is tested.
        differences: Change less control of its samples; nan where one was not tested.
        region: What was changed.
        tests: The number of tests of the evaluation, over which verdicts are corrected.
        min_effect: The least mean change of a probability that matters, in (0, 1).
        confidence: The level of verdicts, in (0, 1).
    """
    differences = differences[~np.isnan(differences)]
    if len(differences) < max(MIN_TESTED_SAMPLES, fewest_for_a_flag(tests, confidence)):
        return False
    least = (demanded_exchange if region.exchanged else demanded_effect)(candidate, min_effect)
    _, low, high = bootstrap_interval(differences, confidence)
    return low < least <= high
