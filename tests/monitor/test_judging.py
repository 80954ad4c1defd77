from dataclasses import replace

import pytest
from examples import OPEN, finding

import lrptrain
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.judging import FindingError, Judging, most_severe_forbidden


def with_verdicts(*verdicts):
    return finding(verdict=verdicts[-1], verdicts=verdicts, epochs=tuple(range(len(verdicts))))


@pytest.mark.parametrize(("verdicts", "fail_on", "required", "forbidden"), [
    (("relies",), "relies", 2, False),
    (("relies",), "relies", 1, True),
    (("relies", "relies"), "relies", 2, True),
    (("inconclusive", "relies"), "relies", 2, False),
    (("inconclusive", "relies"), "inconclusive", 2, True),
    (("relies", "does not rely"), "inconclusive", 2, False),
    (("relies", "inconclusive", "relies"), "relies", 2, False),
    (("relies", "relies"), None, 1, False),
])  # fmt: skip
def test_a_fault_is_forbidden_when_it_lasts(verdicts, fail_on, required, forbidden):
    judging = Judging(MonitorConfig(judge=lrptrain.Judge(fail_on=fail_on, fail_after=required)), print)
    judging.reset()
    open_one = replace(OPEN, verdicts=("relies", "relies"), epochs=(0, 1))
    judging.findings = [with_verdicts("does not rely", "does not rely"), open_one, with_verdicts(*verdicts)]
    assert judging.is_forbidden() == forbidden
    if forbidden:
        with pytest.raises(FindingError, match=f"fail_on='{fail_on}'{' in 2 evaluations' if required == 2 else ':'}"):
            judging.raise_if_forbidden()
    else:
        judging.raise_if_forbidden()


def test_the_gravest_is_named():
    graver = finding(name="a mark", effect=0.8, interval=(0.7, 0.9))
    for order in ([graver, finding()], [finding(), graver]):
        assert most_severe_forbidden(order, "relies", 1) == graver
