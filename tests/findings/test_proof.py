import json
from dataclasses import replace

from examples import finding

from lrptrain.findings import Finding
from lrptrain.findings.proof import MarkedWord, Proof, ProvenSample, proof_html, views

OWN: tuple[MarkedWord, ...] = (("the", ""), ("<census>", "gone"))
OTHER: tuple[MarkedWord, ...] = (("the", ""), ("cat", "new"))
SAMPLE = ProvenSample(7, "a&b", 0.9, 0.25, 0.875, OTHER, OWN[:1], instead="3", then=0.004, words=OWN)
TEXT = Proof("Swapped with another class", "swapped within the class", (SAMPLE,), path="p.html")
IMAGE = Proof("Painted over", "random places", (ProvenSample("x", "0", 0.9, 0.1, 0.9),), path="p.png", png=b"\x89PNG")


def test_a_proof_is_in_the_record_and_its_picture_beside_it():
    for proof in (TEXT, IMAGE):
        values = json.loads(json.dumps(finding(proof=proof).to_dict()))
        assert "png" not in values["proof"]
        assert values["proof"]["samples"][0]["titles"] == [view.title for view in views(proof.samples[0], proof)]
        assert Finding.from_dict(values).proof == replace(proof, png=b"")
    assert json.loads(json.dumps(finding().to_dict()))["proof"] is None


def test_a_sample_is_shown_as_it_is_swapped_and_under_the_control():
    assert views(SAMPLE, TEXT) == (
        ("Sample 7, original: a&b (90 %)", OWN),
        ("Swapped with another class: a&b (25 %), class 3 (0.4 %)", OTHER),
        ("Control, swapped within the class: a&b (88 %)", OWN[:1]),
    )
    assert views(IMAGE.samples[0], IMAGE)[1].title == "Painted over: class 0 (10 %)"


def test_a_record_without_the_original_text_is_read():
    values = {"sample_id": 1, "answer": "a", "before": 0.9, "changed": 0.1, "control": 0.9, "instead": "b"}
    sample = ProvenSample.from_dict(values | {"changed_words": [["x", "gone"]], "control_words": []})
    assert (sample.words, sample.changed_words) == ((), (("x", "gone"),))
    assert views(sample, TEXT)[1].title == "Swapped with another class: a (10 %), b"


def test_what_changed_of_a_text_is_coloured_in_the_original_and_in_the_swapped_one():
    page = proof_html(finding(proof=TEXT))
    assert "<b>Sample 7, original: a&amp;b (90 %)</b><br>the <span" in page
    assert '<span style="text-decoration:underline;color:#b91c1c">&lt;census&gt;</span>' in page
    assert '<span style="font-weight:bold;color:#166534">cat</span>' in page
    assert "Control, swapped within the class: a&amp;b (88 %)</b><br>the</div>" in page
    assert "<census>" not in page


def test_an_image_holds_its_picture_with_the_titles_on_it():
    page = proof_html(finding(proof=IMAGE))
    assert 'src="data:image/png;base64,iVBORw=="' in page
    assert 'alt="Sample x, original: class 0 (90 %). Painted over: class 0 (10 %). Control, random places' in page
    assert "<b>" not in page
    assert proof_html(finding()) == ""
