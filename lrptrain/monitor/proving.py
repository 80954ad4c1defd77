"""The proofs of what a model relies on: samples as they are, and with the cue of either source, with its answers."""

import difflib
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from lrptrain.batch import IMAGES, collate
from lrptrain.batch.call import ARGUMENT
from lrptrain.batch.rows import has_rows, present_rows, rows_in
from lrptrain.batch.sizes import slices_of
from lrptrain.cues.cue import CANDIDATES, Cue
from lrptrain.cues.measure import Measure
from lrptrain.cues.whole_input import WholeInput
from lrptrain.extras import require
from lrptrain.files import file_name_of
from lrptrain.findings import Finding
from lrptrain.findings.announcement import MOST_SAMPLES
from lrptrain.findings.proof import Mark, MarkedWord, Proof, ProvenSample, views
from lrptrain.monitor.display import DisplayOptions, can_be_drawn
from lrptrain.monitor.evaluation import class_name
from lrptrain.monitor.judgement import Judgement
from lrptrain.monitor.reporting import answers_to, name_of, shown_rows
from lrptrain.render import contact_sheet, enlarge, join_words, outlined, scored_tokens, to_pixels

MOST_WORDS = 60
"""So many words of a text are shown, a fifth of them before the first change: a choice."""

NUMBERS = "numbers"
CHANGE = "Swapped with another class"
CONTROL = "swapped within the class"
SIDE = 300
"""The longer side of a picture has at least so many pixels: a choice, of three that a page shows side by side."""

OUTLINE = 3
"""So many pixels wide is the outline of what was changed: a choice, of what can be seen."""

Example = tuple[int, list[tuple[dict[str, Any], np.ndarray]]]
"""The index of a sample; the sample as it is, with the cue of a source of the same answer, and of another, each with
the probabilities of all classes."""


def examples_of(judgement: Judgement) -> dict[int, list[Example]]:
    """Return samples that have named cues and show their effects best, by the number of the cue; in all processes."""
    found: dict[int, list[Example]] = {}
    for number, each in enumerate(judgement.judged):
        if not each.named or len(found) == CANDIDATES:
            continue
        measure = judgement.measures[each.label]
        rows = shown_rows(each, measure.samples, MOST_SAMPLES)
        found[number] = [
            (row, [(batch, measure.probabilities(batch)) for batch in measure.example(each.cue, row, each.chosen)])
            for row in rows
        ]
    return found


def with_proofs(
    findings: Sequence[Finding],
    judgement: Judgement,
    examples: Mapping[int, Sequence[Example]],
    options: DisplayOptions,
    folder: str,
) -> list[Finding]:
    """Return findings with their proofs."""
    proofs: dict[tuple[str, str, str], Proof] = {}
    for number, shown in examples.items():
        each = judgement.judged[number]
        names = replace(options, class_names=answers_to(each.label, options.class_names))
        name = f"{folder}/{number}_{file_name_of(each.cue.kind)}"
        proof = _proof(each.cue, shown, judgement.measures[each.label], names, name)
        if proof is not None:
            proofs[each.cue.kind, name_of(each, options.class_names), each.cue.role] = proof
    return [replace(each, proof=proofs.get(each.identity)) for each in findings]


def _proof(cue: Cue, examples: Sequence[Example], measure: Measure, options: DisplayOptions, name: str) -> Proof | None:
    proven = []
    examples = [(row, [(_seen(cue, batch), answer) for batch, answer in variants]) for row, variants in examples]
    for row, ((own, before), (like, control), (unlike, changed)) in examples:
        answer = int(measure.answers[row])
        then = int(changed.argmax())
        before_words, changed_words = _compared(own, unlike, options)
        proven.append(
            ProvenSample(
                sample_id=measure.samples[row].sample_id,
                answer=class_name(answer, options.class_names),
                before=float(before[answer]),
                changed=float(changed[answer]),
                control=float(control[answer]),
                instead="" if then == answer else class_name(then, options.class_names),
                then=None if then == answer else float(changed[then]),
                words=before_words,
                changed_words=changed_words,
                control_words=_compared(own, like, options)[1],
            )
        )
    proof = Proof(CHANGE, CONTROL, tuple(proven))
    images = [_images([each for each, _ in variants]) for _, variants in examples]
    if all(image is None for row in images for image in row):
        return replace(proof, path=f"{name}.html") if any(each.changed_words for each in proven) else None
    drawn = [[options.drawn(image) for image in row if image is not None] for row in images]
    drawable = [[image for image in row if can_be_drawn(image)] for row in drawn]
    # What was changed may lie in channels that are not drawn.
    if any(len(row) < 3 for row in drawable) or all(torch.equal(row[0], row[2]) for row in drawable):
        return None
    is_local = cue.locate(collate(measure.samples[:1])) is not None
    return replace(proof, path=f"{name}.png", png=_drawn(drawable, proof, options, is_local))


