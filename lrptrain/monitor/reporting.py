"""From tested cues to findings: what is reported, with its history, its classes and the relevance that lies on it."""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from lrptrain.batch import Sample, collate
from lrptrain.batch.rows import present_rows
from lrptrain.cues.cue import MOST, Batch, Cue
from lrptrain.cues.measure import FEWEST_FLIPPED, Indices, flipped, most_flipped
from lrptrain.cues.search import Judged
from lrptrain.cues.whole_input import WholeInput
from lrptrain.findings import Finding
from lrptrain.findings.announcement import MOST_SAMPLES
from lrptrain.findings.finding import STANDINGS
from lrptrain.findings.sentences import MOST_NAMES, percent
from lrptrain.monitor.evaluation import Evaluation, ExplainedSample
from lrptrain.render import join_words, visible
from lrptrain.trainers.context import Names

MOST_ENDED = 8
"""So many cues that the model has ceased to rely on are shown, the last ones: a choice, of how long the list is."""
_FAULTS = re.compile(r", swap=(\w+)\.faults")
_SHOWN_TOKENS = 11
"""So many tokens of a text are quoted, half of them before the cue: a choice, of how long a line is."""


def findings_of(
    judged: Sequence[Judged],
    evaluation: Evaluation,
    class_names: Sequence[str],
    name_tokens: Callable[[list[int]], list[str]],
    previous: Sequence[Finding] = (),
    guidance: str = Names.guidance,
) -> list[Finding]:
    """Return what is reported of an evaluation, the most severe first: also what was reported before."""
    before = {each.identity: each for each in previous}
    reported: dict[tuple[str, str, str], Finding] = {}
    shared: set[tuple[str, int | None]] = set()
    for each in judged:
        doubt = each.cue.role == "shortcut" and each.verdict == "inconclusive" and (not each.within or each.cue.is_rest)
        identity = each.cue.kind, name_of(each, class_names), each.cue.role
        ended = each.verdict != "relies" and identity in before
        if each.named or doubt or ended:
            finding = _finding(each, evaluation.of(each.label), class_names, name_tokens)
            if (each.within, each.label) in shared:  # what both do overlaps
                finding = replace(finding, share=None)
            shared |= {(each.within, each.label)} if finding.share is not None else set()
            reported.setdefault(finding.identity, _continued(finding, before.get(finding.identity)))
    ended_ones = [each for each in reported.values() if each.verdict == "does not rely"]
    lost = {each.identity for each in ended_ones[:-MOST_ENDED]}
    # Of a standing, in the order in which they are named.
    found = sorted(
        (each for each in reported.values() if each.identity not in lost), key=lambda x: STANDINGS.index(x.standing)
    )
    return [replace(each, fix=_fix(each, found, guidance)) for each in found]


def _fix(finding: Finding, findings: Sequence[Finding], guidance: str) -> str:
    """Return the line of code that swaps a finding in training; "" where there is nothing to fix.

    All that lies outside of annotations is swapped together: experiments/fixes measured that this repairs more. Sides
    of one frame say the same, and are swapped together. Words may be evidence, and each of them needs its own review.
    """
    if not (finding.is_fault or finding.needs_review):
        return ""
    if finding.is_fault and finding.is_outside and finding.medium in ("image", "text"):
        return _FAULTS.sub("", guidance)
    alike = [each for each in findings if each.kind == "place" and _side(each) == _side(finding)]
    names = dict.fromkeys([finding.name, *(each.name for each in alike)])
    # Of several findings that are no faults, guidance takes the cues alone.
    end = "" if finding.is_fault or len(names) == 1 else ".cue"

    def chosen(holder: re.Match[str]) -> str:
        found = [f"{holder[1]}[{json.dumps(name, ensure_ascii=False)}]{end}" for name in names]
        return f", swap={found[0]}" if len(found) == 1 else f", swap=[{', '.join(found)}]"

    return _FAULTS.sub(chosen, guidance)


def _side(finding: Finding) -> tuple[str, str, str, str, int | None]:
    """Return what places have in common that are fixed together."""
    return finding.kind, finding.standing, finding.within, finding.input, finding.label


