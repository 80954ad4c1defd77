"""Half of the samples suspects and the other half judges: what was chosen on samples looks worse on them than it is."""

import numpy as np
from jaxtyping import Bool, Int

SPLIT_FROM = 256
"""From so many samples of a scope on it has two halves, of which each is large enough. A smaller one is suspected and
judged as a whole, with the corrections for how many places were looked at.

From 64 samples on, the demo's place was found in three of the four corners that hold its tag, and judged in a third of
the samples: too few to account for all that the model reads.
"""


def suspecting(rows: Int[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
    """Return the rows of a scope that a suspicion is chosen on.

    Args:
        rows: The rows of the scope in ascending order. The samples of an evaluation stand in the order of their
            classes: every second one leaves the classes their shares.
    """
    return rows[1::2] if len(rows) >= SPLIT_FROM else rows


def judging(rows: Int[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
    """Return the rows of a scope on which the suspicion is judged; of a large one, none that it was chosen on.

    Args:
        rows: As for `suspecting`.
    """
    return rows[::2] if len(rows) >= SPLIT_FROM else rows


def suspecting_members(member: Bool[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Return `suspecting` of a scope as a mask over all samples."""
    chosen = np.zeros_like(member)
    chosen[suspecting(np.flatnonzero(member))] = True
    return chosen
