"""The second test of a place: what removing it did not confirm is exchanged between samples."""

from collections.abc import Callable, Sequence

from lrptrain.findings import Candidate, Effect, reach_verdicts
from lrptrain.findings.verdicts import REMOVALS


def exchange_places(
    candidates: Sequence[Candidate],
    effects: Sequence[Effect | str],
    intervene_on: Callable[[Sequence[Candidate]], Sequence[Effect | str]],
    min_effect: float,
    confidence: float,
) -> dict[int, Effect | str]:
    """Return the effect of exchanging those places whose removal confirmed nothing.

    A cue that another one repeats can be taken away without any effect. In exchange for that of another class it
    contradicts the other cue.

    Args:
        candidates: What was tested.
        effects: The effect of the removal on each, or why there is none.
        intervene_on: Makes the intervention on further candidates; every process calls it, with the same ones.
        min_effect: As for `reach_verdicts`.
        confidence: As for `reach_verdicts`.

    Returns:
        By the index of every candidate that has a place which was removed, its effect, or why it was not exchanged.
    """
    places = [
        i
        for i, (candidate, effect) in enumerate(zip(candidates, effects, strict=True))
        if candidate.region.is_place and not isinstance(effect, str) and effect.strategy in REMOVALS
    ]
    exchanges: dict[int, Effect | str] = dict.fromkeys(places, "")
    findings = [candidate.finding for candidate in candidates]
    verdicts = reach_verdicts(findings, effects, min_effect, confidence, exchanges)
    # Only these, as every region costs forward passes of all its samples.
    doubtful = [i for i in places if verdicts[i].state != "confirmed"]
    regions = [candidates[i]._replace(region=candidates[i].region.in_exchange()) for i in doubtful]
    exchanges |= dict(zip(doubtful, intervene_on(regions), strict=True)) if doubtful else {}
    return exchanges
