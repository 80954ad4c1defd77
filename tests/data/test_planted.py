import numpy as np
import pytest
import torch

from lrptrain.data import PlantedDigits
from lrptrain.data.planted import NOISE, PALETTE, STROKE_THRESHOLD, digit_strokes, planted_digits

CORNERS = [(rows, columns) for rows in (slice(0, 4), slice(28, 32)) for columns in (slice(0, 4), slice(28, 32))]


@pytest.fixture(scope="module")
def digits():
    strokes, labels = digit_strokes(22)
    return {"strokes": strokes[:200], "labels": labels[:200]}


def shown_tags(image: np.ndarray) -> list[int]:
    """Classes whose colour fills a corner of the image [3, H, W]."""
    fills = [
        [(image[:, rows, columns] == colour[:, None, None]).all() for colour in PALETTE] for rows, columns in CORNERS
    ]
    return [int(index) for index in np.nonzero(fills)[1]]


def test_digit_strokes_are_the_digits_resized():
    original, strokes, labels = digit_strokes(8)[0], *digit_strokes(22)
    assert original.max() == 1
    assert original.min() == 0
    assert np.bincount(labels).min() > 150
    expected = torch.nn.functional.interpolate(torch.from_numpy(original)[:, None], size=22, mode="bilinear")[:, 0]
    assert np.allclose(strokes, expected.numpy(), atol=1e-5)


def test_arrays_have_the_contract_of_a_batch(digits):
    arrays = planted_digits(**digits)
    assert {key: (array.dtype.name, array.shape) for key, array in arrays.items()} == {
        "image": ("float32", (200, 3, 32, 32)),
        "mask": ("uint8", (200, 32, 32)),
        "label": ("int64", (200,)),
        "group": ("int64", (200,)),
        "sample_id": ("int64", (200,)),
    }
    assert arrays["image"].min() >= 0
    assert arrays["image"].max() <= 1
    assert set(np.unique(arrays["mask"])) == {0, 1}


@pytest.mark.parametrize("shortcut", ["tag", "background", "border", "position"])
def test_a_seed_fixes_everything(digits, shortcut):
    first, again = (planted_digits(**digits, shortcut=shortcut, correlation=0.5, seed=5) for _ in range(2))
    other = planted_digits(**digits, shortcut=shortcut, correlation=0.5, seed=6)
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert not np.array_equal(first["image"], other["image"])
    assert not np.array_equal(first["group"], other["group"])


def test_each_tag_shows_its_class_when_fully_correlated(digits):
    arrays = planted_digits(**digits, shortcut="tag", correlation=1.0)
    assert [shown_tags(image) for image in arrays["image"]] == [[label] for label in arrays["label"]]
    assert arrays["group"].all()


@pytest.mark.parametrize("shortcut", ["tag", "position"])
@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_correlation_is_the_share_of_agreeing_tags_and_group_tells_which(digits, shortcut, correlation):
    strokes, labels = (np.tile(array, (10,) + (1,) * (array.ndim - 1)) for array in digits.values())
    arrays = planted_digits(strokes, labels.ravel(), shortcut, correlation)
    shown = np.array([shown_tags(image) for image in arrays["image"]])
    assert shown.shape == (2000, 1)
    assert np.array_equal(shown[:, 0] == arrays["label"], arrays["group"] == 1)
    assert arrays["group"].mean() == pytest.approx(correlation, abs=0.04)
    wrong = shown[:, 0][arrays["group"] == 0]
    assert set(wrong) == set(range(10))


@pytest.mark.parametrize(("shortcut", "covered"), [("tag", 16), ("position", 16), ("border", 32**2 - 28**2)])
def test_without_the_shortcut_only_the_shortcut_differs(digits, shortcut, covered):
    told_apart = digits["labels"] != 9  # its colour is white, as strokes are
    clean, planted = (
        {key: array[told_apart] for key, array in planted_digits(**digits, shortcut=kind).items()}
        for kind in ("none", shortcut)
    )
    differs = (clean["image"] != planted["image"]).any(axis=1)
    assert (differs.sum(axis=(1, 2)) == covered).all()
    assert np.array_equal(clean["mask"] * ~differs, planted["mask"])
    assert planted["mask"].any(axis=(1, 2)).all()
    assert not clean["group"].any()


