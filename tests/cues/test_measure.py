"""Effects are those of a model whose answers are known, sources are drawn fairly, and intervals hold what they say."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lrptrain.batch import Sample
from lrptrain.cues.measure import Measure, MeasureError, effect_of, sources_for
from lrptrain.cues.places import WHOLE, Place, places


@given(st.lists(st.integers(0, 3), min_size=2, max_size=40), st.integers(0, 99), st.booleans())
@settings(deadline=None, max_examples=200)
def test_sources_have_the_same_answer_or_another_and_give_about_equally_often(answers, seed, same):
    answers = np.array(answers)
    among = np.arange(len(answers))[:: 1 + seed % 2]
    sources = sources_for(answers, among, same, seed)
    assert (sources[np.setdiff1d(np.arange(len(answers)), among)] == -1).all()
    for taker in among:
        possible = [i for i in among if i != taker and (answers[i] == answers[taker]) == same]
        assert sources[taker] in possible if possible else sources[taker] == -1
    for answer in np.unique(answers[among]):
        takers = among[answers[among] == answer]
        _, times = np.unique(sources[takers][sources[takers] >= 0], return_counts=True)
        assert not len(times) or times.max() <= math.ceil(len(takers) / max(len(times), 1)) + 1


def test_draws_differ_by_seed_and_not_by_process():
    answers = np.arange(40) % 2
    first = sources_for(answers, np.arange(40), False, 0)
    assert np.array_equal(first, sources_for(answers, np.arange(40), False, 0))
    assert not np.array_equal(first, sources_for(answers, np.arange(40), False, 1))


def corner_reader(images):
    """A model of two answers that reads the mean of the top left corner alone."""
    p = torch.sigmoid(4 * images[:, 0, :4, :4].mean((1, 2)))
    return torch.stack([1 - p, p], 1).numpy()


def measured(batch_size=7):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(30, 1, 16, 16, generator=generator) * 0.2
    images[:, :, :4, :4] += torch.where(torch.arange(30) % 3 == 0, 1.0, -1.0)[:, None, None, None]
    samples = [Sample(i, -1, {"image": image}) for i, image in enumerate(images)]
    answers = corner_reader(images).argmax(1)
    return (
        Measure(
            samples,
            answers,
            lambda batch: corner_reader(batch["image"]),
            batch_size=batch_size,
            before=corner_reader(images),
        ),
        images,
        answers,
    )


def corner(name="the top left corner"):
    edge = next(each for each in places("unreviewed") if each.name == "the top edge")
    return next(each for each in edge.children() if each.name == name)


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_the_effect_is_the_difference_of_both_sources_probabilities(batch_size):
    measure, images, answers = measured(batch_size)
    everyone = np.arange(30)
    values = measure.effects(corner(), everyone, everyone)
    like, unlike = (sources_for(answers, everyone, same, 0) for same in (True, False))
    p = corner_reader(images)
    # This model reads nothing but the corner: with that of a source, it answers as it does to the source.
    wanted = p[like, answers] - p[unlike, answers]
    np.testing.assert_allclose(values, wanted, atol=1e-6)
    assert values.min() > 0.8
    assert measure.passes == 60


def test_what_it_does_not_read_has_no_effect_and_what_is_alike_none_to_measure():
    measure, _, _ = measured()
    everyone = np.arange(30)
    assert np.array_equal(measure.effects(corner("the top right corner"), everyone, everyone), np.zeros(30))
    plain = [Sample(i, -1, {"image": torch.zeros(1, 16, 16)}) for i in range(30)]
    same = Measure(plain, measure.answers, lambda batch: corner_reader(batch["image"]))
    assert np.isnan(same.effects(corner(), everyone, everyone)).all()
    assert same.passes == 0


def test_what_differs_in_one_of_several_inputs_differs():
    alone, images, answers = measured()
    everyone = np.arange(30)
    samples = [Sample(i, -1, {"image": image, "argument:age": torch.ones(1)}) for i, image in enumerate(images)]
    measure = Measure(samples, answers, lambda batch: corner_reader(batch["image"]))
    values = measure.effects(corner(), everyone, everyone)
    np.testing.assert_allclose(values, alone.effects(corner(), everyone, everyone), atol=1e-6)


def test_every_process_measures_its_own_samples_and_has_the_effects_of_all():
    whole, images, answers = measured()
    everyone = np.arange(30)
    values = whole.effects(corner(), everyone, everyone)
    drops = whole.drops(corner(), everyone, everyone)
    theirs = everyone[1::2]
    others = [(theirs, drops[theirs], ""), (theirs, (drops - values)[theirs], "")]

    def process(*others):
        told = iter(others)
        return Measure(
            whole.samples,
            answers,
            lambda batch: corner_reader(batch["image"]),
            before=corner_reader(images),
            mine=everyone[::2],
            gather=lambda own: [own, next(told)],
        )

    one = process(*others)
    np.testing.assert_allclose(one.effects(corner(), everyone, everyone), values, atol=1e-6)
    assert one.passes == 30
    with pytest.raises(MeasureError, match="no memory"):
        process((theirs, np.empty(0), "RuntimeError: no memory")).effects(corner(), everyone, everyone)


def test_what_the_model_has_answered_already_takes_no_pass():
    """Of 30 images 10 have a spot: with that of a source an image is itself again, its source, or a new one."""
    images = torch.zeros(30, 1, 16, 16)
    images[:10, :, :4, :4] = 1.0
    images[:, :, 8:, 8:] = torch.arange(30.0)[:, None, None, None] / 30
    samples = [Sample(i, -1, {"image": image}) for i, image in enumerate(images)]
    answers, asked = np.arange(30) % 2, []

    def probabilities(batch):
        asked.extend(batch["image"])
        return corner_reader(batch["image"])

    known = Measure(samples, answers, probabilities, before=corner_reader(images))
    everyone = np.arange(30)
    values = known.effects(corner(), everyone, everyone)
    assert known.passes == len(asked)
    assert all(not (each == images).flatten(1).all(1).any() for each in asked)
    like, unlike = (sources_for(answers, everyone, same, 0) for same in (True, False))
    spot = images[:, 0, 0, 0]
    differ = (spot[like] != spot[unlike]).numpy()
    assert np.array_equal(~np.isnan(values), differ)
    new = [((spot[sources] != spot).numpy() & differ).sum() for sources in (like, unlike)]
    assert known.passes == sum(new) < 20
    alone = Measure(samples, answers, probabilities)
    np.testing.assert_allclose(alone.effects(corner(), everyone, everyone), values, atol=1e-6)
    assert alone.passes == known.passes + differ.sum(), "each sample that is needed is asked once"
    whole = known.effects(Place("the image", "unreviewed", WHOLE), everyone, everyone)
    assert known.passes == sum(new), "every image is its source then"
    p = corner_reader(images)
    np.testing.assert_allclose(whole, p[like, answers] - p[unlike, answers], atol=1e-6)


def test_the_drop_takes_half_of_the_passes_and_the_effect_the_others():
    measure, images, answers = measured()
    everyone = np.arange(30)
    drops = measure.drops(corner(), everyone, everyone)
    p, unlike = corner_reader(images), sources_for(answers, everyone, False, 0)
    np.testing.assert_allclose(drops, p.max(1) - p[unlike, answers], atol=1e-6)
    assert measure.passes == 30
    measure.effects(corner(), everyone, everyone)
    measure.effects(corner(), everyone[5:9], everyone)
    assert measure.passes == 60


def test_without_a_source_there_is_no_effect():
    measure, _, answers = measured()
    rows = np.flatnonzero(answers == 1)
    assert np.isnan(measure.effects(corner(), rows, rows)).all()
    one_of_its_answer = np.sort([*np.flatnonzero(answers == 0), rows[0]])
    values = measure.effects(corner(), one_of_its_answer, one_of_its_answer)
    assert np.isnan(values).tolist() == (one_of_its_answer == rows[0]).tolist()


def test_an_example_is_the_sample_and_both_exchanges():
    measure, images, answers = measured()
    everyone = np.arange(30)
    before, like, unlike = measure.example(corner(), 4, everyone)
    sources = [sources_for(answers, everyone, same, 0)[4] for same in (True, False)]
    assert torch.equal(before["image"][0], images[4])
    for batch, source in zip((like, unlike), sources, strict=True):
        assert torch.equal(batch["image"][0, :, :4, :4], images[source, :, :4, :4])
        assert measure.probabilities(batch)[1] == pytest.approx(corner_reader(images[source][None])[0, 1])


def test_an_interval_is_students_with_a_sample_at_either_end():
    values = np.array([0.1, 0.3, 0.2, 0.4, 0.25, 0.15, 0.35, 0.05, np.nan])
    effect = effect_of(values, 0.025)
    kept = values[:-1]
    padded = np.append(kept, [kept.mean() - 1 / 8, kept.mean() + 1 / 8])
    reach = stats.t.ppf(0.975, 7) * padded.std(ddof=1) / np.sqrt(8)
    assert effect == pytest.approx((kept.mean(), kept.mean() - reach, kept.mean() + reach, 8))
    few = effect_of(values[:7], 0.025)
    assert (few.low, few.high) == (-1, 1)
    assert math.isnan(effect_of(np.full(9, np.nan), 0.025).mean)


@pytest.mark.parametrize("count", [8, 16, 32, 128])
@pytest.mark.parametrize("level", [0.05, 0.005])
@pytest.mark.parametrize("kind", ["normal", "rare", "few turn"])
def test_a_mean_lies_above_an_interval_no_more_often_than_it_says(count, level, kind):
    """Of what effects of the least size look like: small; one in fifteen large; one in twenty turned wholly."""
    rng = np.random.default_rng(0)
    draws = 4000
    values = {
        "normal": lambda: rng.normal(0.05, 0.1, (draws, count)),
        "rare": lambda: (rng.random((draws, count)) < 1 / 15) * rng.uniform(0.5, 1, (draws, count)),
        "few turn": lambda: (rng.random((draws, count)) < 0.05).astype(float),
    }[kind]()
    wrong = np.mean([effect_of(row, level).low > 0.05 for row in values])
    # The normal approximation of the binomial, at one in a thousand.
    assert wrong <= level + 3.1 * math.sqrt(level / draws)
