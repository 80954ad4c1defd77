import json
from dataclasses import replace

from examples import finding

from lrptrain.findings import Finding
from lrptrain.findings.proof import MarkedWord, Proof, ProvenSample, proof_html

WORDS: tuple[MarkedWord, ...] = (("the", ""), ("<census>", "gone"), ("cat", "new"))
TEXT = Proof("Deleted", "random words", (ProvenSample(7, "a&b", 0.9, 0.25, 0.875, WORDS, WORDS[:1]),), path="p.html")
IMAGE = Proof("Painted over", "random places", (ProvenSample("x", "0", 0.9, 0.1, 0.9),), path="p.png", png=b"\x89PNG")


def test_a_proof_is_in_the_record_and_its_picture_beside_it():
    for proof in (TEXT, IMAGE):
        values = json.loads(json.dumps(finding(proof=proof).to_dict()))
        assert "png" not in values["proof"]
        assert Finding.from_dict(values).proof == replace(proof, png=b"")
    assert json.loads(json.dumps(finding().to_dict()))["proof"] is None


def test_a_text_shows_what_was_taken_away_and_is_escaped():
    page = proof_html(finding(proof=TEXT))
    assert "#7, class a&amp;b: 90% as it is, 25% deleted, 88% under the control (random words)" in page
    assert '<span style="text-decoration:line-through;color:#b91c1c">&lt;census&gt;</span>' in page
    assert "Control, random words: the</div>" in page
    assert "<census>" not in page


def test_an_image_holds_its_picture():
    assert 'src="data:image/png;base64,iVBORw=="' in proof_html(finding(proof=IMAGE))
    assert proof_html(finding()) == ""
