import pytest
from examples import ENDED, EVIDENCE, INCONCLUSIVE, OPEN, finding

RED = "#b3382c"


def test_a_finding_says_the_verdict_first_then_the_evidence_then_what_to_do():
    page = finding()._repr_html_()
    places = [page.index(text) for text in ("SHORTCUT: the model", "Effect 40", "That is 40", "50 % of", "Fix:")]
    assert places == sorted(places)
    assert RED in page


@pytest.mark.parametrize("one", [OPEN, EVIDENCE, INCONCLUSIVE, ENDED])
def test_what_is_no_fault_has_another_colour(one):
    assert RED not in one._repr_html_()


def test_names_are_no_markup():
    page = finding(name="<script>alert(1)</script>", medium="text", excerpts=('sample 17: "read <b>"',))._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "Such as sample 17: &quot;read &lt;b&gt;&quot;<" in page
