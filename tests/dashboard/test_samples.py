import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from lrptrain import loggers
from lrptrain.dashboard.samples import bootstrap_interval, evaluations, read_sample_table, read_scores, wilson_interval

FOCUS = "label_energy_pointing_game"


def test_the_table_is_the_records_without_maps(recorded):
    folder = recorded / "relevance" / "run"
    table, expected = read_sample_table(folder), loggers.read_samples(folder, 2)
    assert table["evaluation"] == table["names"][-1]
    assert len(table["names"]) == 3
    assert table["targets"] == ["label", "predicted", "class <b>dog</b>", "class cat", "class ünït"]
    assert not any(name.startswith("map") for name in table["columns"])
    assert table["columns"]["sample_id"] == [str(i) for i in expected["sample_id"]]
    assert table["columns"]["label"] == expected["label"]
    np.testing.assert_allclose(table["columns"][FOCUS], expected[FOCUS], rtol=1e-5)
    assert table["pictured"] == [True] * 24
    assert read_sample_table(folder, table["names"][0])["evaluation"] == table["names"][0]
    assert read_sample_table(folder, "../run.json")["columns"] == {}


@pytest.mark.parametrize("label", [None, "cat"])
def test_means_have_bootstrap_intervals_and_accuracies_wilsons(recorded, label):
    folder = recorded / "relevance" / "run"
    rows = read_scores(folder, [label], 0.9)[label]["scores"]
    table = loggers.read_samples(folder)
    for number, epoch in enumerate(range(3)):
        mine = [
            i for i, at in enumerate(table["epoch"]) if at == epoch and (label is None or table["label"][i] == label)
        ]
        values = np.array([table[FOCUS][i] for i in mine])
        _, low, high = bootstrap_interval(values, 0.9)
        assert rows[FOCUS][number][0] == epoch
        np.testing.assert_allclose(rows[FOCUS][number][2:], [values.mean(), low, high, len(mine)], rtol=1e-5)
        right = np.mean([table["label"][i] == table["predicted"][i] for i in mine])
        z, n = stats.norm.ppf(0.95), len(mine)
        middle, half = right + z**2 / 2 / n, z * np.sqrt(right * (1 - right) / n + z**2 / 4 / n**2)
        expected = np.array([middle - half, middle + half]) / (1 + z**2 / n)
        np.testing.assert_allclose(rows["correct"][number][2:5], [right, *expected], atol=1e-9)


def test_only_the_columns_that_are_drawn_have_intervals(recorded):
    folder = recorded / "relevance" / "run"
    everything, drawn = (read_scores(folder, columns=each)[None]["scores"] for each in (None, [FOCUS]))
    assert drawn[FOCUS] == everything[FOCUS]
    assert drawn.keys() == everything.keys()
    for name in drawn.keys() - {FOCUS}:
        assert [(row[2], row[5]) for row in drawn[name]] == [(row[2], row[5]) for row in everything[name]]
        assert {(row[3], row[4]) for row in drawn[name]} == {(None, None)}


def test_a_class_without_samples_has_no_scores(recorded):
    assert read_scores(recorded / "relevance" / "run", ["nobody"])["nobody"]["scores"] == {}


def table_of(**columns):
    return pa.table({"sample_id": ["a", "b"], **columns})


def test_damaged_and_foreign_tables_are_passed_over_with_a_note(runs):
    folder = runs / "run"
    good = read_sample_table(folder)
    names = [f"epoch_000{number}_step_00000{number}" for number in range(5, 9)]
    with (folder / "events.jsonl").open("a") as events:  # the table of an evaluation without a line does not count
        events.writelines(json.dumps({"epoch": number, "step": number, "format": 2}) + "\n" for number in range(5, 9))
    (folder / "samples" / f"{names[0]}.parquet").write_bytes(b"PAR1 not really PAR1")
    (folder / "samples" / f"{names[1]}.parquet").write_bytes(b"")
    pq.write_table(pa.table({"something": [1]}), folder / "samples" / f"{names[2]}.parquet")
    (folder / "samples" / f"{names[3]}.parquet").mkdir()
    (folder / "samples" / "epoch_x.parquet").write_bytes(b"")
    (folder / "samples" / "epoch_0009_step_000009.parquet.part").write_bytes(b"half")
    table = read_sample_table(folder)
    assert (table["evaluation"], table["columns"]) == (good["evaluation"], good["columns"])
    assert len(table["notes"]) == 3
    scores = read_scores(folder)[None]
    assert [row[0] for row in scores["scores"][FOCUS]] == [0, 1, 2]
    assert len(scores["notes"]) == 3
    assert list(evaluations(folder)) == [*good["names"], *names[:3]]


