"""Two monitors of one model do not tell the same finding twice."""

from typing import Any

from examples import OPEN, explained, finding
from torch import nn

from lrptrain.monitor.evaluation import Evaluation
from lrptrain.monitor.recorder import unannounced


def evaluation(probability: float = 0.9, **moment: Any) -> Evaluation:
    samples = [explained(i, (probability, 1 - probability)) for i in range(3)]
    return Evaluation(samples, **{"epoch": 1, "step": 7, **moment})


def test_what_another_monitor_has_told_is_a_line():
    module = nn.Linear(1, 1)
    both = [finding(), OPEN]
    assert unannounced(module, evaluation(), both[:1], "first") == (both[:1], [])
    # In another order of the batches the last digits are others.
    new, lines = unannounced(module, evaluation(0.9 + 2e-5), both, "second")
    assert new == both[1:]
    assert lines == ["second: 1 finding that first has told"]


def test_what_differs_is_announced():
    module = nn.Linear(1, 1)
    unannounced(module, evaluation(), [finding()], "first")
    for another in (
        unannounced(module, evaluation(), [finding(verdict="not sure")], "second"),
        unannounced(module, evaluation(0.902), [finding()], "second"),  # other data with the same ids
        unannounced(nn.Linear(1, 1), evaluation(), [finding()], "second"),
        unannounced(module, evaluation(step=8), [finding()], "second"),
    ):
        assert len(another[0]) == 1
        assert not another[1]


def test_a_monitor_tells_again_what_it_has_told_itself():
    """As when a user validates the same weights twice."""
    module = nn.Linear(1, 1)
    for _ in range(2):
        assert unannounced(module, evaluation(), [finding()], "first") == ([finding()], [])
        assert unannounced(module, evaluation(), [finding()], "second") == (
            [],
            ["second: 1 finding that first has told"],
        )
