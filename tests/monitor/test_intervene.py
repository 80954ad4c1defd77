"""Interventions on every candidate, of which those without a chance are given up after a first look."""

import threading

import numpy as np
import pytest
import torch
from examples import finding
from torch import nn

from lrptrain.batch import Sample
from lrptrain.findings import Candidate, ExplainedSample, reach_verdicts
from lrptrain.findings.first_look import first_look
from lrptrain.intervention import InterventionConfig, Region, effects
from lrptrain.monitor import intervene as intervene_module
from lrptrain.monitor.evaluator import Evaluator, ExplanationConfig
from lrptrain.monitor.gathering import GatheredInputs
from lrptrain.monitor.intervene import SEEDS_APART, intervene

COUNT = 144
ALL = np.arange(COUNT)
CLASS = np.arange(0, COUNT, 3)
GRID = (2, 2)
CORNER = Region("patches", (3,))


class Reader(nn.Module):
    """Three classes by the colour of one patch."""

    def __init__(self, start):
        super().__init__()
        self.patch = slice(start, start + 4)

    def forward(self, image):
        return 10 * image[:, :, self.patch, self.patch].mean((2, 3))


class Mixed(nn.Module):
    """Reads the first patch, and so much of the last."""

    def __init__(self, share):
        super().__init__()
        self.share = share

    def forward(self, image):
        return (1 - self.share) * READS_OBJECT(image) + self.share * READS_CORNER(image)


def samples():
    """The colour of the class in the first patch, which is the evidence, and in the last."""
    generator = torch.Generator().manual_seed(0)
    images = 0.5 * torch.rand(COUNT, 3, 8, 8, generator=generator)
    regions = torch.zeros(2, 8, 8, dtype=torch.uint8)
    regions[0, :4, :4] = 1
    regions[1, 4:, 4:] = 1
    for i, image in enumerate(images):
        for patch in (image[:, :4, :4], image[:, 4:, 4:]):
            patch.zero_()
            patch[i % 3] = 0.7 + 0.3 * torch.rand((), generator=generator)
    return [Sample(i, i % 3, {"image": image, "mask": regions}) for i, image in enumerate(images)]


SAMPLES = samples()
READS_OBJECT = Reader(0)
READS_CORNER = Reader(4)


@torch.no_grad()
def answers(model):
    return torch.softmax(model(torch.stack([sample.tensors["image"] for sample in SAMPLES])), 1).numpy()


def intervened(model, *candidates, local_rows=ALL):
    explained = [
        ExplainedSample(sample, int(row.argmax()), row, {}, GRID, 3, 0.25, {})
        for sample, row in zip(SAMPLES, answers(model), strict=True)
    ]
    inputs = GatheredInputs(SAMPLES, list(local_rows))
    evaluator = Evaluator(model, ExplanationConfig())
    return intervene(
        evaluator, inputs, explained, candidates, InterventionConfig(), pytest.fail, min_effect=0.05, confidence=0.95
    )


def suspicion(region=CORNER, rows=ALL, kind="focus_at_position", medium=""):
    return Candidate(finding(kind=kind, medium=medium), region, rows)


def on_all_samples(model, region):
    return effects(
        model,
        SAMPLES,
        rows=ALL,
        computed_rows=ALL,
        region=region,
        probabilities=answers(model),
        grid=GRID,
        config=InterventionConfig(),
    )


def rows_tested(effect):
    return np.flatnonzero(~np.isnan(effect.change))


def test_a_candidate_of_no_samples_is_no_failure():
    (effect,) = intervened(READS_OBJECT, suspicion(rows=ALL[:0]))
    (verdict,) = reach_verdicts([suspicion().finding], [effect], 0.05)
    assert verdict.note == "too few samples to test it: 0"


