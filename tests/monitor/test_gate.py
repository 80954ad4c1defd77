from dataclasses import replace

import pytest
from examples import finding

from lrptrain.monitor.gate import FindingError, gravest_forbidden, is_lasting, raise_if_forbidden


def in_states(*states):
    return replace(finding(), state=states[-1], states=states)


@pytest.mark.parametrize(("states", "fail_on", "required", "forbidden"), [
    (("confirmed",), "confirmed", 2, False),
    (("confirmed",), "confirmed", 1, True),
    (("confirmed", "confirmed"), "confirmed", 2, True),
    (("suspected", "confirmed"), "confirmed", 2, False),
    (("suspected", "confirmed"), "suspected", 2, True),
    (("confirmed", "unconfirmed"), "suspected", 2, False),
    (("confirmed", "suspected", "confirmed"), "confirmed", 2, False),
    (("confirmed", "confirmed"), None, 1, False),
])  # fmt: skip
def test_a_finding_is_forbidden_when_it_lasts(states, fail_on, required, forbidden):
    findings = [in_states("refuted", "refuted"), in_states(*states)]
    assert gravest_forbidden(findings, fail_on, required) == (findings[1] if forbidden else None)
    if forbidden:
        with pytest.raises(FindingError, match=f"fail_on='{fail_on}'{' in 2 evaluations' if required == 2 else ':'}"):
            raise_if_forbidden(findings, fail_on, required)
    else:
        raise_if_forbidden(findings, fail_on, required)


def test_older_records_are_judged_by_their_last_state():
    assert is_lasting(replace(finding(), state="confirmed"), ("confirmed",), 3)
    assert not is_lasting(finding(), ("confirmed",), 1)
