import base64
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shown import MARKUP

from lrptrain.dashboard.maps import MOST_EPOCHS, packed, read_cards, read_histories
from lrptrain.dashboard.samples import read_sample_table
from lrptrain.loggers import EpochRecord, Input, read_class_maps, read_samples, write_record
from lrptrain.loggers.inputs import input_path


def history_of(folder, sample_id):
    return read_histories(folder, [sample_id])[sample_id]["history"]


def unpacked(found):
    levels = np.frombuffer(base64.b64decode(found["values"]), np.int8)
    assert len(levels) == found["length"]
    return levels / 127 * found["peak"]


def test_maps_come_back_to_a_127th_of_their_peak(recorded):
    folder = recorded / "relevance" / "run"
    rows = read_samples(folder, 2)
    name = f"epoch_0002_step_{rows['step'][0]:06d}"
    ids = [str(i) for i in rows["sample_id"][:3]]
    cards = read_cards(folder, name, [*ids, "nobody"])["cards"]
    assert list(cards) == ids
    for number, sample_id in enumerate(ids):
        for target in ("label", "predicted"):
            expected = np.array(rows[f"map_{target}"][number])
            np.testing.assert_allclose(
                unpacked(cards[sample_id]["maps"][target]), expected, atol=np.abs(expected).max() / 250
            )
        known = {key: cards[sample_id][key] for key in ("grid", "image", "mask", "tokens")}
        assert known == {"grid": [4, 4], "image": True, "mask": True, "tokens": None}


def test_texts_bring_their_tokens_as_they_are(recorded):
    folder = recorded / "relevance" / "texts"
    rows = read_samples(folder, 1)
    cards = read_cards(folder, f"epoch_0001_step_{rows['step'][0]:06d}", [str(i) for i in rows["sample_id"]])["cards"]
    assert any(MARKUP in card["tokens"] for card in cards.values())
    for card in cards.values():
        assert len(card["tokens"]) == len(card["annotation"]) == card["maps"]["label"]["length"]
        assert (card["grid"], card["image"]) == (None, False)
        assert card["annotation"][:3] == [1, 1, 0]


def test_samples_that_were_drawn_have_maps_of_every_class(recorded):
    folder = recorded / "relevance" / "run"
    rows = read_class_maps(folder, 2)
    name = f"epoch_0002_step_{rows['step'][0]:06d}"
    ids = [str(i) for i in rows["sample_id"]]
    cards = read_cards(folder, name, [*ids, *(str(i) for i in read_samples(folder, 2)["sample_id"])])["cards"]
    for sample_id, own, values in zip(ids, rows["class"], rows["map_class"], strict=True):
        found = unpacked(cards[sample_id]["maps"][f"class {own}"])
        np.testing.assert_allclose(found, values, atol=np.abs(values).max() / 250)
    assert sum(len(card["maps"]) > 2 for card in cards.values()) == 2
    history = history_of(folder, ids[0])
    assert [len(one["maps"]) for one in history] == [2 + 3] * 3
    assert set(read_sample_table(folder)["targets"][2:]) == {f"class {own}" for own in rows["class"]}


@pytest.mark.parametrize(
    "damage", [b"no table", {"sample_id": [1]}, {"sample_id": [1], "class": ["a"], "map_class": [[]]}]
)
def test_class_maps_that_cannot_be_read_are_passed_over_with_a_note(runs, damage):
    folder = runs / "run"
    path = sorted((folder / "class_maps").iterdir())[-1]
    path.write_bytes(damage) if isinstance(damage, bytes) else pq.write_table(pa.table(damage), path)
    sample_id = str(read_samples(folder, 2)["sample_id"][0])
    found = read_cards(folder, path.stem, [sample_id])
    assert list(found["cards"][sample_id]["maps"]) == ["label", "predicted"]
    assert [note.startswith(f"class_maps/{path.name} cannot be read") for note in found["notes"]] == [True]
    assert [len(one["maps"]) > 0 for one in history_of(folder, sample_id)] == [True] * 3
    assert read_sample_table(folder)["targets"][:2] == ["label", "predicted"]


def test_words_of_texts_are_not_rounded_away_beside_what_is_not_scored(recorded):
    folder = recorded / "relevance" / "texts"
    rows = read_samples(folder, 1)
    name = f"epoch_0001_step_{rows['step'][0]:06d}"
    cards = read_cards(folder, name, [str(i) for i in rows["sample_id"]])["cards"]
    for row, card in enumerate(cards.values()):
        scored, values = np.array(card["scored"]), np.array(rows["map_label"][row])
        real = [token is not None for token in card["tokens"]]
        assert scored.sum() == sum(real)  # these texts begin and end with words
        own = card["maps"]["label"]
        levels = np.frombuffer(base64.b64decode(own["values"]), np.int8)
        assert np.abs(levels[scored]).max() == 127
        assert own["peak"] == pytest.approx(np.abs(values[scored]).max(), rel=1e-3)
        assert own["unscored"] == pytest.approx(np.abs(values[~scored]).sum() / np.abs(values).sum(), rel=1e-4)
    history = history_of(folder, str(rows["sample_id"][0]))
    assert history[1]["maps"]["label"] == cards[str(rows["sample_id"][0])]["maps"]["label"]