def test_a_place_that_surely_does_not_matter_is_given_up_after_a_quarter_of_the_samples():
    sizes = []
    hook = READS_OBJECT.register_forward_hook(lambda _, arguments, __: sizes.append(len(arguments[0])))
    (effect,) = intervened(READS_OBJECT, suspicion())
    hook.remove()
    assert sum(sizes) == COUNT + 2 * COUNT // 4  # as they are; then a quarter under the change and the control
    assert len(rows_tested(effect)) == COUNT // 4
    (verdict,) = reach_verdicts([suspicion().finding], [effect], 0.05)
    assert verdict.intervention is not None
    assert (verdict.state, verdict.intervention.samples) == ("unconfirmed", COUNT // 4)  # by a removal alone


def test_an_exchange_begins_with_another_quarter_than_the_removal():
    removal, exchange = intervened(READS_OBJECT, suspicion(), suspicion(CORNER.in_exchange()))
    assert len(rows_tested(exchange)) == COUNT // 4
    assert not np.intersect1d(rows_tested(removal), rows_tested(exchange)).size


@pytest.mark.parametrize("region", [CORNER, CORNER.in_exchange(), Region("named", 1)])
def test_what_surely_matters_is_confirmed_by_the_first_look_with_the_numbers_of_its_samples(region):
    (effect,) = intervened(READS_CORNER, suspicion(region))
    looked_at = first_look(ALL, COUNT, 0, region)
    np.testing.assert_array_equal(rows_tested(effect), looked_at)
    change, control = on_all_samples(READS_CORNER, region)
    np.testing.assert_allclose(effect.change[looked_at], change[looked_at], atol=1e-6)  # float32, of probabilities
    np.testing.assert_allclose(effect.control[looked_at], control[looked_at], atol=1e-6)
    assert reach_verdicts([suspicion().finding], [effect], 0.05)[0].state == "confirmed"


def test_what_is_in_doubt_is_tested_on_all_samples():
    region = Region("named", 1)
    weak = Mixed(0.32)  # the corner moves the answers by about as much as matters
    (effect,) = intervened(weak, suspicion(region))
    change, control = on_all_samples(weak, region)
    assert 0.04 < np.mean(change - control) < 0.06
    np.testing.assert_allclose(effect.change, change, atol=1e-6)
    np.testing.assert_allclose(effect.control, control, atol=1e-6)


@pytest.mark.parametrize(("model", "tested"), [(READS_OBJECT, 15), (READS_CORNER, 30)])
def test_few_samples_are_tested_in_full_unless_none_of_a_half_moves(model, tested):
    (effect,) = intervened(model, suspicion(CORNER, rows=ALL[:30]))
    assert len(rows_tested(effect)) == tested


def test_classes_that_do_not_move_leave_the_surroundings_to_half_of_the_samples():
    outside = Region("outside")
    small = [ALL[start::18] for start in range(18)]  # 8 samples each
    kind = "reliance_outside_annotation"
    everything, *classes = intervened(
        READS_OBJECT, *(suspicion(outside, rows, kind) for rows in (ALL, CLASS, CLASS + 1, *small))
    )
    looked_at = first_look(ALL, COUNT, 0, outside)
    for effect, rows in zip(classes, (CLASS, CLASS + 1, *small), strict=True):
        np.testing.assert_array_equal(rows[rows_tested(effect)], np.intersect1d(rows, looked_at))
    np.testing.assert_array_equal(rows_tested(everything), looked_at)
    # Suspected by its map, a class is tested in full.
    everything, of_class = intervened(
        READS_OBJECT, suspicion(outside, ALL, kind), suspicion(outside, CLASS, "focus_outside_annotation")
    )
    assert len(rows_tested(everything)) == COUNT // 2
    assert len(rows_tested(of_class)) == len(CLASS)


def test_what_others_need_of_a_region_does_not_bias_who_was_given_up():
    of_all, of_class = intervened(READS_OBJECT, suspicion(), suspicion(rows=CLASS))
    early = first_look(ALL, COUNT, 0, CORNER)
    np.testing.assert_array_equal(rows_tested(of_all), early)
    assert len(rows_tested(of_class)) == len(CLASS)  # more than the first look has of this class
    assert len(np.intersect1d(early, CLASS)) < len(CLASS)


def draw_of(model, region, seed):
    return effects(
        model, SAMPLES, rows=ALL, computed_rows=ALL, region=region, probabilities=answers(model), grid=GRID,
        config=InterventionConfig(seed=seed),
    )  # fmt: skip


def test_where_a_draw_of_donors_leaves_it_in_doubt_two_more_are_drawn_and_the_mean_counts():
    outside = Region("outside")
    weak = Mixed(0.43)
    change, control = draw_of(weak, outside, 0)
    assert 0.15 < np.mean(change - control) < 0.25  # the surroundings of images take 0.2
    (effect,) = intervened(weak, suspicion(outside, kind="reliance_outside_annotation", medium="image"))
    draws = [(change, control), *(draw_of(weak, outside, SEEDS_APART * number) for number in (1, 2))]
    assert len({each.tobytes() for each, _ in draws}) == 3
    np.testing.assert_allclose(effect.change, np.mean([each for each, _ in draws], axis=0), atol=1e-6)
    np.testing.assert_allclose(effect.control, np.mean([each for _, each in draws], axis=0), atol=1e-6)


def test_only_the_samples_of_what_is_in_doubt_are_drawn_again():
    outside = Region("outside")
    weak = Mixed(0.43)
    # Five points are enough for what the maps show, and these it has for sure; where they do not, twenty are in doubt.
    shown = suspicion(outside, medium="image", kind="focus_outside_annotation")
    hidden = suspicion(outside, CLASS, "reliance_outside_annotation", "image")
    whole, of_class = intervened(weak, shown, hidden)
    change, _ = on_all_samples(weak, outside)
    again = ~np.isclose(of_class.change, change[CLASS], atol=1e-5)
    assert np.isfinite(of_class.change).all()
    assert again.mean() > 0.5
    others = np.setdiff1d(rows_tested(whole), CLASS)
    assert len(others) > 20
    np.testing.assert_allclose(whole.change[others], change[others], atol=1e-6)


@pytest.mark.parametrize("region", [CORNER, Region("mark", (0, 0, 0, 4, 4))])
def test_what_takes_nothing_from_a_donor_is_not_drawn_again(region):
    sizes = []
    weak = Mixed(0.32)
    hook = weak.register_forward_hook(lambda _, arguments, __: sizes.append(len(arguments[0])))
    (effect,) = intervened(weak, suspicion(region, rows=ALL[:60]))
    hook.remove()
    assert sum(sizes) <= COUNT + 2 * 60
    assert effect.strategy in ("inpaint", "paste")


@pytest.mark.parametrize("model", [READS_OBJECT, READS_CORNER, Mixed(0.4)])
def test_two_processes_come_to_the_same_as_one(model, monkeypatch):
    of_images = suspicion(Region("outside"), kind="reliance_outside_annotation", medium="image")
    candidates = [suspicion(), suspicion(rows=CLASS), of_images]
    alone = intervened(model, *candidates)
    # The transport alone is a stand-in: two threads take the places of two processes.
    barrier = threading.Barrier(2, timeout=30)
    sent = {}
    results = {}

    def gather(value):
        sent[threading.current_thread().name] = value
        barrier.wait()
        parts = [sent["0"], sent["1"]]
        barrier.wait()
        return parts

    monkeypatch.setattr(intervene_module, "gather", gather)

    def work(rank):
        with torch.no_grad():
            results[rank] = intervened(model, *candidates, local_rows=ALL[rank::2])

    threads = [threading.Thread(target=work, args=(rank,), name=str(rank)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank in range(2):
        for together, single in zip(results[rank], alone, strict=True):
            np.testing.assert_allclose(together.change, single.change, atol=1e-6)
            np.testing.assert_allclose(together.control, single.control, atol=1e-6)
