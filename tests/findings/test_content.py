"""How much of what a place holds the predicted class explains."""

import numpy as np
import pytest
import scipy.stats
import torch

from lrptrain.batch import Sample
from lrptrain.findings.content import (
    explained_by_class,
    is_same_picture,
    is_surely_planted,
    place_contents,
    standard_error_of_share,
)
from lrptrain.intervention import Region


def test_the_same_picture_per_class_is_explained_by_it():
    rng = np.random.default_rng(0)
    predicted = np.arange(60) % 4
    noise, pictures = rng.normal(size=(60, 48)), rng.normal(size=(4, 48))
    same, none = explained_by_class(pictures[predicted], predicted), explained_by_class(noise, predicted)
    assert tuple(same) == pytest.approx((1, 0.005))
    assert abs(none.share) < 0.03 < none.p_value
    assert 0.3 < explained_by_class(pictures[predicted] + noise, predicted).share < 0.7
    assert np.isnan(explained_by_class(noise, np.zeros(60, int)).share)
    assert np.isnan(explained_by_class(np.ones((60, 3)), predicted).share)


def test_the_share_explained_is_epsilon_squared():
    rng = np.random.default_rng(0)
    predicted, values = rng.integers(0, 3, 40), rng.normal(size=(40, 1))
    statistic = scipy.stats.f_oneway(*(values[predicted == label, 0] for label in range(3))).statistic
    eta = 2 * statistic / (2 * statistic + 37)  # share of the variance that is between classes
    assert explained_by_class(values, predicted).share == pytest.approx(eta - (1 - eta) * 2 / 37)


def test_a_few_images_of_many_classes_say_nothing():
    """With about one image per class, chance alone explains much of what is seen."""
    draws = np.random.default_rng(0)
    found = [explained_by_class(draws.normal(size=(14, 4)), np.arange(14) % 9) for _ in range(200)]
    assert max(each.share for each in found) > 0.3
    assert np.mean([each.p_value <= 0.05 for each in found]) < 0.09


@pytest.mark.parametrize("predicted", [np.arange(20) % 3, np.array([0] * 9 + [1] * 9 + [2])])
def test_the_standard_error_is_that_of_leaving_out_each_image(predicted):
    contents = np.random.default_rng(0).random((len(predicted), 30)) + 0.3 * (predicted == 1)[:, None]
    rest = [np.arange(len(predicted)) != i for i in range(len(predicted))]
    shares = np.array([explained_by_class(contents[kept], predicted[kept], least=np.inf).share for kept in rest])
    expected = np.sqrt((len(shares) - 1) * shares.var())
    assert standard_error_of_share(contents, predicted) == pytest.approx(expected, rel=1e-9)


def test_what_objects_explain_of_few_images_is_not_surely_planted():
    """Coats of breeds: the class shifts the colour a little, so that few images seem to show more of it."""
    rng = np.random.default_rng(0)

    def draw(count, coat):
        predicted = np.arange(count) % 3
        shades = coat * (predicted - 1)[:, None] + rng.normal(size=(count, 1))
        return shades + 0.5 * rng.normal(size=(count, 40)), predicted

    coats = [draw(32, 0.35) for _ in range(60)]
    shares = [explained_by_class(*each).share for each in coats]
    assert max(shares) > 0.2
    assert np.mean([is_surely_planted(*each) for each in coats]) <= 0.05
    assert all(is_surely_planted(*draw(32, 1.5)) for _ in range(20))
    # Of many images 0.2 of the variance is enough, and 0.08 is not, however sure.
    assert all(is_surely_planted(*draw(600, 0.8)) for _ in range(5))
    assert not is_surely_planted(*draw(1500, 0.41))
    assert not is_surely_planted(np.ones((20, 4)), np.arange(20) % 2)


def centred(count, share=None, seed=0):
    """Patches of 8 x 8 in the middle of objects of three shades, which differ a lot; with a dot of 4 x 4 in `share`."""
    rng = np.random.default_rng(seed)
    predicted = np.arange(count) % 3
    patches = (
        predicted[:, None, None, None] + rng.normal(size=(count, 3, 1, 1)) + 0.3 * rng.normal(size=(count, 3, 8, 8))
    )
    if share is not None:
        colours = np.array([[2.0, 0, 0], [0, 2, 0], [0, 0, 2]])
        shown = np.where(rng.random(count) < share, predicted, rng.integers(3, size=count))
        patches[:, :, 2:6, 2:6] = colours[shown][:, :, None, None]
    return patches.reshape(count, 3, 64), predicted


@pytest.mark.parametrize("count", [48, 96, 300])
def test_objects_in_the_middle_are_no_same_picture_and_a_small_dot_is(count):
    for seed in range(8):
        objects = centred(count, seed=seed)
        assert is_surely_planted(objects[0].reshape(count, -1), objects[1])
        assert not is_same_picture(*objects)
        assert is_same_picture(*centred(count, 1.0, seed))
    assert is_same_picture(*centred(300, 0.9))
    assert not is_same_picture(*centred(300, 0.5))


def test_of_few_images_the_lower_end_of_the_share_decides():
    draws = [centred(18, 0.85, seed) for seed in range(40)]
    dots = [(contents.reshape(18, 3, 8, 8)[:, :, 2:6, 2:6].reshape(18, -1), classes) for contents, classes in draws]
    shares = np.array([explained_by_class(*each).share for each in dots])
    enough = np.array([is_same_picture(*each) for each in draws])
    assert (shares >= 0.7).any()
    assert not enough[shares < 0.75].any()
    assert enough[shares > 0.99].all()


def test_pixels_without_variance_are_no_picture():
    assert not is_same_picture(np.ones((30, 3, 16)), np.arange(30) % 3)
    contents, predicted = centred(96, 1.0)
    blank = np.concatenate([contents, np.zeros((96, 3, 20))], 2)  # 84 pixels, 21 of them tell
    assert is_same_picture(blank, predicted)


def test_the_contents_of_a_place_are_its_pixels_in_every_image():
    images = torch.arange(2 * 3 * 8 * 12).view(2, 3, 8, 12)
    samples = [Sample(i, 0, {"image": image}) for i, image in enumerate(images)]
    # Of 2 x 3 patches of 4 x 4 pixels, the second of the first row and the first of the second one.
    inside = torch.zeros(8, 12, dtype=torch.bool)
    inside[:4, 4:8] = inside[4:, :4] = True
    contents = place_contents(samples, Region("patches", (1, 3)), (2, 3))
    assert contents is not None
    assert torch.equal(contents, images[:, :, inside].float())
    small = Sample(2, 0, {"image": images[0, :, :4]})
    assert place_contents([*samples, small], Region("patches", (1, 3)), (2, 3)) is None


def test_few_images_of_a_class_are_no_same_picture():
    for each, found in ((4, False), (5, True)):
        predicted = np.arange(4 * each) % 4
        pictures = np.random.default_rng(0).normal(size=(4, 3, 16))[predicted]
        assert is_same_picture(pictures, predicted) == found