def name_of(judged: Judged, class_names: Sequence[str]) -> str:
    """Return what a cue is called, with the only answer or the label that it tells, if there is one."""
    answer = "" if judged.answer is None else f", for answers {class_names[judged.answer]!r}"
    return (
        visible(judged.cue.name)
        + answer
        + ("" if judged.label is None else f", for the label {class_names[judged.label]!r}")
    )


def shown_rows(judged: Judged, samples: Sequence[Sample], count: int) -> list[int]:
    """Return the samples that have a cue and show its effect best, by their index.

    Where those that have it show less than half of the effect, those that take it do: a name that is put into a text.
    """
    strong = (row for row in _with(judged, samples) if judged.values[row] > MOST * judged.effect.mean)
    return [*islice(strong, count)] or _by_effect(judged)[:count]


def _by_effect(judged: Judged) -> list[int]:
    return [row for row in np.argsort(-judged.values, kind="stable").tolist() if not np.isnan(judged.values[row])]


def _with(judged: Judged, samples: Sequence[Sample]) -> Iterator[int]:
    """Yield the samples that have a cue, those with the largest effects first."""
    for row in _by_effect(judged):
        inside = judged.cue.locate(collate([samples[row]]))
        if inside is None or bool(inside.any()):
            yield row


def answers_to(label: int | None, class_names: Sequence[str]) -> Sequence[str]:
    """Return the names of the answers to one of several labels; of all classes for None."""
    return class_names if label is None else [f"no {class_names[label]}", class_names[label]]


def by_class(judged: Judged, evaluation: Evaluation, class_names: Sequence[str]) -> dict[str, float]:
    """Return the effect on the samples of each answer, by its name."""
    found = {}
    for answer in np.unique(evaluation.answers):
        values = judged.values[evaluation.answers == answer]
        if not np.isnan(values).all():
            found[str(class_names[answer])] = float(np.nanmean(values))
    return found


def _finding(
    judged: Judged,
    evaluation: Evaluation,
    class_names: Sequence[str],
    name_tokens: Callable[[list[int]], list[str]],
) -> Finding:
    effect = judged.effect
    assert evaluation.inputs is not None
    rows = shown_rows(judged, evaluation.inputs, MOST_NAMES)
    quoted = islice(_with(judged, evaluation.inputs), MOST_SAMPLES if evaluation.medium == "text" else 0)
    classes = by_class(judged, evaluation, answers_to(judged.label, class_names))
    call = evaluation.inputs[0].call if evaluation.inputs else None
    # Of several labels, the map is that of all answers: it says nothing of one.
    has_map = judged.label is None
    relevance, area = relevance_on(judged.cue, evaluation, judged.chosen) if has_map else (None, None)
    return Finding(
        name=name_of(judged, class_names),
        kind=judged.cue.kind,
        role=judged.cue.role,
        verdict=judged.verdict,
        effect=effect.mean,
        interval=(effect.low, effect.high),
        samples=effect.samples,
        epoch=evaluation.epoch,
        step=evaluation.step,
        first_epoch=evaluation.epoch,
        within=judged.within,
        share=judged.share,
        by_class=classes if len(classes) > 2 else {},
        relevance=relevance,
        area=area,
        also_relies_on=tuple(map(visible, judged.also_relies_on)),
        label=judged.label,
        input="" if call is None or isinstance(judged.cue, WholeInput) else call.explained,
        worst_samples=tuple(evaluation.samples[row].sample.sample_id for row in rows),
        excerpts=tuple(_excerpt(judged.cue, evaluation, row, name_tokens) for row in quoted),
        medium="" if evaluation.medium == "rows" or evaluation.medium == "series" else evaluation.medium,
        note=_note(judged),
        plain=judged.cue.to_dict(),
        cue=judged.cue,
    )


def _note(judged: Judged) -> str:
    """Return what few samples show, which a mean does not."""
    if judged.verdict == "does not rely" and judged.effect.samples:
        return f"It may decide up to {percent(most_flipped(judged.values))} of samples."
    count = flipped(judged.values)
    return f"It decides {count} of them." if judged.verdict == "inconclusive" and count >= FEWEST_FLIPPED else ""


