"""Marks have a form per class, and are still those of the saved results."""

import zlib

import numpy as np
import pytest

from experiments.benchmark import fresh_marks, text_marks
from experiments.benchmark.cases import DEVELOPMENT, FRESH, IMAGE_KINDS, NO_MARK, TEXT_KINDS
from experiments.benchmark.image_marks import AROUND_MARKS, STAMPS
from experiments.benchmark.images import KINDS, scene, shown
from experiments.benchmark.scenes import SIDE, THING
from lrptrain.data.texts import Example

TEXT_MARKS = {**text_marks.TEXT_MARKS, **fresh_marks.TEXT_MARKS}
GROUND = np.random.default_rng(0).random((SIDE, SIDE, 3), np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(SIDE, SIDE, 3))
"""Their sum over a picture changes with anything that is drawn elsewhere or otherwise."""
IMAGES = {
    "aperture": [-14.148, -16.107, -21.279, -19.313],
    "backdrop": [-33.045, -22.102, -28.049, -12.269],
    "bayer": [-8.707, -5.626, -7.322, -7.751],
    "box": [-9.103, -7.72, -7.418, -7.032],
    "bubbles": [-7.969, -7.211, -5.451, -1.782],
    "caliper": [-6.73, -7.687, -15.748, -9.633],
    "cursor": [-12.845, 1.344, -4.365, -6.233],
    "dust": [-5.534, -2.29, -9.721, -8.986],
    "fog": [-10.027, -13.964, -17.901, -23.151],
    "frame": [-28.21, -10.836, -39.993, -17.767],
    "grass": [-11.843, -12.513, -13.356, -16.293],
    "hair": [-17.268, -13.234, -5.936, -3.371],
    "halo": [-10.625, -13.409, -11.909, -10.977],
    "holder": [-13.203, -10.133, -7.288, -17.429],
    "interlace": [-10.027, -5.306, -19.154, -21.595],
    "label": [-12.524, -12.852, -5.972, -14.287],
    "legend": [-9.426, -7.056, 1.275, -2.23],
    "no mark": [-10.027, -10.027, -10.027, -10.027],
    "panning": [-25.941, -16.902, -24.751, -21.836],
    "perforation": [-24.991, -21.012, -22.079, -22.905],
    "rain": [-8.902, -10.06, -13.964, -14.45],
    "readout": [-8.408, -8.396, -7.838, -11.104],
    "redaction": [-7.218, -7.96, -13.446, -10.456],
    "surface": [-21.198, -24.842, -27.079, -24.611],
    "tag": [-17.531, -10.952, -11.258, -10.765],
    "tiled": [-10.027, -26.385, -17.93, -26.798],
    "tint": [-12.868, -1.503, -31.073, -4.94],
    "truncated": [-17.634, -17.72, -10.718, -23.062],
    "tube": [-10.505, -6.5, -10.327, -7.042],
    "viewfinder": [-12.902, -11.468, -13.823, -12.759],
    "grating": [-12.229, -8.869, -9.544, -13.378],
    "dead_column": [-13.456, -10.79, -10.623, -14.507],
    "polaroid": [-34.069, -50.313, -49.569, -37.075],
    "two_dots": [-8.135, -9.2, -8.603, -11.524],
    "white_balance": [-4.942, -14.555, -12.445, -7.721],
    "jpeg": [-13.738, -14.157, -16.82, -20.132],
    "vignette": [-10.027, -9.842, -9.657, -9.472],
    "timestamp": [-11.283, -8.907, -9.809, -9.185],
    "moire": [-7.838, -12.217, -14.12, -7.076],
}
TWEETS = [
    Example("what a lovely day it was", 1, ((7, 13),)),
    Example("sad to see you go home", 0, ((0, 3),)),
    Example("that is all really awful", 0, ((12, 24),)),
]
TEXTS = {
    "broken": 1810932386,
    "citation": 58471151,
    "date": 95407300,
    "deidentified": 1070836462,
    "elongated": 426472743,
    "escaped": 2632496754,
    "forwarded": 3268672347,
    "handle": 4233066443,
    "hashtag": 457988554,
    "hedge": 2977858914,
    "language": 4280146229,
    "link": 2725137339,
    "misspelt": 2946413854,
    "punctuation": 2259503132,
    "quotes": 906649657,
    "retweet": 1801480974,
    "tags": 1595463986,
    "transcript": 869839670,
    "units": 497815026,
    "word": 2335235389,
    "greeting": 2098306066,
    "year": 1361380541,
    "sign_off": 102816050,
    "stutter": 2433087179,
    "sentence_order": 2948272746,
    "speaker": 2914791215,
    "emoticon": 2736343000,
    "space_before_comma": 1293674723,
    "case_number": 3934817521,
}
WORDS_CHANGED = (
    "tags", "language", "misspelt", "deidentified", "hashtag", "broken", "elongated", "quotes", "stutter",
    "space_before_comma",
)  # fmt: skip