def test_a_text_that_does_not_say_what_is_scored_is_left_out(tmp_path):
    sample = Input("odd", tokens=["so", "good"], scored=[True, True])
    samples: dict[str, list[Any]] = {"sample_id": ["odd"], "map_label": [[0.1, 0.2]]}
    write_record(tmp_path, EpochRecord(0, 0, samples=samples, inputs={"odd": lambda: sample}))
    path = input_path(tmp_path, "odd")
    assert read_cards(tmp_path, "epoch_0000_step_000000", ["odd"])["cards"]["odd"]["tokens"] == ["so", "good"]
    path.write_text(json.dumps({**json.loads(path.read_text()), "scored": [1]}))
    assert read_cards(tmp_path, "epoch_0000_step_000000", ["odd"])["cards"]["odd"]["tokens"] is None


@pytest.mark.parametrize("values", [[0.0, 0.0], [np.nan, np.inf, 1.0], [1e-300, -2e-300], [-5.0], [3e38, 1e-30]])
def test_any_map_can_be_packed(values):
    clean = np.nan_to_num(values, posinf=0.0)
    np.testing.assert_allclose(unpacked(packed(values)), clean, atol=np.abs(clean).max() / 250 + 1e-299)


def test_a_share_that_is_nearly_all_is_not_rounded_to_all():
    def unscored(values):
        levels = packed(values, [False, True])
        assert levels is not None
        return levels["unscored"]

    assert 0.9995 < unscored([1.0, 1e-9]) < 1
    assert 0.9995 < unscored([1.0, 1e-30]) < 1
    assert unscored([1.0, 0.0]) == 1


def test_what_is_no_map_is_none():
    nothing: tuple = (None, [], "text", 3)
    assert [packed(value) for value in nothing] == [None] * 4


def test_history_has_every_evaluation_or_forty_with_both_ends(recorded, tmp_path):
    found = history_of(recorded / "relevance" / "run", "0")
    assert [one["epoch"] for one in found] == [0, 1, 2]
    for epoch in range(50):
        write_record(tmp_path, EpochRecord(epoch, epoch, samples={"sample_id": [1], "map_label": [[epoch, 0.0]]}))
    epochs = [one["epoch"] for one in history_of(tmp_path, "1")]
    assert len(set(epochs)) == MOST_EPOCHS
    assert (epochs[0], epochs[-1]) == (0, 49)
    assert history_of(tmp_path, "2") == []


@pytest.mark.parametrize(
    "known",
    [None, "[]", "{", '{"grid": [3, 3]}', '{"grid": "x", "tokens": ["a"]}', '{"tokens": [1, 2], "annotation": 3}'],
)
def test_inputs_that_do_not_fit_are_left_out(runs, known):
    folder = runs / "run"
    rows = read_samples(folder, 2)
    path = input_path(folder, "0")
    path.unlink() if known is None else path.write_text(known)
    card = read_cards(folder, f"epoch_0002_step_{rows['step'][0]:06d}", ["0"])["cards"]["0"]
    text = known is not None and "tokens" in known
    assert card["grid"] == (None if text else [4, 4])  # guessed where its map can be a square
    assert (card["tokens"], card["annotation"]) == (None, None)
    json.dumps(card, allow_nan=False)


def test_columns_that_only_seem_to_be_maps_are_left_out(tmp_path):
    odd = {"map_a": ["x"], "map_b": [["x", "y"]], "map_c": [[1, 2]], "map_d": [None], "map_e": [[0.5, math.nan]]}
    (tmp_path / "samples").mkdir()
    pq.write_table(pa.table({"sample_id": [1], **odd}), tmp_path / "samples" / "epoch_0000_step_000000.parquet")
    assert list(read_cards(tmp_path, "epoch_0000_step_000000", ["1"])["cards"]["1"]["maps"]) == ["e"]


def test_a_sample_whose_map_is_no_square_has_no_grid(tmp_path):
    write_record(tmp_path, EpochRecord(0, 0, samples={"sample_id": [1], "map_label": [[1.0, 2.0]]}))
    assert read_cards(tmp_path, "epoch_0000_step_000000", ["1"])["cards"]["1"]["grid"] is None
