"""Reliance on the edges of images: what is tested, how it is told, and what it is folded into."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Effect, Evaluation, ExplainedSample, announce, unfold
from lrptrain.findings.detectors.edges import MOST_JUDGED, RelianceOnEdges
from lrptrain.findings.detectors.positions import FocusAtPosition
from lrptrain.intervention import Region
from lrptrain.intervention.edges import along_edges
from lrptrain.monitor.record_builder import RecordBuilder

CONFIG = DetectionConfig(["cat", "dog"], lambda ids: [str(i) for i in ids])
CORNERS = (0, 3, 12, 15)


def evaluation(count=24, size=(20, 12), patches=CORNERS, annotated=False, grid=(4, 4)):
    """Pictures of noise, whose relevance lies on some patches alone."""
    generator = torch.Generator().manual_seed(0)
    relevance = torch.zeros(grid[0] * grid[1], dtype=torch.float64)
    relevance[list(patches)] = 1
    inputs = [Sample(i, i % 2, {"image": torch.rand(3, *size, generator=generator)}) for i in range(count)]
    explained = [
        ExplainedSample(
            replace(each, tensors={}), each.label, np.eye(2)[each.label], {"label": relevance}, grid, 2, np.nan, {},
            annotated=np.zeros(16, bool) if annotated else None,
        )
        for each in inputs
    ]  # fmt: skip
    return Evaluation(explained, inputs, epoch=3, step=30)


def candidates(given):
    return list(RelianceOnEdges().detect(given, CONFIG))


def test_images_without_annotations_are_tested_whatever_the_maps():
    for patches in (CORNERS, (5, 6, 9, 10), ()):
        (one,) = candidates(evaluation(patches=patches))
        assert one.region == Region("edges")
        assert one.rows.tolist() == list(range(24))
    (many,) = candidates(evaluation(count=200))
    assert len(many.rows) == MOST_JUDGED
    assert many.rows[0] == 0
    assert many.rows[-1] == 199
    assert candidates(evaluation(annotated=True)) == []
    assert candidates(replace(evaluation(), inputs=None)) == []
    texts = replace(evaluation(), inputs=[Sample(i, 0, {"input_ids": torch.ones(4)}) for i in range(24)])
    assert candidates(texts) == []
    other = [Sample(i, 0, {"image": torch.ones(3, 20, 12 + i)}) for i in range(24)]
    assert candidates(replace(evaluation(), inputs=other)) == []


@pytest.mark.parametrize("size", [(20, 12), (16, 16), (10, 30)])
def test_the_share_of_the_relevance_counts_patches_by_their_pixels_along_the_edges(size):
    (one,) = candidates(evaluation(size=size, patches=(0,)))
    # Of patches that no pixel row divides, a pixel belongs to that of its beginning.
    heights, widths = (np.array([np.sum(np.arange(side) * 4 // side == i) for i in range(4)]) for side in size)
    down, across = (-(-side // 8) for side in size)
    inside = (heights[0] - min(down, heights[0])) * (widths[0] - min(across, widths[0]))
    share = 1 - inside / (heights[0] * widths[0])
    assert one.finding.relevance.effect == pytest.approx(share, abs=1e-12)
    # A uniform map has the mean over the patches there: that is the area where all patches are of one size.
    if size == (16, 16):
        assert one.finding.relevance.reference == pytest.approx(float(along_edges(size).double().mean()), abs=1e-12)


def facts(change, given=None, more=()):
    given = given or evaluation()
    tested = [*candidates(given), *more]
    counts = [len(each.rows) for each in tested]
    effects = [
        Effect(size + 0.001 * np.arange(count), np.zeros(count), strategy)
        for (size, strategy), count in zip([(change, "edges"), (0.5, "inpaint")], counts, strict=False)
    ]
    return RecordBuilder(class_names=["cat", "dog"]).build(given, [], tested, effects).findings


@pytest.mark.parametrize(("change", "found"), [(0.36, True), (0.33, False)])
def test_it_is_confirmed_for_a_person_to_judge(change, found):
    confirmed = facts(change)
    assert bool(confirmed) == found
    for fact in confirmed:
        assert (fact.kind, fact.state, fact.is_fault) == ("reliance_on_edges", "confirmed", False)
        words = " ".join(announce([fact])[0].split())
        assert words.startswith(
            "Confirmed, for you to judge, all classes: the model relies on what lies along the image's edges. "
            "Given the edges of another class's image, the answer's probability falls by 37 points"
        )
        assert 'Mend: if wrong, guidance by "swap", swap="edges"' in words


@pytest.mark.parametrize(("change", "is_the_place"), [(0.5, True), (0.6, True), (0.7, False)])
def test_what_a_place_accounts_for_is_folded_into_it(change, is_the_place):
    given = evaluation()
    places = list(FocusAtPosition().detect(given, CONFIG))
    found = facts(change, given, places[:1])
    assert len(unfold(found)) == 2
    assert ([each.kind for each in found] == ["focus_at_position"]) == is_the_place
