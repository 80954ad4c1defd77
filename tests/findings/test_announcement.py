import os
import shlex
from dataclasses import replace
from pathlib import Path

from examples import OPEN, finding

from lrptrain.findings import announce
from lrptrain.findings.proof import Proof, ProvenSample
from lrptrain.terminal import WIDTH

ROOT = Path(__file__).parents[2]


def test_what_is_wrong_comes_first_then_the_evidence_then_what_to_do():
    (text,) = announce([finding(also_relies_on=("the border",))], Path("runs/demo"))
    assert text.splitlines() == [
        "SHORTCUT: the model relies on the top left corner.",
        "  Effect 40 points (30 to 50), of 24 images.",
        "  That is 40 of the 50 points of everything outside the annotation.",
        "  The model also relies on the border.",
        "  50 % of the relevance is there, on 6 % of the image.",
        "  Or the annotations are incomplete or shifted (lrptrain.preview shows them).",
        "  See samples 17, 4: lrptrain dashboard runs/demo",
        '  Fix: RelevanceGuidance("swap")',
    ]


def test_no_more_than_three_samples_are_named():
    (text,) = announce([finding(worst_samples=(5, 4, 3, 2, 1))], Path("runs"))
    assert "  See samples 5, 4, 3: lrptrain dashboard runs" in text


def test_where_to_look_and_what_to_do_is_said_once():
    texts = announce([finding(), finding(name="another"), OPEN], Path("runs"))
    assert ["lrptrain dashboard runs" in text for text in texts] == [True, False, False]
    assert ["  Fix: " in text for text in texts] == [True, False, False]
    assert '  If the model should not use it: RelevanceGuidance("swap", swap=' in texts[2]
    assert ["incomplete or shifted" in text for text in texts] == [True, False, False]


def test_what_a_swap_does_to_the_first_sample_is_said():
    samples = tuple(ProvenSample(i, "cat", 0.9, 0.1, 0.8, instead="dog", then=0.7) for i in (4, 5))
    (text,) = announce([finding(proof=Proof("Swapped", "within", samples))])
    said = "Sample 4, original: cat (90 %). Swapped: cat (10 %), dog (70 %). Control, within: cat (80 %)."
    assert said in " ".join(text.split())
    assert "Sample 5" not in text


def test_words_of_a_text_are_shown_beside_its_number():
    (text,) = announce(
        [finding(medium="text", excerpts=('sample 17: "... read the census ..."', 'sample 4: "and that"'))]
    )
    assert 'Such as sample 17: "... read the census ..."' in text


def test_a_paragraph_fits_a_terminal_and_commands_are_not_broken(tmp_path, monkeypatch):
    far = finding(name="the corner, " * 9, worst_samples=tuple("x" * 30 + str(i) for i in range(5)), role="unreviewed")
    texts = announce([far, replace(far, verdict="inconclusive", note="because " * 20)], Path("runs"))
    for text in texts:
        assert max(len(line) for line in text.splitlines() if not line.startswith("  If the model should")) <= WIDTH
    assert "  See: lrptrain dashboard runs" in texts[0].splitlines()
    folder = tmp_path / "my runs" / ("long" * 20)
    (text,) = announce([finding()], folder)
    assert shlex.split(text.split("lrptrain dashboard ")[1].splitlines()[0])[0] in (
        str(folder),
        os.path.relpath(folder),
    )
    monkeypatch.chdir(tmp_path)
    (text,) = announce([finding()], folder)
    assert f"See: lrptrain dashboard 'my runs/{'long' * 20}'" in text


def test_a_percent_sign_stays_with_its_number():
    for length in range(40):
        (text,) = announce([finding(note=f"{'a' * length} 40 % of them")])
        assert "40 % of" in " ".join(text.split())
        assert not any(line.split()[0] == "%" for line in text.splitlines())


def test_nothing_is_announced_of_nothing():
    assert announce([]) == []
