from dataclasses import replace

import pytest
from examples import OPEN, finding

from lrptrain.monitor.gate import FindingError, gravest_forbidden, is_lasting, raise_if_forbidden, raise_if_unjudged


def with_verdicts(*verdicts):
    return finding(verdict=verdicts[-1], verdicts=verdicts, epochs=tuple(range(len(verdicts))))


@pytest.mark.parametrize(("verdicts", "fail_on", "required", "forbidden"), [
    (("relies",), "relies", 2, False),
    (("relies",), "relies", 1, True),
    (("relies", "relies"), "relies", 2, True),
    (("not sure", "relies"), "relies", 2, False),
    (("not sure", "relies"), "not sure", 2, True),
    (("relies", "does not rely"), "not sure", 2, False),
    (("relies", "not sure", "relies"), "relies", 2, False),
    (("relies", "relies"), None, 1, False),
])  # fmt: skip
def test_a_fault_is_forbidden_when_it_lasts(verdicts, fail_on, required, forbidden):
    open_one = replace(OPEN, verdicts=("relies", "relies"), epochs=(0, 1))
    findings = [with_verdicts("does not rely", "does not rely"), open_one, with_verdicts(*verdicts)]
    assert gravest_forbidden(findings, fail_on, required) == (findings[2] if forbidden else None)
    if forbidden:
        with pytest.raises(FindingError, match=f"fail_on='{fail_on}'{' in 2 evaluations' if required == 2 else ':'}"):
            raise_if_forbidden(findings, fail_on, required)
    else:
        raise_if_forbidden(findings, fail_on, required)


def test_the_gravest_is_named():
    graver = finding(name="a mark", effect=0.8, interval=(0.7, 0.9))
    for order in ([graver, finding()], [finding(), graver]):
        assert gravest_forbidden(order, "relies", 1) == graver


def test_older_records_are_judged_by_their_last_verdict():
    assert is_lasting(finding(verdicts=(), epochs=()), ("relies",), 3)
    assert not is_lasting(finding(verdict="not sure", verdicts=(), epochs=()), ("relies",), 1)


def test_a_gate_does_not_pass_where_nothing_was_tested():
    with pytest.raises(FindingError, match=r"cannot pass after its last evaluation\. 7 samples are too few"):
        raise_if_unjudged(True, "7 samples are too few", "relies", "Monitor")
    raise_if_unjudged(True, "", "relies", "Monitor")
    raise_if_unjudged(True, "7 samples are too few", None, "Monitor")
