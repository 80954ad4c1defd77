"""How far being there goes with an answer: what ranks proposals, and decides nothing."""

import numpy as np
from jaxtyping import Bool, Float, Int


def association(present: Bool[np.ndarray, " n"], answers: Int[np.ndarray, " n"]) -> float:
    """Return the largest standardised residual over the answers (Agresti 2002, "Categorical Data Analysis", 3.3).

    It is by how many standard deviations more of the samples with an answer have it than if both were independent.

    Args:
        present: Which samples have it.
        answers: The answer of each.
    """
    return float(associations(present[None], answers)[0])


def associations(
    present: Bool[np.ndarray, "m n"], answers: Int[np.ndarray, " n"], answer: int | None = None
) -> Float[np.ndarray, " m"]:
    """Return the same of several; with one answer alone if it is given."""
    is_answer = (answers[:, None] == (np.unique(answers) if answer is None else [answer])).astype(float)
    share, shares = present.mean(1, keepdims=True), is_answer.mean(0)
    expected = present.sum(1, keepdims=True) * shares
    variance = expected * (1 - shares) * (1 - share)
    residual = (present.astype(float) @ is_answer - expected) / np.sqrt(np.where(variance > 0, variance, np.inf))
    largest: Float[np.ndarray, " m"] = residual.max(1)
    return largest
