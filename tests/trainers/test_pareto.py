import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lrptrain.trainers.pareto import Direction, ParetoPoint, claim_folder, pareto_front, write_front

METRICS: dict[str, Direction] = {"accuracy": "max", "loss": "min"}


def brute_force(values, directions):
    """Point by point, in words."""

    def dominates(one, other):
        gains = [a - b if way == "max" else b - a for a, b, way in zip(one, other, directions, strict=True)]
        return min(gains) >= 0 and max(gains) > 0

    whole = [not np.isnan(row).any() for row in values]
    return [
        whole[i]
        and not any(dominates(values[j], values[i]) for j in range(len(values)) if whole[j])
        and not any((values[j] == values[i]).all() for j in range(i))
        for i in range(len(values))
    ]


@given(
    st.integers(2, 4).flatmap(
        lambda metrics: st.tuples(
            arrays(
                float, st.tuples(st.integers(0, 12), st.just(metrics)), elements=st.sampled_from([0, 1, 2, 3, np.nan])
            ),
            st.lists(st.sampled_from(["max", "min"]), min_size=metrics, max_size=metrics),
        )
    )
)
def test_the_front_is_that_of_a_double_loop(drawn):
    values, directions = drawn
    assert pareto_front(values, directions).tolist() == brute_force(values, directions)


@given(arrays(float, (9, 3), elements=st.floats(allow_nan=True, allow_infinity=True)))
def test_any_number_may_be_compared(values):
    front = pareto_front(values, ["max", "min", "max"])
    assert front.any() == (~np.isnan(values).any(axis=1)).any()


def test_a_folder_with_a_front_is_left_alone(tmp_path):
    assert [claim_folder(tmp_path / "run").name for _ in range(3)] == ["run", "run-2", "run-3"]


def points(folder, values, metrics=METRICS):
    array = np.array(values, dtype=float)
    front = pareto_front(array, metrics.values())
    rows = [dict(zip(metrics, row, strict=True)) for row in array.tolist()]
    return [
        ParetoPoint(i, 10 * i, row, folder / f"{i}.ckpt" if kept else None)
        for i, (row, kept) in enumerate(zip(rows, front, strict=True))
    ]


def test_the_file_tells_the_front_and_all_points(tmp_path):
    write_front(tmp_path, points(tmp_path, [(0.5, 1.0), (0.4, 2.0), (0.6, 3.0), (np.nan, 0.0)]), METRICS, plot=False)
    told = json.loads((tmp_path / "front.json").read_text())
    assert told["metrics"] == METRICS
    assert [point["path"] for point in told["front"]] == ["0.ckpt", "2.ckpt"]
    assert [point["path"] for point in told["points"]] == ["0.ckpt", None, "2.ckpt", None]
    assert told["points"][3] == {"epoch": 3, "step": 30, "values": {"accuracy": None, "loss": 0.0}, "path": None}
    assert [path.name for path in tmp_path.iterdir()] == ["front.json"]


@pytest.mark.parametrize("values", [[(0.5, 1.0)], [(np.nan, 1.0)], [(np.inf, 1.0), (0.5, 0.5)], [(0.5, 1.0)] * 3])
@pytest.mark.parametrize("third", [False, True])
def test_a_picture_of_few_and_of_odd_points(values, third, tmp_path):
    metrics: dict[str, Direction] = {**METRICS, "focus": "max"} if third else METRICS
    rows = [(*row, 0.3) if third else row for row in values]
    write_front(tmp_path, points(tmp_path, rows, metrics), metrics, plot=True)
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_fails_is_told_and_passed_over(tmp_path):
    (tmp_path / "front.png").mkdir()
    with pytest.warns(UserWarning, match=r"front.png was not drawn: IsADirectoryError"):
        write_front(tmp_path, points(tmp_path, [(0.5, 1.0)]), METRICS, plot=True)
    assert (tmp_path / "front.json").exists()