def test_columns_of_odd_types_are_left_out_and_odd_numbers_are_none(tmp_path):
    (tmp_path / "samples").mkdir()
    odd = {"a": [1.0, float("inf")], "b": [b"x", b"y"], "c": [{"d": 1}, None], "e": [float("nan"), None]}
    pq.write_table(table_of(**odd), tmp_path / "samples" / "epoch_0000_step_000000.parquet")
    table = read_sample_table(tmp_path)
    assert table["columns"] == {"sample_id": ["a", "b"], "a": [1.0, None], "e": [None, None]}
    assert read_scores(tmp_path)[None]["scores"] == {"a": [[0, 0, 1.0, None, None, 1]]}


def test_a_table_that_changes_is_read_anew(tmp_path):
    (tmp_path / "samples").mkdir()
    path = tmp_path / "samples" / "epoch_0000_step_000000.parquet"
    for value in (1, 20000):
        pq.write_table(table_of(score=[value, value]), path)
        assert read_sample_table(tmp_path)["columns"]["score"] == [value, value]


def test_nothing_written_is_nothing_read(tmp_path):
    assert read_sample_table(tmp_path)["evaluation"] is None
    assert read_scores(tmp_path)[None]["scores"] == {}


def test_an_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    intervals = [bootstrap_interval(rng.beta(2, 5, 40), 0.9) for _ in range(200)]
    covered = np.mean([low <= 2 / 7 <= high for _, low, high in intervals])
    # The standard error of a share of 0.9 in 200 is 0.02, and the interval of 40 values is slightly narrow.
    assert 0.82 < covered < 0.96


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e100])
def test_it_is_the_same_in_any_unit(scale):
    values = np.array([0.0, 0.1, 0.3, 0.35, 0.9])
    expected = np.array(bootstrap_interval(values, 0.95))
    assert expected[1] < expected[0] < expected[2]
    np.testing.assert_allclose(
        bootstrap_interval(values * scale, 0.95), expected * scale, rtol=0.05
    )  # ties of resamples


def test_it_is_the_same_each_time_and_wider_the_surer_it_is():
    values = np.random.default_rng(0).normal(size=30)
    _, low, high = bootstrap_interval(values, 0.8)
    assert bootstrap_interval(values, 0.8) == (values.mean(), low, high)
    _, lower, higher = bootstrap_interval(values, 0.99)
    assert lower < low < high < higher


def test_what_does_not_vary_has_no_width_and_a_single_value_no_interval():
    assert bootstrap_interval(np.full(7, 0.1), 0.95) == pytest.approx((0.1, 0.1, 0.1))
    assert bootstrap_interval(np.zeros(2), 0.95) == (0, 0, 0)
    assert bootstrap_interval(np.array([0.3]), 0.95) == pytest.approx((0.3, np.nan, np.nan), nan_ok=True)


@pytest.mark.parametrize(("right", "count"), [(0, 5), (7, 10), (10, 10)])
def test_a_share_has_wilsons_interval(right, count):
    z, share = stats.norm.ppf(0.975), right / count
    middle, half = share + z**2 / 2 / count, z * np.sqrt(share * (1 - share) / count + z**2 / 4 / count**2)
    expected = [share, *(np.array([middle - half, middle + half]) / (1 + z**2 / count))]
    np.testing.assert_allclose(wilson_interval(right, count, 0.95), expected, atol=1e-12)
