"""The proofs of what is confirmed: inputs that the intervention has made anyway, drawn beside the samples."""

import difflib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from lrptrain.batch import IMAGES, Sample
from lrptrain.extras import require
from lrptrain.files import file_name_of
from lrptrain.findings import Candidate, ExplainedSample, Finding
from lrptrain.findings.proof import Mark, MarkedWord, Proof, ProvenSample
from lrptrain.findings.sentences import change_in_words
from lrptrain.intervention import Change, KeptChanges, Region
from lrptrain.intervention.regions import images_of
from lrptrain.monitor.drawing import DisplayOptions, can_be_drawn
from lrptrain.monitor.summary import class_name
from lrptrain.render import contact_sheet, enlarge, join_words, scored_tokens, to_pixels
from lrptrain.trainers.processes import gather_to_first

MOST_SAMPLES = 3
"""A proof shows so many samples."""
MOST_PROOFS = 4
"""So many facts of an evaluation, the first ones, have a proof."""

WORDS_BEFORE = 12
MOST_WORDS = 60
"""A text is shown from so many words before the first change on, and so many words of it."""

SHARPENED = "Probabilities are sharpened to the model's accuracy, as it is right more often than sure."

CandidateOf = Callable[[Finding], Candidate]
Kept = Mapping[tuple[Region, int], Change]


def changes_to_keep(candidates: Sequence[Candidate]) -> KeptChanges:
    """Return what keeps, for every candidate, the samples whose answers fall furthest.

    Args:
        candidates: What will be tested; which of them will be confirmed is not known yet.
    """
    groups: dict[Region, list[set[int]]] = {}
    for candidate in candidates:
        rows = set(candidate.rows.tolist())
        groups.setdefault(candidate.region, []).append(rows)
        if candidate.region.is_place:  # which may be exchanged later on
            groups.setdefault(candidate.region.in_exchange(), []).append(rows)
    return KeptChanges(groups, MOST_SAMPLES)


def gather_changes(kept: KeptChanges, facts: Sequence[Finding], candidate_of: CandidateOf) -> Kept:
    """Return what was kept for proven facts in any process, in the first one; nothing in the others.

    Every process must call it. Only these few samples travel.

    Args:
        kept: What this process has kept.
        facts: The facts of the evaluation.
        candidate_of: Returns what was tested.
    """
    # Each process sends its own furthest samples: the furthest of all are among them.
    tested = [candidate_of(fact) for fact in _proven(facts)]
    wanted = {(each.region, row) for each in tested for row in kept.furthest(each.region, set(each.rows.tolist()))}
    local = {key: change for key, change in kept.changes.items() if key in wanted}
    return {key: change for part in gather_to_first(local) for key, change in part.items()}


def with_proofs(
    facts: Sequence[Finding],
    candidate_of: CandidateOf,
    changes: Kept,
    samples: Sequence[Sample],
    explained: Sequence[ExplainedSample],
    options: DisplayOptions,
    folder: str,
) -> list[Finding]:
    """Return facts with their proofs, as far as samples of them were kept and can be drawn.

    Args:
        facts: The facts of the evaluation.
        candidate_of: Returns what was tested.
        changes: What was kept, of all processes.
        samples: All samples with their inputs.
        explained: The same samples with their predictions, in the same order.
        options: How they are drawn.
        folder: The folder of the proofs in that of the run.
    """
    proven = _proven(facts)

    def proof(fact: Finding) -> Proof | None:
        if fact not in proven:
            return None
        region = candidate_of(fact).region
        # Of what several processes have kept, the furthest once more.
        rows = KeptChanges({}, MOST_SAMPLES, dict(changes)).furthest(region, set(candidate_of(fact).rows.tolist()))
        examples = [(samples[row], explained[row], changes[region, row]) for row in rows]
        if not examples:
            return None
        change, control = change_in_words(fact.strategy)
        # Probabilities that were not sharpened differ by no more than rounding in another batch.
        sharp = any(
            not np.allclose(intervened.answer, each.probabilities, atol=1e-3) for _, each, intervened in examples
        )
        note = SHARPENED if sharp else ""
        drawn = Proof(change, control, tuple(_proven_sample(*each, options, region.towards) for each in examples), note)
        name = f"{folder}/{facts.index(fact)}_{file_name_of(fact.kind)}"
        if all(each.grid is None for _, each, _ in examples):
            return replace(drawn, path=f"{name}.html")
        if not all(can_be_drawn(image) for image in images_of(sample for sample, _, _ in examples)):
            return None
        return replace(drawn, path=f"{name}.png", png=_drawn(examples, drawn, options))

    return [replace(fact, proof=proof(fact)) for fact in facts]