def _seen(cue: Cue, batch: dict[str, Any]) -> dict[str, Any]:
    """Return what is shown of a sample: of a cue that is an input, that input under the name of what is explained."""
    if not isinstance(cue, WholeInput):
        return batch
    given = {name.removeprefix(ARGUMENT): batch[name] for name in cue.entries if name in batch}
    values = batch[cue.entries[0]]
    return {"image": values} if values.ndim == 4 else {NUMBERS: values, **given}


def _images(variants: Sequence[Mapping[str, Any]]) -> list[Tensor | None]:
    """Return a sample as it is and changed, each as an image; of a volume, the slice that changes most."""
    images = [next((batch[name][0].cpu() for name in IMAGES if name in batch), None) for batch in variants]
    volumes = [slices_of(image) for image in images if image is not None and image.ndim == 4]
    if not volumes or {each.shape for each in volumes} != {volumes[0].shape}:
        return [None if image is None or image.ndim < 3 else image for image in images]
    changes = sum((each - volumes[0]).double().abs().flatten(1).sum(1) for each in volumes[1:])
    place = int(torch.as_tensor(changes).argmax())
    return [each[place] for each in volumes]


def _compared(
    original: Mapping[str, Any], changed: Mapping[str, Any], options: DisplayOptions
) -> tuple[tuple[MarkedWord, ...], tuple[MarkedWord, ...]]:
    """Return a text or numbers with what is taken away, and changed, with what is put in; nothing of an image."""
    if "input_ids" in original or NUMBERS in original:
        marked = _compared_words(_words(original, options), _words(changed, options))
    else:
        marked = _compared_rows(original, changed) if has_rows(original) else []
    first = next((i for i, (_, mark) in enumerate(marked) if mark), 0)  # of either text
    start = max(0, first - MOST_WORDS // 5)
    texts = ([word for word in marked if word[1] != other] for other in ("new", "gone"))
    own, other = (tuple(text[start : start + MOST_WORDS]) for text in texts)
    return own, other


def _compared_words(before: Sequence[str], after: Sequence[str]) -> list[MarkedWord]:
    marked: list[MarkedWord] = []
    # e.g. ("replace", 3, 4, 3, 5): word 3 was taken away, and words 3 and 4 of the changed text were put in. False:
    # by default, frequent words of texts of 200 words and more would not count as the same.
    for kind, *(start, stop, new_start, new_stop) in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
        mark: Mark = "" if kind == "equal" else "gone"
        marked += [(word, mark) for word in before[start:stop]]
        marked += [] if kind == "equal" else [(word, "new") for word in after[new_start:new_stop]]
    return marked


def _compared_rows(original: Mapping[str, Any], changed: Mapping[str, Any]) -> list[MarkedWord]:
    """Return which rows of a sample were taken away, and that others came in their place."""
    before, after = rows_in(original)[0], rows_in(changed)[0]
    were, are = present_rows(original)[0], present_rows(changed)[0]
    marked: list[MarkedWord] = []
    for row in range(min(len(before), len(after))):
        if were[row] and are[row] and torch.equal(before[row], after[row]):
            marked.append((f"row {row}", ""))
            continue
        marked += [(f"row {row}", "gone")] if were[row] else []
        marked += [("another", "new")] if are[row] else []
    return marked


def _words(batch: Mapping[str, Any], options: DisplayOptions) -> list[str]:
    """Return the words of the first text of a batch, without special tokens and padding, or its numbers."""
    if "input_ids" not in batch:
        return [f"{number:.4g}" for number in batch[NUMBERS][0].double().flatten().tolist()]
    ids = batch["input_ids"][0]
    attended = batch["attention_mask"][0].bool() if "attention_mask" in batch else ids >= 0
    tokens = options.name_tokens(ids[attended].tolist())
    scored = scored_tokens(tokens).tolist()
    return [word.text for word in join_words(tokens, scored, [False] * len(tokens)) if word.scored]


def _drawn(rows: Sequence[Sequence[Tensor]], proof: Proof, options: DisplayOptions, is_local: bool) -> bytes:
    """Return a PNG with a row per sample; of a local cue, what was changed is outlined."""
    cells: list[UInt8[np.ndarray, "height width 3"]] = []
    for own, like, unlike in rows:
        # Side by side while they are brought to pixels: alone, each would be stretched from its own minimum to its own
        # maximum, and what was not changed would change its colours.
        joint = to_pixels(torch.cat([own.float(), unlike.float(), like.float()], 2), mean=options.mean, std=options.std)
        for part, other in zip(np.split(joint, 3, axis=1), (unlike, unlike, like), strict=True):
            changes = enlarge((own != other).any(0).cpu().numpy(), SIDE)
            picture = enlarge(part, SIDE)
            cells.append(outlined(picture, changes, OUTLINE) if is_local else picture)
    captions = [view.title for sample in proof.samples for view in views(sample, proof)]
    file = io.BytesIO()
    require("PIL.Image", "monitor").fromarray(contact_sheet(cells, captions, columns=3)).save(file, "PNG")
    return file.getvalue()
