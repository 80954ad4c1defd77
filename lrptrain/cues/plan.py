"""What is tested in images and in texts, and in what order: the roots of the trees."""

from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor

from lrptrain.batch import IMAGES, Sample, collate
from lrptrain.batch.chunks import chunk_width
from lrptrain.batch.matters import FEWEST_SAMPLES
from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.batch.rows import grid_sizes
from lrptrain.cues.cue import CANDIDATES, Cue, Role
from lrptrain.cues.family import LARGEST, Family
from lrptrain.cues.images import Where, are_videos, image_of, mask_in
from lrptrain.cues.length import Length
from lrptrain.cues.mark import Marks
from lrptrain.cues.measure import Indices
from lrptrain.cues.order import Order
from lrptrain.cues.pair import OneOfPair, Overlap
from lrptrain.cues.phrase import propose_phrases
from lrptrain.cues.placement import Placement
from lrptrain.cues.places import WHOLE, Place, places
from lrptrain.cues.region import Region
from lrptrain.cues.row_count import RowCount
from lrptrain.cues.row_mark import propose_row_marks
from lrptrain.cues.row_segment import AllRows
from lrptrain.cues.rows import RowPart
from lrptrain.cues.rows import is_annotated as has_annotated_rows
from lrptrain.cues.search import Node
from lrptrain.cues.segment import AllWords, ends_of
from lrptrain.cues.series import SeriesPart, SeriesSurroundings, parts_of_series
from lrptrain.cues.surroundings import Surroundings
from lrptrain.cues.texts import Language, TextPart, is_annotated, parts_of
from lrptrain.cues.visual import registered_looks, registered_parts
from lrptrain.cues.visual.colour import Colour
from lrptrain.cues.volumes import Planes, VolumeSurroundings, parts_of_volumes
from lrptrain.cues.whole_input import whole_inputs

FAULTS_WEIGH = 10.0
"""What is a fault for sure has as large a share of the level as ten other cues: a choice, as everybody asks for it.
Only annotated samples have any, so that `python -m experiments.benchmark.moved` cannot measure it."""


def of_images(
    samples: Sequence[Sample],
    marks: Marks | None,
    answers: Indices,
    seed: int = 0,
    regions: Sequence[str] = (),
    candidates: int = CANDIDATES,
) -> list[Node]:
    """Return what is tested in images.

    `marks` is None where none are looked for, as in images of several sizes; `regions` names those of masks, of which
    the first is the evidence; each half of the samples proposes so many `candidates`.
    """
    everyone = np.arange(len(samples))
    marked = everyone[[_is_annotated(sample) for sample in samples]]

    def marked_by(where: Where, chosen: Indices) -> tuple[Node, ...]:
        found: list[Node] = []
        for proposing, judging in _halves(chosen, seed) if marks is not None else ():
            assert marks is not None
            proposed = [mark for _, mark in marks.proposed(proposing, answers[proposing], where, candidates)]
            alone = tuple(Node(mark, judging) for mark in proposed if not mark.is_several)
            together = [Node(mark, judging, alone) for mark in proposed if mark.is_several]
            found += together or alone
        return _merged(found)

    channels = image_of(collate(samples[:1]))[1].shape[1]
    looks = registered_looks()
    kept, moved = (
        [Node(look.of("image", "unreviewed"), everyone) for look in looks if look.keeps_places is keeps]
        for keeps in (True, False)
    )
    if not _are_told_apart(marked, answers):
        cues = [*places("unreviewed"), *registered_parts("unreviewed", channels)]
        parts = tuple(Node(part, everyone) for part in cues)
        whole = Node(Place("the image", "unreviewed", WHOLE), everyone, parts, is_whole=True)
        return [*kept, *moved, whole, *marked_by("image", everyone)]
    named = tuple(Node(Region(name, "shortcut", i), marked) for i, name in enumerate(regions) if i)
    named += tuple(Node(part, marked) for part in registered_parts("shortcut", channels, "outside"))
    return [
        Node(Surroundings(), marked, (*named, *marked_by("outside", marked)), FAULTS_WEIGH),
        *kept,
        *(Node(look.of("evidence", "unreviewed"), marked) for look in looks if look.is_of_evidence),
        *moved,
        Node(Placement.of("location"), marked),
        Node(Placement.of("size"), marked),
        *marked_by("evidence", marked),
    ]