def _proven(facts: Sequence[Finding]) -> list[Finding]:
    return [fact for fact in facts if fact.state == "confirmed"][:MOST_PROOFS]


def _proven_sample(
    sample: Sample, explained: ExplainedSample, change: Change, options: DisplayOptions, towards: int | None
) -> ProvenSample:
    answer = explained.predicted if towards is None else towards
    return ProvenSample(
        sample_id=sample.sample_id,
        answer=class_name(answer, options.class_names),
        before=float(change.answer[answer]),
        changed=float(change.changed_answer[answer]),
        control=float(change.control_answer[answer]),
        changed_words=_compared(sample.tensors, change.changed, options),
        control_words=_compared(sample.tensors, change.control, options),
    )


def _compared(
    original: Mapping[str, Tensor], changed: Mapping[str, Tensor], options: DisplayOptions
) -> tuple[MarkedWord, ...]:
    """Return a changed text, with the words that were taken away or put in; nothing of an image."""
    if "input_ids" not in original or "input_ids" not in changed:
        return ()
    before = _words(original, options)
    after = _words(changed, options)
    marked: list[MarkedWord] = []
    # e.g. ("replace", 3, 4, 3, 5): word 3 was taken away, and words 3 and 4 of the changed text were put in. False:
    # by default, frequent words of texts of 200 words and more would not count as the same.
    for kind, *(start, stop, new_start, new_stop) in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
        mark: Mark = "" if kind == "equal" else "gone"
        marked += [(word, mark) for word in before[start:stop]]
        marked += [] if kind == "equal" else [(word, "new") for word in after[new_start:new_stop]]
    first = next((i for i, (_, mark) in enumerate(marked) if mark), 0)
    start = max(0, first - WORDS_BEFORE)
    return tuple(marked[start : start + MOST_WORDS])


def _words(tensors: Mapping[str, Tensor], options: DisplayOptions) -> list[str]:
    """Return the words of a text, without special tokens and padding."""
    ids = tensors["input_ids"]
    attended = tensors["attention_mask"].bool() if "attention_mask" in tensors else ids >= 0
    tokens = options.name_tokens(ids[attended].tolist())
    scored = scored_tokens(tokens).tolist()
    return [word.text for word in join_words(tokens, scored, [False] * len(tokens)) if word.scored]


def _drawn(examples: Sequence[tuple[Sample, ExplainedSample, Change]], proof: Proof, options: DisplayOptions) -> bytes:
    """Return a PNG with a row per sample: as it is, changed, and under the control, each over its probability."""
    cells: list[UInt8[np.ndarray, "height width 3"]] = []
    captions: list[str] = []
    for (sample, _, change), proven in zip(examples, proof.samples, strict=True):
        name = next(name for name in IMAGES if name in sample.tensors)
        images = [sample.tensors[name], change.changed[name], change.control[name]]
        # Side by side while they are brought to pixels: alone, each would be stretched from its own minimum to its own
        # maximum, and what was not changed would change its colours.
        joint = to_pixels(torch.cat([image.float() for image in images], dim=2), mean=options.mean, std=options.std)
        cells += [enlarge(part) for part in np.split(joint, 3, axis=1)]
        captions += [
            f"#{proven.sample_id} as it is: class {proven.answer} {proven.before:.0%}",
            f"{proof.change}: class {proven.answer} {proven.changed:.0%}",
            f"Control, {proof.control}: class {proven.answer} {proven.control:.0%}",
        ]
    file = io.BytesIO()
    require("PIL.Image", "monitor").fromarray(contact_sheet(cells, captions, columns=3)).save(file, "PNG")
    return file.getvalue()