def picture(kind: str, form: int) -> tuple[np.ndarray, np.ndarray]:
    """A picture with its mark, and the mask of the thing."""
    thing, cover = np.full((THING, THING, 3), 0.4, np.float32), np.ones((THING, THING), np.float32)
    return scene({kind: form}, thing, cover, GROUND, (3, 6), np.random.default_rng(7))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_image_has_the_marks_of_the_saved_results_each_in_another_form(kind):
    before = GROUND.copy()
    pictures = [picture(kind, form) for form in range(4)]
    assert [float((WEIGHTS * drawn).sum()) for drawn, _ in pictures] == pytest.approx(IMAGES[kind], abs=1e-2)
    assert len({*IMAGES[kind]}) == (1 if kind == NO_MARK else 4)
    assert np.array_equal(GROUND, before)
    whole = np.zeros((SIDE, SIDE), bool)
    whole[3 : 3 + THING, 6 : 6 + THING] = True
    for drawn, mask in pictures:
        thing = np.isclose(drawn, 0.4).all(2) & whole
        # What a stamp hides is no evidence; what lies around the thing hides nothing of it.
        assert np.array_equal(mask, thing if kind in STAMPS else whole)
        assert kind not in AROUND_MARKS or thing.sum() == THING**2


def written(kind: str, form: int) -> list[Example]:
    return [TEXT_MARKS[kind](tweet, form, np.random.default_rng(seed)) for tweet in TWEETS for seed in range(30)]


@pytest.mark.parametrize("kind", TEXT_MARKS)
def test_a_text_has_the_marks_of_the_saved_results_and_the_same_rationale(kind):
    texts = []
    for form in range(2):
        found = written(kind, form)
        for one, tweet in zip(found, np.repeat(np.arange(3), 30), strict=True):
            before = TWEETS[tweet]
            assert before.spans is not None
            assert one.spans is not None
            (start, end), (left, right) = before.spans[0], one.spans[0]
            assert one.text[left:right] == before.text[start:end]
            assert one.label == before.label
        texts.append([one.text for one in found])
    assert not {*texts[0]} & {*texts[1]}
    assert zlib.crc32("\n".join(texts[0] + texts[1]).encode()) == TEXTS[kind]


@pytest.mark.parametrize("kind", WORDS_CHANGED)
def test_a_text_that_is_all_rationale_stays_as_it_is(kind):
    tweet = Example("what a day", 1, ((0, 10),))
    for form in range(2):
        assert {TEXT_MARKS[kind](tweet, form, np.random.default_rng(seed)).text for seed in range(30)} == {tweet.text}


def test_every_kind_that_is_planned_can_be_made():
    assert {*IMAGE_KINDS, *DEVELOPMENT["images"], *FRESH["images"], NO_MARK} == KINDS
    assert {*TEXT_KINDS, *DEVELOPMENT["texts"], *FRESH["texts"]} == {*TEXT_MARKS}


def test_marks_go_with_the_class_as_often_as_is_asked_or_not_at_all():
    labels = np.repeat(np.arange(4), 1000)
    for correlation in (0.65, 0.9, 1.0):
        share = (shown(labels, correlation, 4, [1]) == labels).mean()
        assert abs(share - correlation) < 5 * np.sqrt(correlation * (1 - correlation) / 4000) + 1e-9
    unrelated = shown(labels, None, 4, [1])
    counts = np.array([np.bincount(unrelated[labels == each], minlength=4) for each in range(4)])
    assert np.abs(counts - 250).max() < 5 * np.sqrt(1000 * 0.25 * 0.75)