def of_texts(
    samples: Sequence[Sample], answers: Indices, language: Language, seed: int = 0, candidates: int = CANDIDATES
) -> list[Node]:
    """Return what is tested in texts; see `of_images`."""
    everyone = np.arange(len(samples))
    batch = collate(samples)
    is_whole = chunk_width(batch) is None
    pairs = everyone[[is_whole and len(parts) == 2 for parts in parts_of(batch, language)]]
    marked = everyone[is_annotated(batch).numpy()]

    def parts_as(role: Role, where: TextPart, chosen: Indices) -> list[Node]:
        found: list[Node] = []
        for proposing, judging in _halves(chosen, seed):
            texts = collate([samples[i] for i in proposing])
            proposed = propose_phrases(texts, answers[proposing], language, role, where, candidates)
            found += [Node(phrase, judging) for _, phrase in proposed]
        families = LARGEST if language.is_named else ()
        return [*(Node(Family.of(each, role, language, where), chosen) for each in families), *_merged(found)]

    def ends_as(role: Role, where: TextPart, chosen: Indices) -> list[Node]:
        of = "the text" if is_whole else "each chunk"
        return [Node(each, chosen) for each in ends_of(role, language, where, of)]

    others = [
        Node(Length("the length of the text", "unreviewed", language), everyone),
        Node(Order("the order of the words", "unreviewed", language), everyone),
    ]
    if 2 * len(pairs) > len(everyone):
        names = ("the first text", "the second text")
        others += [Node(OneOfPair(name, "unreviewed", language, i), pairs) for i, name in enumerate(names)]
        others.append(Node(Overlap("how many words both texts share", "unreviewed", language), pairs))
    all_words = AllWords("the words", "unreviewed", language)
    if not _are_told_apart(marked, answers):
        whole = Node(all_words, everyone, tuple(ends_as("unreviewed", "text", everyone)), is_whole=True)
        return [*others, *parts_as("unreviewed", "text", everyone), whole]
    # Rationales suffice, and are seldom all of the evidence (DeYoung et al. 2020, "ERASER", section 4): that other
    # words tell anything is no fault, but that they tell most of it, or that certain ones do.
    beside = AllWords("everything outside the annotation", "shortcut", language, "outside")
    faults = Node(beside, marked, (*parts_as("shortcut", "outside", marked), *ends_as("shortcut", "outside", marked)))
    return [Node(all_words, marked, (faults,), FAULTS_WEIGH, is_whole=True), *others]


def of_volumes(samples: Sequence[Sample], answers: Indices) -> list[Node]:
    """Return what is tested in volumes and videos; see `of_images`."""
    everyone = np.arange(len(samples))
    planes: Planes = "frames" if are_videos(collate(samples[:1])) else "slices"
    marked = everyone[[_is_annotated(sample) for sample in samples]]
    brightness = Node(Colour.of("image", "unreviewed"), everyone)
    if not _are_told_apart(marked, answers):
        parts = tuple(Node(each, everyone) for each in parts_of_volumes("unreviewed", planes))
        return [brightness, Node(Place(f"all {planes}", "unreviewed", WHOLE), everyone, parts, is_whole=True)]
    inside = Node(Colour.of("evidence", "unreviewed"), marked)
    return [Node(VolumeSurroundings(planes=planes), marked, (), FAULTS_WEIGH), brightness, inside]


def of_series(samples: Sequence[Sample], answers: Indices) -> list[Node]:
    """Return what is tested in series; see `of_images`."""
    everyone = np.arange(len(samples))
    channels = image_of(collate(samples[:1]))[1].shape[1]
    marked = everyone[[_is_annotated(sample) for sample in samples]]
    if _are_told_apart(marked, answers):
        level = Colour("the level of the channels in the annotated part", "unreviewed", "evidence")
        return [Node(SeriesSurroundings(channels=channels), marked, (), FAULTS_WEIGH), Node(level, marked)]
    parts = tuple(Node(each, everyone) for each in parts_of_series("unreviewed", channels))
    return [Node(SeriesPart("the series", "unreviewed", 0, channels), everyone, parts, is_whole=True)]


