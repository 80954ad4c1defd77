import math

import numpy as np
import pytest

from lrptrain.auditing import reach_verdict, registered_tests
from lrptrain.auditing.result import LEVELS
from lrptrain.auditing.score import summarize
from lrptrain.batch.matters import FEWEST_SAMPLES

SPREAD = np.linspace(-0.05, 0.05, 20)
GOOD = {"perturbation": 0.4 + SPREAD, "leave_one_out": 0.3 + SPREAD, "randomisation": 0.1 + SPREAD}


def verdict(**changed):
    measured = {test: list(values) for test, values in (GOOD | changed).items() if values is not None}
    return reach_verdict("rollout", registered_tests(), measured, {"leave_one_out": "the budget is used up"})


@pytest.mark.parametrize(
    ("changed", "faithful", "reason"),
    [
        ({}, "yes", "beats random orders: gain 0.40"),
        ({"leave_one_out": 20 * SPREAD}, "weakly", "does not agree with leave-one-out: tau 0.00"),
        ({"randomisation": 0.7 + SPREAD}, "weakly", "hardly changes when the weights are randomised"),
        ({"perturbation": 20 * SPREAD}, "no", "does not beat random orders"),
        ({"perturbation": SPREAD - 0.4}, "no", "gain -0.40"),
        ({"randomisation": np.ones(20)}, "no", "does not change when the weights are randomised"),
        ({"leave_one_out": None}, "not judged", "leave_one_out was not measured: the budget is used up"),
        ({"randomisation": None}, "not judged", "randomisation was not measured: it was not chosen"),
        ({"perturbation": None}, "not judged", "perturbation was not measured"),
        ({"leave_one_out": None, "perturbation": 20 * SPREAD}, "no", "does not beat"),
        ({"perturbation": None, "randomisation": np.ones(20)}, "no", "does not change"),
        (
            {"perturbation": GOOD["perturbation"][: FEWEST_SAMPLES - 1]},
            "not judged",
            f"at least {FEWEST_SAMPLES} are needed",
        ),
        ({"leave_one_out": np.full(20, np.nan)}, "not judged", "leave_one_out has 0 samples"),
    ],
)
def test_verdicts(changed, faithful, reason):
    result = verdict(**changed)
    assert result.faithful == faithful
    assert reason in "; ".join(result.reasons)
    assert str(result).startswith(f"rollout: faithful on this model: {faithful} (")


def test_the_numbers_stand_behind_the_verdict():
    result = verdict()
    assert set(result.numbers) == {"perturbation", "leave_one_out", "randomisation"}
    assert result.numbers["perturbation"] == summarize(list(GOOD["perturbation"]))


def test_an_obstacle_forbids_any_verdict_but_not_the_numbers():
    result = reach_verdict(
        "rollout",
        registered_tests(),
        {"perturbation": [0.5] * 20},
        obstacle="the model predicts class 1 for all samples",
    )
    assert (result.faithful, result.reasons) == ("not judged", ("the model predicts class 1 for all samples",))
    assert result.numbers["perturbation"].value == 0.5


def test_verdicts_as_numbers():
    assert [LEVELS[name] for name in ("yes", "weakly", "no")] == [1.0, 0.5, 0.0]
    assert math.isnan(LEVELS["not judged"])
