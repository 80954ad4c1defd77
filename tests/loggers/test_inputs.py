import json

import numpy as np
import pytest
from PIL import Image

from lrptrain.loggers import EpochRecord, Input, write_record
from lrptrain.loggers.inputs import LARGEST, input_path, write_inputs


def pixels(height=12, width=10, channels=3, seed=0):
    shape = (height, width, channels) if channels else (height, width)
    return np.random.default_rng(seed).integers(0, 255, shape, dtype=np.uint8)


def known(folder, sample_id):
    return json.loads(input_path(folder, sample_id).read_text(encoding="utf-8"))


def made(*inputs):
    return {one.sample_id: lambda one=one: one for one in inputs}


def test_a_small_image_and_its_mask_read_back_exactly(tmp_path):
    mask = np.random.default_rng(1).choice(np.array([0, 1, 255], np.uint8), (12, 10))
    write_record(tmp_path, EpochRecord(0, 0, inputs=made(Input("a/b", (3, 2), pixels(), annotation=mask))))
    assert known(tmp_path, "a/b") == {"sample_id": "a/b", "grid": [3, 2]}
    np.testing.assert_array_equal(np.asarray(Image.open(input_path(tmp_path, "a/b", ".webp"))), pixels())
    shades = np.asarray(Image.open(input_path(tmp_path, "a/b", ".mask.webp")).convert("L"))
    np.testing.assert_array_equal(shades == 255, mask == 1)
    np.testing.assert_array_equal(shades == 128, mask == 255)


def test_large_images_are_made_smaller_and_stay_alike(tmp_path):
    ramp = np.linspace(0, 255, 1200).astype(np.uint8)
    image = np.broadcast_to(ramp[None, :, None], (600, 1200, 3))
    mask = np.zeros((600, 1200), np.uint8)
    mask[:, :300] = 1
    write_inputs(tmp_path, made(Input(7, (14, 28), image, annotation=mask)))
    small = np.asarray(Image.open(input_path(tmp_path, 7, ".webp"))).astype(int)
    assert small.shape == (LARGEST // 2, LARGEST, 3)
    assert np.abs(small.mean(axis=(0, 2)) - np.linspace(0, 255, LARGEST)).max() < 6
    assert (np.asarray(Image.open(input_path(tmp_path, 7, ".mask.webp")).convert("L")) == 255).mean() == 0.25


def test_texts_have_tokens_where_they_have_scores(tmp_path):
    rationale = np.array([1, 0, 255], np.uint8)
    text = Input("t", tokens=["<b>", "ü", None], annotation=rationale, scored=[True, True, False])
    write_inputs(tmp_path, made(text, Input("u", tokens=["x"], scored=[True])))
    expected = {"sample_id": "t", "grid": None, "tokens": ["<b>", "ü", None], "annotation": [1, 0, 255]}
    assert known(tmp_path, "t") == {**expected, "scored": [True, True, False]}
    assert known(tmp_path, "u")["annotation"] is None


def test_what_is_there_is_neither_made_nor_written_again(tmp_path):
    write_inputs(tmp_path, made(Input(1, (1, 1), pixels())))

    def never():
        raise AssertionError("made again")

    write_inputs(tmp_path, {1: never, **made(Input(2, (1, 1), pixels()))})
    assert sorted(path.name for path in (tmp_path / "inputs").iterdir()) == ["1.json", "1.webp", "2.json", "2.webp"]


def test_a_sample_whose_json_is_missing_is_written_again(tmp_path):
    write_inputs(tmp_path, made(Input(1, (1, 1), pixels())))
    input_path(tmp_path, 1).unlink()
    input_path(tmp_path, 1, ".webp").write_bytes(b"half")
    write_inputs(tmp_path, made(Input(1, (1, 1), pixels())))
    assert np.asarray(Image.open(input_path(tmp_path, 1, ".webp"))).shape == (12, 10, 3)


@pytest.mark.parametrize(("room", "written"), [(0.0, 0), (1e-9, 1), (np.inf, 3)])
def test_no_more_are_written_than_there_is_room_for(tmp_path, room, written):
    write_inputs(tmp_path, made(*(Input(i, (1, 1), pixels(seed=i)) for i in range(3))), room)
    assert len(list(tmp_path.glob("inputs/*.json"))) == written