def _excerpt(cue: Cue, evaluation: Evaluation, row: int, name_tokens: Callable[[list[int]], list[str]]) -> str:
    """Return which sample a text is, and its words around a cue, or around the most relevant token."""
    explained = evaluation.samples[row]
    assert explained.content_ids is not None
    assert evaluation.inputs is not None
    content = np.flatnonzero(explained.content_ids >= 0)
    if not len(content):
        return f'sample {explained.sample.sample_id}: ""'
    inside = cue.locate(collate([evaluation.inputs[row]]))
    lies = None if inside is None else inside.flatten()[content].cpu().numpy()
    center = int((explained.positive_relevance[content] if lies is None else lies).argmax())
    start, stop = max(0, center - _SHOWN_TOKENS // 2), center + _SHOWN_TOKENS // 2 + 1
    tokens = name_tokens(explained.content_ids[content[start:stop]].tolist())
    alike = [True] * len(tokens)
    words = "".join(f"{' ' if word.space else ''}{word.text}" for word in join_words(tokens, alike, alike))
    quote = f'"{"... " if start else ""}{words}{" ..." if stop < len(content) else ""}"'
    return f"sample {explained.sample.sample_id}: {quote}"


def _continued(finding: Finding, before: Finding | None) -> Finding:
    earlier = before or replace(finding, history=(), verdicts=(), epochs=())
    return replace(
        finding,
        first_epoch=earlier.first_epoch,
        history=(*earlier.history, finding.effect),
        verdicts=(*earlier.verdicts, finding.verdict),
        epochs=(*earlier.epochs, finding.epoch),
    )


_POOLS: dict[int, Callable[..., Tensor]] = {  # by the axes of a grid
    1: F.adaptive_avg_pool1d,
    2: F.adaptive_avg_pool2d,
    3: F.adaptive_avg_pool3d,
}


def relevance_on(cue: Cue, evaluation: Evaluation, rows: Indices) -> tuple[float | None, float | None]:
    """Return the mean shares of the positive relevance on a cue, and of the area that it covers, over some rows.

    None for a cue that lies everywhere, or nowhere; samples in which it lies nowhere do not count.
    """
    assert evaluation.inputs is not None
    shares, areas = [], []
    for row in rows.tolist():
        batch = collate([evaluation.inputs[row]])
        inside = cue.locate(batch)
        of_series = evaluation.medium == "series"
        by_channel = inside is not None and (evaluation.medium, inside.ndim) in (("series", 3), ("image", 4))
        # A map has a number for each pixel or part of the time, and none for a channel.
        if inside is None or (by_channel and bool((inside != inside[:, :1]).any())):
            return None, None
        inside = inside[:, 0] if by_channel else inside
        explained = evaluation.samples[row]
        if not inside.any():
            continue
        positive = torch.from_numpy(explained.positive_relevance)
        grid = (len(positive),) if of_series else explained.grid
        if grid is not None:
            # How much of each patch it covers.
            weights = _POOLS[len(grid)](inside.double(), grid).flatten()
            area = float(inside.double().mean())
        else:
            weights = inside.flatten()[: len(positive)].double()
            content = _content(explained, batch)
            area = float(weights[content >= 0].mean()) if (content >= 0).any() else 0.0
        total = float(positive.sum())
        shares.append(float((weights * positive).sum()) / total if total > 0 else math.nan)
        areas.append(area)
    known = [each for each in shares if not math.isnan(each)]
    return (float(np.mean(known)), float(np.mean(areas))) if known else (None, None)


def _content(explained: ExplainedSample, batch: Batch) -> Int[np.ndarray, " tokens"]:
    """Return -1 where a token is no content."""
    if explained.content_ids is not None:
        return explained.content_ids
    if explained.are_rows:
        return present_rows(batch)[0].cpu().numpy().astype(int) - 1
    return np.zeros(len(explained.map_of_answer), int)


def news_among(previous: Sequence[Finding], current: Sequence[Finding]) -> list[Finding]:
    """Return what the model newly relies on, and new verdicts on faults; that it left an open cue is no alarm."""
    told = {(each.identity, each.verdict) for each in previous}
    new = [each for each in current if (each.identity, each.verdict) not in told]
    return [each for each in new if each.relies or each.role == "shortcut"]
