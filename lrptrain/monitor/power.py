"""What a sample of a given size can show: how far below its bound a share has to lie to be flagged."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lrptrain.findings import Evaluation, ExplainedSample
from lrptrain.findings.statistics import fewest_for_a_flag, least_shortfall
from lrptrain.findings.suspicion import tells_classes_apart
from lrptrain.monitor.summary import FOCUS, targets_of


def power_line(scored: Sequence[ExplainedSample], bound: float | str, confidence: float) -> str:
    """Return from which shortfall on all classes together, and the smallest one, are flagged; "" without annotations.

    Args:
        scored: The explained samples.
        bound: The share of the relevance that must lie on the annotation; "chance" for the annotated area.
        confidence: The level of findings, in (0, 1).
    """
    name = f"{targets_of(scored)[0]}/{FOCUS}"
    annotated = [each for each in scored if not math.isnan(each.values.get(name, math.nan))]
    if len(annotated) < 2:
        return ""
    distances = [each.values[name] - (each.chance if isinstance(bound, str) else bound) for each in annotated]
    sizes = Counter(each.label_or_predicted for each in annotated).values()
    tests = len(sizes) + 1  # the classes, and all of them together
    spread = float(np.std(distances, ddof=1))
    limit = "the annotated area" if isinstance(bound, str) else f"{bound:.0%}"
    line = f"with {len(annotated)} annotated samples "
    shortfall = least_shortfall(len(annotated), spread, tests, confidence)
    subject = "all classes together are" if len(sizes) > 1 else "their class is"
    line += (
        f"{subject} never flagged"
        if math.isinf(shortfall)
        else f"{subject} flagged from {_points(shortfall)} below {limit}"
    )
    if len(sizes) == 1:
        return line
    single = least_shortfall(min(sizes), spread, tests, confidence)
    if math.isinf(single):
        least = fewest_for_a_flag(tests, confidence)
        return f"{line}; a class needs {least} samples to be flagged, and the smallest has {min(sizes)}"
    return f"{line}, a class of {min(sizes)} from {_points(single)}"


class Power(NamedTuple):
    """What a run without findings shows.

    Attributes:
        tells: Whether it shows anything: not while the answers are no better than chance.
        text: What a shortcut would have been found by, in a few words.
    """

    tells: bool
    text: str


def found_by(
    scored: Sequence[ExplainedSample],
    bound: float | str,
    confidence: float,
    answer: str = "",
    is_tested: bool = True,
    lie_alike: bool = False,
) -> Power:
    """Return what a shortcut would have been found by, for a run without any.

    Args:
        scored: The explained samples of the last evaluation.
        bound: As for `power_line`.
        confidence: As for `power_line`.
        answer: What is to be said of a model that gives one answer to nearly all samples; "" of any other.
        is_tested: Whether interventions test what is suspected: some of it is looked for only then.
        lie_alike: Whether objects may lie at any place of the images, so that more was asked for.
    """
    if answer:
        return Power(False, answer)
    fewest = fewest_for_a_flag(1, confidence)
    if len(scored) < fewest:
        too_few = "1 sample is" if len(scored) == 1 else f"{len(scored)} samples are"
        return Power(False, f"That says nothing: {too_few} too few to find anything; {fewest} can be enough.")
    if not tells_classes_apart(Evaluation(scored), confidence):
        return Power(False, "That says nothing yet: its answers are no better than chance.")
    line = power_line(scored, bound, confidence)
    if line:
        return Power(True, f"What could have been found: {line}.")
    texts = all(each.content_ids is not None for each in scored)
    places = "fixed places"
    if is_tested:
        places = "fixed places, marks, clusters of maps, edges, colour, contrast, sharpness and light"
    if texts:
        places = "single words, the ends of texts"
        if is_tested:
            kinds = "words alike in its embedding, punctuation, links, numbers, capitals"
            places = f"single words, {kinds}, the length and the ends of texts"
    text = f"Looked for without annotations: {places}."
    if lie_alike:
        text += " Its objects lie alike or on a plain ground: only what surely is no part of them counted."
    return Power(True, text)


def _points(shortfall: float) -> str:
    """Return a difference of shares in words: percentage points, as whole numbers."""
    points = round(100 * shortfall)
    if points == 0:
        return "less than a point"
    return "1 point" if points == 1 else f"{points} points"
