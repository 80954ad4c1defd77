"""How well plain features tell the answers: each feature beside a computation by hand, and what is not told."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.findings import Evaluation, ExplainedSample
from lrptrain.findings.association import association
from lrptrain.findings.plain_features import (
    BANDS,
    BRIGHTNESS_PERCENTILES,
    DIRECTIONS,
    LEAST_POWER,
    LEAST_SHARPNESS,
    MOST_TOKENS,
    SHARPNESS_PERCENTILES,
    THUMBNAIL,
    image_features,
    plain_predictability,
    remark,
    text_features,
)
from lrptrain.monitor.record_builder import RecordBuilder

CHANNELS = 3
WAVES = (len(BANDS) - 1) * DIRECTIONS


def noise(count=40, size=(12, 16), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn((count, CHANNELS, *size), generator=generator, dtype=torch.float64))


def parts(features):
    """The features of an image by what they say."""
    sizes = [CHANNELS] * 3 + [len(BRIGHTNESS_PERCENTILES), len(SHARPNESS_PERCENTILES), WAVES, CHANNELS * THUMBNAIL**2]
    names = ("mean", "spread", "colour", "brightness", "sharpness", "power", "thumbnail")
    return dict(zip(names, np.split(features, np.cumsum(sizes)[:-1], -1), strict=True))


def explained(predicted, grid=(2, 2), content_ids=None, sample_id=0):
    maps = {"label": torch.ones(4)}
    values = np.array([0.9, 0.1])
    sample = Sample(sample_id, 0, {})
    return ExplainedSample(sample, predicted, values, maps, grid, 2, np.nan, {}, content_ids=content_ids)


def labelled(evaluation, labels):
    """The same samples with other labels."""
    samples = [
        replace(each, sample=replace(each.sample, label=int(label)))
        for each, label in zip(evaluation.samples, labels, strict=True)
    ]
    return replace(evaluation, samples=samples)


def of_images(images, predicted):
    samples = [explained(each, sample_id=row) for row, each in enumerate(predicted)]
    return Evaluation(samples, [Sample(row, 0, {"image": image}) for row, image in enumerate(images)])


def of_texts(texts, predicted):
    samples = [
        explained(each, None, np.array(ids), row) for row, (ids, each) in enumerate(zip(texts, predicted, strict=True))
    ]
    return Evaluation(samples, [Sample(row, 0, {"input_ids": torch.tensor(ids)}) for row, ids in enumerate(texts)])


def test_the_features_of_an_image_are_those_written_out():
    images = noise()
    unit = torch.stack(images).std().item()
    scaled = images[3].numpy() / unit
    grey = scaled.mean(0)
    found = parts(image_features(images)[3])
    close: dict[str, Any] = {"rel": 1e-4, "abs": 1e-5}  # single precision, of sums over 192 pixels
    assert found["mean"] == pytest.approx(scaled.mean((1, 2)), **close)
    assert found["spread"] == pytest.approx(scaled.std((1, 2)), **close)
    assert found["colour"] == pytest.approx((scaled - grey).std((1, 2)), **close)
    assert found["brightness"] == pytest.approx(np.percentile(grey, BRIGHTNESS_PERCENTILES), **close)
    padded = np.pad(grey, 1, mode="symmetric")
    laplacian = padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2] - 4 * grey
    sharpness = np.log(np.percentile(abs(laplacian), SHARPNESS_PERCENTILES) + LEAST_SHARPNESS)
    assert found["sharpness"] == pytest.approx(sharpness, rel=1e-4, abs=1e-3)  # the logarithm of small numbers
    cells = scaled.reshape(CHANNELS, THUMBNAIL, 3, THUMBNAIL, 4).mean((2, 4))
    assert found["thumbnail"] == pytest.approx(cells.flatten(), **close)


def cell_of(down, across):
    """Return the band and the direction of a wave by its cycles per pixel; None beyond the bands."""
    frequency = math.hypot(down, across)
    degrees = math.degrees(math.atan2(down, across)) % 180
    bands = [i for i, (low, high) in enumerate(itertools.pairwise(BANDS)) if low <= frequency < high]
    return (bands[0], round(degrees / (180 / DIRECTIONS)) % DIRECTIONS) if bands else None


@pytest.mark.parametrize("down_across", [(0, 4), (4, 4), (4, 0), (4, -4), (1, 6), (-1, 6), (6, -1), (5, 3)], ids=str)
def test_a_wave_has_its_mean_power_in_its_band_and_direction_alone(down_across):
    side = 16
    down, across = (number / side for number in down_across)
    rows, columns = np.indices((side, side))
    wave = np.cos(2 * np.pi * (down * rows + across * columns))
    image = torch.tensor(np.stack([wave] * CHANNELS))
    power = parts(image_features([image, torch.zeros_like(image)])[0])["power"].reshape(-1, DIRECTIONS)
    waves = [cell_of(i, j) for i in np.fft.fftfreq(side) for j in np.fft.fftfreq(side)]
    # The wave and its opposite have the square of half an amplitude times all pixels each. The amplitude is 1 over the
    # deviation of all pixels, of which those of the second image are 0.
    unit = torch.stack([image, torch.zeros_like(image)]).std().item()
    mean = 2 * (side**2 / 2 / unit) ** 2 / side**2 / waves.count(cell_of(down, across))
    expected = np.full(power.shape, math.log(LEAST_POWER))
    expected[cell_of(down, across)] = math.log(mean + LEAST_POWER)
    assert power == pytest.approx(expected, abs=1e-3)


def test_the_unit_of_the_pixels_does_not_matter_and_sizes_may_differ():
    images = noise()
    # An image in bytes has 255 times the values: all but rounding is divided out.
    assert image_features([255 * image for image in images]) == pytest.approx(image_features(images), abs=1e-4)
    mixed = [*noise(3), *noise(3, (20, 9))]
    assert image_features(mixed).shape == (6, image_features(images).shape[1])
    assert np.isfinite(image_features([torch.zeros(1, 1, 1)] * 2)).all()


def test_of_answers_that_follow_brightness_nearly_all_is_told_and_of_others_little():
    answers = np.arange(60) % 2
    images = [image + answer for image, answer in zip(noise(60), answers, strict=True)]
    evaluation = of_images(images, answers)
    assert plain_predictability(evaluation).answers == association(image_features(images), answers) > 0.9
    unrelated = [plain_predictability(of_images(noise(60, seed=seed), answers)).answers for seed in range(10)]
    assert np.mean(unrelated) < 0.15
    # The answers count, not the labels, which are all 0 here, so that nothing tells them.
    assert {each.sample.label for each in evaluation.samples} == {0}
    assert math.isnan(plain_predictability(evaluation).labels)


def test_labels_are_told_by_the_same_features_whatever_the_answers_are():
    labels = np.arange(60) % 2
    images = [image + label for image, label in zip(noise(60), labels, strict=True)]
    answers = np.arange(60) % 3
    evaluation = labelled(of_images(images, answers), labels)
    assert plain_predictability(evaluation).labels == association(image_features(images), labels) > 0.9
    assert plain_predictability(evaluation).answers == association(image_features(images), answers) < 0.3
    # Of a few samples nobody knows the label.
    some = np.where(np.arange(60) < 20, -1, labels)
    assert plain_predictability(labelled(evaluation, some)).labels == association(image_features(images), some)
    assert math.isnan(plain_predictability(labelled(evaluation, np.full(60, -1))).labels)


def test_of_texts_it_is_the_frequent_tokens_and_the_length():
    answers = np.arange(60) % 2
    rng = np.random.default_rng(0)
    texts = [[*rng.choice(range(10, 14), 3, replace=False), -1, 7 if answer else 8] for answer in answers]
    texts[0] = [9, 9, 10, -1, 8]  # 9 is in one text alone
    features = text_features(of_texts(texts, answers).samples)
    assert features.shape == (60, 6 + 1)  # 7, 8, 10 to 13, and the length
    assert features[1].tolist() == [1, 0, *(float(token in texts[1]) for token in range(10, 14)), math.log(5)]
    assert features[0].tolist() == [0, 1, 1, 0, 0, 0, math.log(5)]
    assert plain_predictability(of_texts(texts, answers)).answers == 1
    lengths = [[10] * (1 + 3 * answer) for answer in answers]
    assert plain_predictability(of_texts(lengths, answers)).answers == 1


def test_what_cannot_be_told_is_nan():
    answers = np.arange(60) % 2
    evaluation = of_images(noise(60), answers)
    assert math.isnan(plain_predictability(replace(evaluation, inputs=None)).answers)
    assert math.isnan(plain_predictability(of_images(noise(60), 0 * answers)).answers)
    assert math.isnan(plain_predictability(of_images(noise(31), answers[:31])).answers)
    assert not math.isnan(plain_predictability(of_images(noise(32), answers[:32])).answers)
    grey = [*noise(59), torch.zeros(1, 12, 16)]
    assert math.isnan(plain_predictability(of_images(grey, answers)).answers)
    series = replace(evaluation, samples=[replace(each, grid=None) for each in evaluation.samples])
    assert math.isnan(plain_predictability(series).answers)
    films = of_images([image[:, None] for image in noise(60)], answers)
    assert math.isnan(plain_predictability(films).answers)


def test_it_is_said_of_enough_images_from_a_half_on():
    enough = of_images(noise(64), np.arange(64) % 2)
    assert remark(0.49, enough) == remark(math.nan, enough) == ""
    assert remark(0.5, enough).startswith("The answers can be guessed from colours, sharpness and a thumbnail")
    assert "(0.50, where 0 is chance" in remark(0.5, enough)
    assert remark(0.9, of_images(noise(63), np.arange(63) % 2)) == ""
    assert remark(0.9, of_texts([[1, 2]] * 64, np.arange(64) % 2)) == ""
    first = replace(enough.samples[0], annotated=np.ones(4, bool))
    assert remark(0.9, replace(enough, samples=[first, *enough.samples[1:]])) == ""


def test_of_very_many_tokens_the_most_frequent_are_taken():
    texts = [[*range(MOST_TOKENS), *([MOST_TOKENS] if row < 30 else [])] for row in range(40)]
    features = text_features(of_texts(texts, np.arange(40) % 2).samples)
    assert features.shape == (40, MOST_TOKENS + 1)
    assert (features[:, :MOST_TOKENS] == 1).all()


def test_a_record_has_it_and_the_score_where_interventions_were_made():
    answers = np.arange(64) % 2
    images = [image + answer for image, answer in zip(noise(64), answers, strict=True)]
    evaluation = of_images(images, answers)
    annotated = [replace(each, chance=0.5, values={"label/energy_pointing_game": 0.25}) for each in evaluation.samples]
    builder = RecordBuilder(class_names=["cat", "dog"])
    record = builder.build(evaluation, [], [], [])
    told = record.scalars["relevance/plain_predictability"]
    assert told == plain_predictability(evaluation).answers
    assert record.scalars["relevance/shortcut_score"] == pytest.approx(8 * told)
    assert "relevance/label_predictability" not in record.scalars
    assert record.hints == remark(told, evaluation) != ""
    record = builder.build(replace(evaluation, samples=annotated), [], [], [])
    assert record.scalars["relevance/shortcut_score"] == pytest.approx(2 * told + 2 * 0.25)
    labels = np.where(np.arange(64) < 32, answers, 1 - answers)
    record = builder.build(labelled(evaluation, labels), [], [], [])
    of_labels = record.scalars["relevance/label_predictability"]
    assert of_labels == plain_predictability(labelled(evaluation, labels)).labels < told
    assert record.scalars["relevance/shortcut_score"] == pytest.approx(8 * math.sqrt(told * of_labels))
    assert not {"relevance/shortcut_score", "relevance/plain_predictability"} & {*builder.build(evaluation, []).scalars}
    few = builder.build(of_images(images[:8], answers[:8]), [], [], [])
    assert not {"relevance/shortcut_score", "relevance/plain_predictability"} & {*few.scalars}
