from dataclasses import replace

import pytest
from examples import finding

from lrptrain.findings import OVERALL, Evidence
from lrptrain.loggers.findings_table import finding_text

MOVED = Evidence(0.4, (0.3, 0.5), 0.1, 0.002, 20)


def test_a_finding_says_the_verdict_first_and_hides_its_numbers():
    fact = replace(finding(), scope=OVERALL, state="confirmed", intervention=MOVED)
    page = fact._repr_html_()
    verdict = page.index("SHORTCUT confirmed, all classes")
    assert verdict < page.index("points") < page.index("Mend:") < page.index("<details") < page.index("n = 20")
    assert repr(fact).startswith("Finding('SHORTCUT confirmed, all classes")
    assert len(repr(fact)) < 200


@pytest.mark.parametrize("state", ["suspected", "refuted"])
def test_what_is_not_confirmed_has_another_colour_and_no_remedy(state):
    page = replace(finding(), state=state)._repr_html_()
    assert "#b3382c" not in page
    assert "Mend:" not in page


def test_what_a_person_has_to_judge_is_not_shown_as_a_fault():
    fact = replace(finding(), kind="reliance_on_statistics", state="confirmed", intervention=MOVED, relevance=None)
    assert "#b3382c" not in fact._repr_html_()
    assert fact.to_dict()["is_fault"] is False


def test_a_text_is_quoted():
    fact = replace(finding(), medium="text", excerpts=('"read the census"', '"again"'))
    assert "Such as sample 17: &quot;read the census&quot;<" in fact._repr_html_()
    assert 'Such as sample 17: "read the census". In detail' in finding_text(fact)


def test_names_are_no_markup():
    page = replace(finding(), kind="focus_at_position", where="<script>alert(1)</script>")._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