def test_a_positioned_tag_is_always_bottom_right(digits):
    arrays = planted_digits(**digits, shortcut="position")
    assert (arrays["image"][:, :, 28:, 28:] == PALETTE[arrays["label"]][:, :, None, None]).all()


def test_a_border_is_a_frame_of_two_pixels_in_the_colour_of_the_shown_class(digits):
    arrays = planted_digits(**digits, shortcut="border", correlation=0.7)
    frame = np.ones((32, 32), bool)
    frame[2:30, 2:30] = False
    pixels = arrays["image"][:, :, frame]
    assert (pixels == pixels[:, :, :1]).all()
    shown = (pixels[:, None, :, 0] == PALETTE).all(axis=2)
    assert (shown.sum(axis=1) == 1).all()
    assert np.array_equal(shown.argmax(axis=1) == arrays["label"], arrays["group"] == 1)


def test_a_tinted_background_gives_the_class_away_and_leaves_the_digit(digits):
    arrays = planted_digits(**digits, shortcut="background")
    clean = planted_digits(**digits, shortcut="none")
    assert np.array_equal(arrays["mask"], clean["mask"])
    background = np.ma.masked_array(arrays["image"], np.repeat(arrays["mask"][:, None] == 1, 3, axis=1))
    colour = background.mean(axis=(2, 3)).data
    means = (NOISE / 2 + PALETTE) / 2
    guessed = ((colour[:, None] - means) ** 2).sum(-1).argmin(1)
    assert (guessed == arrays["label"]).mean() > 0.99


def test_the_mask_is_the_stroke_with_a_rim_of_one_pixel(digits):
    strokes, labels = digits.values()
    arrays = planted_digits(strokes[:20], labels[:20], "none", image_size=22)
    bright = torch.from_numpy(strokes[:20] > STROKE_THRESHOLD).float()
    dilated = torch.nn.functional.max_pool2d(bright[:, None], 3, stride=1, padding=1)[:, 0]
    assert np.array_equal(arrays["mask"], dilated.numpy())
    assert (arrays["image"][:, 0][arrays["mask"] == 0] <= NOISE + STROKE_THRESHOLD).all()


def test_digits_lie_at_many_places(digits):
    strokes, labels = digits.values()
    same = np.repeat(strokes[:1], 200, axis=0)
    masks = planted_digits(same, labels, "none")["mask"]
    assert len(np.unique(masks.reshape(200, -1), axis=0)) > 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shortcut": "watermark"}, "shortcut"),
        ({"correlation": 1.5}, "correlation"),
        ({"image_size": 20}, "do not fit"),
    ],
)
def test_impossible_settings_are_refused(digits, arguments, message):
    with pytest.raises(ValueError, match=message):
        planted_digits(**digits, **arguments)


def test_the_datamodule_keeps_validation_digits_unseen_and_clean_ones_equal():
    data = PlantedDigits(train_size=600, val_size=100, batch_size=50, seed=1)
    data.setup()
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 600, "val": 100, "val_clean": 100}
    assert not set(data.sources["train"]) & set(data.sources["val"])
    val, clean = next(iter(data.val_dataloader())), next(iter(data.test_dataloader()))
    assert torch.equal(val["label"], clean["label"])
    assert val["group"].all()
    assert not clean["group"].any()
    assert (val["image"] != clean["image"]).any(1).sum((1, 2)).tolist() == [16] * 50
    assert val["sample_id"].tolist() == list(range(50))


def test_the_datamodule_is_deterministic_and_shuffles_only_training():
    first, again, other = (PlantedDigits(train_size=64, val_size=32, batch_size=64, seed=seed) for seed in (0, 0, 1))
    for data in (first, again, other):
        data.setup("fit")
    before = first.splits
    first.setup("test")
    assert first.splits is before
    assert np.array_equal(first.sources["val"], again.sources["val"])
    assert not np.array_equal(first.sources["val"], other.sources["val"])
    ids = next(iter(first.train_dataloader()))["sample_id"].tolist()
    assert sorted(ids) == list(range(64))
    assert ids != sorted(ids)