def of_rows(
    samples: Sequence[Sample], maps: Sequence[Tensor], answers: Indices, seed: int = 0, candidates: int = CANDIDATES
) -> list[Node]:
    """Return what is tested in rows, such as the instances of a bag; see `of_images`."""
    everyone = np.arange(len(samples))
    alone = [collate([sample]) for sample in samples]  # together, large bags would be padded to the largest
    marked = everyone[[bool(has_annotated_rows(each).any()) for each in alone]]

    def marks(where: RowPart, chosen: Indices) -> tuple[Node, ...]:
        found = []
        for proposing, judging in _halves(chosen, seed) if candidates else ():
            proposed = propose_row_marks(
                collate([samples[i] for i in proposing]),
                [maps[i] for i in proposing],
                [samples[i].sample_id for i in proposing],
                answers[proposing],
                where,
                candidates,
            )
            found += [Node(mark, judging) for _, mark in proposed]
        return _merged(found)

    # Of patches of a grid the number is that of its rows and columns, an input of its own.
    counts = [] if all(grid_sizes(each) is not None for each in alone) else [Node(RowCount(), everyone)]
    if not _are_told_apart(marked, answers):
        return [*counts, Node(AllRows("the rows", "unreviewed"), everyone, is_whole=True), *marks("rows", everyone)]
    beside = AllRows("everything outside the annotation", "shortcut", "outside")
    return [Node(beside, marked, marks("outside", marked), FAULTS_WEIGH), *counts, *marks("evidence", marked)]


def of_inputs(samples: Sequence[Sample]) -> list[Node]:
    """Return the model's inputs, each as a whole, where it has several; of the explained one, parts are named."""
    call = samples[0].call
    explained = next(name for name in (*IMAGES, "input_ids") if name in samples[0].tensors)
    cues = whole_inputs(collate(samples[:1]), explained if call is None else call.explained)
    everyone = np.arange(len(samples))
    return [Node(cue, everyone, is_whole=not number) for number, cue in enumerate(cues)]


def with_further(roots: Sequence[Node], further: Sequence[tuple[Cue, Indices | None]], count: int) -> list[Node]:
    """Return roots with cues that are tested whatever the samples propose, unless they are roots themselves."""
    planned = {root.cue.declared("unreviewed") for root in roots}
    added = {
        cue.declared("unreviewed"): (cue, chosen)
        for cue, chosen in further
        if cue.declared("unreviewed") not in planned
    }
    return [*roots, *(Node(cue, np.arange(count) if chosen is None else chosen) for cue, chosen in added.values())]


def _are_told_apart(marked: Indices, answers: Indices) -> bool:
    """Whether annotated samples can be compared: there are enough, and those of another answer are annotated, too."""
    several = len(np.unique(answers[marked])) > 1 or len(np.unique(answers)) < 2
    return len(marked) >= FEWEST_SAMPLES and several


def untold(samples: Sequence[Sample], answers: Indices) -> list[str]:
    """Return what cannot be tested in images, volumes or series, as the masks are of one answer alone."""
    marked = np.flatnonzero([_is_annotated(sample) for sample in samples])
    is_one = len(marked) >= FEWEST_SAMPLES and not _are_told_apart(marked, answers)
    return ["what lies outside of masks, as samples of one answer alone have any"] if is_one else []


def _is_annotated(sample: Sample) -> bool:
    return not sample.tensors.keys().isdisjoint(ANNOTATIONS) and bool((mask_in(collate([sample])) == 1).any())


def _halves(chosen: Indices, seed: int) -> Iterable[tuple[Indices, Indices]]:
    """Yield one half of some samples, which proposes, and the other, which judges; then the other way round."""
    mixed = np.random.default_rng([seed, len(chosen)]).permutation(chosen)
    one, other = mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]
    return [(one, other), (other, one)] if len(one) else []


def _merged(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes of which those that both halves propose are one: each half has judged what the other proposed."""
    same: dict[Cue, list[Node]] = {}
    for node in nodes:
        same.setdefault(node.cue, []).append(node)
    merged = []
    for cue, found in same.items():
        parts = _merged([part for each in found for part in each.parts])
        merged.append(Node(cue, np.unique(np.concatenate([each.chosen for each in found])), parts))
    return tuple(merged)
