"""What an evaluation shows: what was tested, whether that says anything, and how a run ends with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lrptrain.batch.matters import FEWEST_SAMPLES
from lrptrain.cues.measure import Effect, most_flipped
from lrptrain.cues.search import Judged
from lrptrain.cues.whole_input import WholeInput
from lrptrain.findings import Finding
from lrptrain.findings.announcement import look_at
from lrptrain.findings.sentences import counted, headline, listed, percent, points, sentences
from lrptrain.monitor.evaluation import Evaluation, ExplainedSample
from lrptrain.monitor.skill import tells_classes_apart
from lrptrain.render import visible
from lrptrain.terminal import fitted

ALONE = "It does not rely on these alone"
"""Another cue may say the same."""


class Power(NamedTuple):
    """What an evaluation without a fault shows.

    Attributes:
        tells: Whether it shows anything: not while the answers are no better than guessing.
        can_fault: Whether anything could be a fault: without annotations only what is declared can.
        doubt: Why a gate cannot pass all the same, in a sentence; "" where it can.
        short: As `text`, with numbers of cues in the place of their names; "" where it is short already.
    """

    tells: bool
    text: str
    can_fault: bool = True
    doubt: str = ""
    short: str = ""


def shown_by(
    scored: Sequence[ExplainedSample],
    judged: Sequence[Judged],
    untested: Sequence[str],
    confidence: float,
    answer: str = "",
    failed: Sequence[str] = (),
) -> Power:
    """Return what an evaluation shows of what the model does not rely on.

    `answer` is what is said of a model that gives one answer to nearly all samples.
    """
    if answer:
        return Power(False, answer)
    if len(scored) < FEWEST_SAMPLES:
        few = "1 sample is" if len(scored) == 1 else f"{len(scored)} samples are"
        return Power(False, f"{few} too few for a verdict; {FEWEST_SAMPLES} can be enough.")
    if not tells_classes_apart(Evaluation(scored), confidence):
        return Power(False, "The model is no better than guessing. Train longer.")
    # What lies outside of annotations is not tested where the whole input is not relied on, nor where these are few.
    annotated = sum(each.annotated is not None for each in scored)
    can_fault = annotated >= FEWEST_SAMPLES or any(each.cue.role == "shortcut" for each in judged)
    missing = Evaluation(scored).num_labels - len({each.label for each in judged} - {None})
    doubt = f"{missing} of the labels could not be tested." if missing > 0 else ""
    if not Evaluation(scored).num_labels and all(each.sample.label < 0 for each in scored):
        doubt = "No sample has a label, so that nobody knows whether the answers are better than guessing."
    if failed:
        doubt = f"The test of {listed([*dict.fromkeys(failed)])} failed."
    return Power(bool(judged), " ".join(lines_of(judged, untested)), can_fault, doubt, _in_numbers(judged, untested))


def _in_numbers(judged: Sequence[Judged], untested: Sequence[str]) -> str:
    """Return how many cues are inconclusive, and not relied on, and what was not tested."""
    verdicts = [verdict for _, verdict in {(each.cue.name, each.verdict) for each in judged}]
    doubtful, others = verdicts.count("inconclusive"), verdicts.count("does not rely")
    lines = [f"Inconclusive: {counted(doubtful, 'cue')}."] if doubtful else []
    lines += [f"It does not rely on {counted(others, 'cue')} alone."] if others else []
    return " ".join([*lines, *_could_be_missed(judged), *(f"Not tested: {line}." for line in untested)])


def _could_be_missed(judged: Sequence[Judged]) -> list[str]:
    """Return what may decide few samples all the same: effects are means, and the first samples seldom show it."""
    shares: dict[str, float] = {}
    for each in judged:
        is_fault = each.cue.role == "shortcut"
        if each.verdict == "does not rely" and (is_fault or not (each.cue.is_several or each.cue.is_proposed)):
            kind = "shortcuts" if is_fault else "cues"
            shares[kind] = max(shares.get(kind, 0.0), most_flipped(each.values))
    said = [f"{kind} that decide under {percent(share)} of samples" for kind, share in sorted(shares.items())]
    return [f"Could be missed: {listed(said[::-1])}."] if said else []


def lines_of(judged: Sequence[Judged], untested: Sequence[str]) -> list[str]:
    """Return what each input does, what is inconclusive, not relied on, and not tested, a sentence each."""
    inputs = [f"{cue.name} {points(effect.mean)} points" for cue, effect in inputs_among(judged)]
    lines = [f"By input: {listed(inputs)}."] if inputs else []
    # Two marks may have one name: each is said once, by the most severe verdict.
    told = {visible(each.cue.name) for each in judged if each.verdict == "relies"}
    for verdict, words in (("inconclusive", "Inconclusive whether it relies on"), ("does not rely", ALONE)):
        # Lists of words are no things that a person knows: their words are said one by one. Of a whole that is relied
        # on it is no doubt that a part of it may not be.
        single = (
            each
            # What matters most comes first.
            for each in sorted(judged, key=lambda each: (each.cue.role != "shortcut", each.cue.kind != WholeInput.kind))
            if each.verdict == verdict
            and not (each.cue.is_several or (each.cue.is_proposed and each.cue.role != "shortcut"))
            and not (verdict == "inconclusive" and each.within)
        )
        names = [*dict.fromkeys(visible(each.cue.name) for each in single)]
        names = [name for name in names if name not in told]
        told |= {*names}
        if names:
            lines.append(f"{words}: {listed(names)}.")
    return [*lines, *_could_be_missed(judged), *(f"Not tested: {line}." for line in untested)]


def inputs_among(judged: Sequence[Judged]) -> list[tuple[WholeInput, Effect]]:
    """Return the model's inputs as wholes with their effects, the largest first; none of a model with one.

    Of several labels it is the largest effect on any of them.
    """
    inputs = [(each.cue, each.effect) for each in judged if isinstance(each.cue, WholeInput) and each.effect.samples]
    largest = dict(sorted(inputs, key=lambda pair: pair[1].mean))
    return sorted(largest.items(), key=lambda pair: -pair[1].mean)


def closing_words(
    title: str,
    subject: str,
    findings: Sequence[Finding],
    power: Power,
    run: Path | None,
    collapse: str = "",
    guided_by: Sequence[str] = (),
    cost: str = "",
) -> str:
    """Return a short paragraph on a run that has ended, or on a validation by itself.

    `collapse` is what is said of a model that has collapsed, and `guided_by` names what guides its training.
    """
    faults = [each for each in findings if each.is_fault]
    review = [each for each in findings if each.needs_review and power.tells]
    first = None if collapse else next(iter([*faults, *review]), None)
    found = headline(findings, power.can_fault)
    if collapse:
        message = f"{title}: {collapse.partition('. ')[0].rstrip('.')}. In {subject}."  # what to do is said above
    elif faults:
        failed = _not_removed(guided_by) if guided_by else ""
        text = sentences(faults[0])
        message = f"{title}: {text.verdict} {text.effect} In {subject}: {found}{failed}"
    elif first is not None:
        message = f"{title}: {found} In {subject}."
    elif power.tells:
        message = f"{title}: {found} In {subject}. {power.short or power.text}"
    else:
        message = f"{title}: no verdict on {subject}. {power.text}"
    see = f"  See: {look_at(run)}" if run is not None else ""
    # A command is never broken: it is there to be copied.
    remedy = f"  {sentences(first).remedy}" if first is not None and first.fix else ""
    return "\n".join(line for line in (fitted(f"{message} {cost}".rstrip()), see, remedy) if line)


def _not_removed(guided_by: Sequence[str]) -> str:
    """Return that guidance has not done its work, and what to try."""
    way_out = "train longer" if any(each.startswith("swap") for each in guided_by) else 'try "swap"'
    return f" The guidance ({' + '.join(guided_by)}) has not removed it: {way_out} (docs/how-to/guidance.md)."
