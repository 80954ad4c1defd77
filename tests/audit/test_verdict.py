import math

import numpy as np
import pytest
from scipy import stats

from lrptrain.audit.verdict import ENOUGH, LEVELS, judge, summary

SPREAD = np.linspace(-0.05, 0.05, 20)
GOOD = {"perturbation": 0.4 + SPREAD, "leave_one_out": 0.3 + SPREAD, "randomisation": 0.1 + SPREAD}


def verdict(**changed):
    measured = {test: list(values) for test, values in (GOOD | changed).items() if values is not None}
    return judge("rollout", measured, {"leave_one_out": "the budget is used up"})


def test_the_summary_is_the_t_interval():
    values = [0.1, 0.4, -0.2, 0.7, math.nan]
    found = summary(values)
    known = np.array(values[:4])
    low, high = stats.t.interval(0.95, 3, known.mean(), stats.sem(known))
    np.testing.assert_allclose([found.value, found.low, found.high], [known.mean(), low, high], atol=1e-5)
    assert found.samples == 4


@pytest.mark.parametrize(
    ("changed", "faithful", "reason"),
    [
        ({}, "yes", "beats random orders: gain 0.40"),
        ({"leave_one_out": 20 * SPREAD}, "weakly", "does not agree with leave-one-out: tau 0.00"),
        ({"randomisation": 0.7 + SPREAD}, "weakly", "hardly changes when the weights are lost"),
        ({"perturbation": 20 * SPREAD}, "no", "does not beat random orders"),
        ({"perturbation": SPREAD - 0.4}, "no", "gain -0.40"),
        ({"randomisation": np.ones(20)}, "no", "does not change when the weights are lost"),
        ({"leave_one_out": None}, "not judged", "leave_one_out was not measured: the budget is used up"),
        ({"randomisation": None}, "not judged", "randomisation was not measured: it was not chosen"),
        ({"perturbation": None}, "not judged", "perturbation was not measured"),
        ({"leave_one_out": None, "perturbation": 20 * SPREAD}, "no", "does not beat"),
        ({"perturbation": None, "randomisation": np.ones(20)}, "no", "does not change"),
        ({"perturbation": GOOD["perturbation"][: ENOUGH - 1]}, "not judged", f"at least {ENOUGH} are needed"),
        ({"leave_one_out": np.full(20, np.nan)}, "not judged", "leave_one_out has 0 samples"),
    ],
)
def test_verdicts(changed, faithful, reason):
    found = verdict(**changed)
    assert found.faithful == faithful
    assert reason in "; ".join(found.reasons)
    assert str(found).startswith(f"rollout: faithful on this model: {faithful} (")


def test_the_numbers_stand_behind_the_verdict():
    found = verdict()
    assert set(found.numbers) == {"perturbation", "leave_one_out", "randomisation"}
    assert found.numbers["perturbation"] == summary(list(GOOD["perturbation"]))


def test_an_obstacle_forbids_any_verdict_but_not_the_numbers():
    found = judge("rollout", {"perturbation": [0.5] * 20}, obstacle="the model predicts class 1 for all samples")
    assert (found.faithful, found.reasons) == ("not judged", ("the model predicts class 1 for all samples",))
    assert found.numbers["perturbation"].value == 0.5


def test_verdicts_as_numbers():
    assert [LEVELS[name] for name in ("yes", "weakly", "no")] == [1.0, 0.5, 0.0]
    assert math.isnan(LEVELS["not judged"])
