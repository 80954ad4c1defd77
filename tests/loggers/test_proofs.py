"""Samples and proofs as loggers without captions or tables take them."""

from examples import finding, record

from lrptrain.findings.proof import Proof, ProvenSample
from lrptrain.loggers import write_record
from lrptrain.loggers.proofs import proofs_page, words_of


def test_highlights_are_one_page_with_escaped_captions(tmp_path):
    write_record(tmp_path, record())
    page = (tmp_path / "highlights" / "epoch_0003_step_000031.html").read_text()
    assert "<h2>one &lt;b&gt;</h2>\n<span>good</span>" in page
    assert "http" not in page


def test_words_of_a_proof_are_no_marks_and_those_that_are_swapped_have_one():
    changed = ProvenSample("t", "dog", 0.9, 0.2, 0.8, (("a*b", "gone"), ("<i>", "")), (("cat", "new"), ("<i>", "")))
    proven = finding(kind="phrase", proof=Proof("With that of another answer", "the control", (changed,)))
    assert "~~a&#42;b~~ &#60;i&#62;" in words_of(proven)
    assert "**cat**" in words_of(proven)
    assert "<i>" not in proofs_page([proven])
    assert words_of(finding()) == proofs_page([finding()]) == ""
