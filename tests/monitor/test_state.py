"""State that is declared once is forgotten, saved and loaded without being named again."""

import copy
import pickle

import pytest

from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.monitor import MonitorCore
from lrptrain.monitor.state import RunState, state


class Stage(RunState):
    seen: list[int] = state(lambda self: [self.first], "seen", list, lambda self, value, plain: [*plain, self.first])
    count: int = state(lambda _: 0, "count")
    scratch: set[int] = state(lambda _: set())

    def __init__(self, first: int) -> None:
        self.first = first
        self.reset()


def test_each_run_begins_with_values_of_its_own():
    stage, other = Stage(1), Stage(2)
    stage.seen.append(7)
    stage.count, stage.scratch = 3, {1}
    assert other.seen == [2]
    stage.reset()
    assert (stage.seen, stage.count, stage.scratch) == ([1], 0, set())


def test_a_checkpoint_holds_what_has_a_key():
    stage = Stage(1)
    stage.count, stage.scratch = 3, {1}
    assert stage.state_dict() == {"seen": [1], "count": 3}
    other = Stage(2)
    other.load_state_dict(stage.state_dict())
    assert (other.seen, other.count, other.scratch) == ([1, 2], 3, set())


def test_what_an_older_checkpoint_lacks_stays():
    stage = Stage(1)
    stage.load_state_dict({"count": 5, "something else": 1})
    assert (stage.seen, stage.count) == ([1], 5)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_stage_is_copied(copied):
    stage = copied(Stage(1))
    stage.count = 2
    stage.reset()
    assert stage.state_dict() == {"seen": [1], "count": 0}


def test_the_stages_of_a_monitor_share_no_key_and_few_attributes():
    core = MonitorCore(MonitorConfig(), print, print)
    keys = [key for stage in core._stages for key in stage.state_dict()]
    assert len(keys) == len({*keys})
    assert core.state_dict().keys() == {*keys}
    for each in (core, *core._stages):
        assert len(vars(each)) <= 15, type(each).__name__
