import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from examples import finding

from lrptrain.batch.parts import InputPart, MarkPicture
from lrptrain.findings import OVERALL, Evidence, Scope, announce, fold
from lrptrain.findings.detector import detectors
from lrptrain.terminal import WIDTH

MOVED = Evidence(0.4, (0.3, 0.5), 0.1, 0.002, 20)
SUSPECTED = finding(scope=Scope("class", "cat"))
CONFIRMED = replace(SUSPECTED, scope=OVERALL, state="confirmed", intervention=MOVED, medium="image", strategy="swap")
POSITION = replace(
    CONFIRMED, kind="focus_at_position", where="the four corners (4 of 36 patches)", strategy="inpaint", bound=None
)
DOCS = Path(__file__).parents[2]


def test_what_is_wrong_comes_first_then_the_evidence_then_what_to_do():
    (text,) = announce([replace(POSITION, intervention=replace(MOVED, effect=0.9, reference=0.0))], Path("runs/demo"))
    assert text.splitlines() == [
        "SHORTCUT confirmed, all classes: the model reads the image's four corners.",
        "  Painted over, the answer's probability falls by 90 points (random places: 0).",
        "  12 % of the relevance is there, on 31 % of the image. 20 images since epoch 0.",
        "  See samples 17, 4: lrptrain dashboard runs/demo",
        "  Mend: data without it, or annotate and guide: docs/tutorials/mend.md",
    ]
    assert (DOCS / text.split()[-1]).is_file()
    (text,) = announce([replace(CONFIRMED, annotated=True)])
    remedy = text.splitlines()[-1]
    assert remedy == '  Mend: data without it, or guidance by "swap": docs/tutorials/mend.md'
    (text_of_part,) = announce([replace(POSITION, part=InputPart("patches", "the corner", (6, 6), (0,)))])
    by_itself = text_of_part.splitlines()[-1]
    assert by_itself == '  Mend: data without it, or guidance by swap="findings": docs/tutorials/mend.md'
    # With annotations these say what is evidence; what may be the object is for a person.
    (annotated,) = announce([replace(POSITION, annotated=True, part=InputPart("patches", "the corner", (6, 6), (0,)))])
    assert annotated.splitlines()[-1] == remedy
    large = MarkPicture((0.0,), (1.0,), 1, 1, 1, (0, 0, 12, 12), (32, 32))
    (doubtful,) = announce([replace(POSITION, part=InputPart("mark", "a mark", mark=large))])
    assert "annotate and guide" in doubtful.splitlines()[-1]
    # A mark on the object lies inside of what is annotated: only its own swap reaches it.
    across = replace(POSITION, may_be_evidence=True, part=InputPart("patches", "the centre", (6, 6), (14,)))
    (judged,) = announce([replace(across, annotated=True)])
    judgement = judged.splitlines()[-1]
    assert judgement == "  Mend: if not the object, swap=[finding.as_fault()]: docs/how-to/guidance.md"
    (anywhere,) = announce([replace(across, part=None)])
    assert anywhere.splitlines()[-1] == "  Mend: if it is not the object, annotate and guide: docs/tutorials/mend.md"
    remedies = [f"  Mend: {detector.remedy}" for detector in detectors()]
    assert max(map(len, [remedy, by_itself, judgement, *remedies])) <= WIDTH
    assert text.splitlines()[:4] == [
        "SHORTCUT confirmed, all classes: the model relies on what lies outside the",
        "  annotation.",
        "  Swapped for another class's, the answer's probability falls by 50 points (the",
        "  same class's: 10).",
    ]


def test_what_was_not_confirmed_is_not_said_of_the_model():
    (text,) = announce([SUSPECTED])
    assert text.splitlines()[0] == "Suspected, class cat: the maps point at what lies outside the annotation."
    assert "No intervention has tested it." in text
    assert "Mend" not in text
    (text,) = announce([replace(SUSPECTED, note="too few samples to test it: 3")])
    assert "Not tested: too few samples to test it: 3." in text
    (text,) = announce([replace(CONFIRMED, state="refuted")])
    assert text.startswith("Refuted, all classes: the model does not rely on what lies outside the")


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        (
            {"kind": "focus_at_position", "where": "bottom centre, top left (4 of 36 patches)", "strategy": "fill"},
            ["reads the image's bottom centre and top left.", "Covered with the mean colour, the answer's"],
        ),
        ({"kind": "focus_at_position", "where": "bottom right (1 of 9 patches)"}, ["the image's bottom right corner."]),
        (
            {"kind": "relevance_cluster", "where": "the border (9 of 36 patches) of 12 images with similar maps"},
            ["the model reads the border of 12 images with similar maps."],
        ),
        (
            {"kind": "suspicious_token", "where": "the token 'census'", "strategy": "delete", "medium": "text"},
            ["relies on the token 'census'.", "Deleted, the answer's", "(random words: 10).", "on 31 % of the text."],
        ),
        ({"kind": "focus_in_region", "where": "sky"}, ["relies on the region 'sky'."]),
        ({"kind": "reliance_outside_annotation"}, ["The maps show it: 12 % of the relevance is on the annotation"]),
        (
            {"kind": "reliance_outside_annotation", "relevance": replace(MOVED, effect=0.51)},
            ["The maps show a part of it: 51 % of the relevance is on the annotation"],
        ),
        (
            {"kind": "reliance_outside_annotation", "relevance": replace(MOVED, effect=0.91)},
            ["The maps do not show it: 91 % of the relevance is on the annotation"],
        ),
        ({"kind": "reliance_outside_annotation", "relevance": None}, ["The maps do not show it."]),
        ({"kind": "of_an_older_run", "where": "the moon", "strategy": ""}, ["relies on the moon.", "(control: 10)"]),
        ({"intervention": replace(MOVED, effect=-0.12)}, ["probability rises by 2 points"]),
        ({"intervention": replace(MOVED, effect=-0.09)}, ["probability falls by 1 point ("]),
        ({"intervention": replace(MOVED, reference=-0.002)}, ["class's: 0)."]),
        ({"state": "suspected"}, ["That is too little to confirm it."]),
        (
            {"state": "suspected", "intervention": replace(MOVED, p_value=0.06)},
            ["Too few images agree to confirm it."],
        ),
        (
            {"state": "suspected", "intervention": replace(MOVED, interval=(0, 1)), "medium": "text"},
            ["Too few texts agree to confirm it."],
        ),
        (
            {"state": "suspected", "intervention": replace(MOVED, interval=(0, 1)), "medium": ""},
            ["Too few samples agree to confirm it."],
        ),
        (
            {"state": "unconfirmed", "strategy": "delete"},
            ["Not confirmed by removal, all classes: the maps point at", "Another cue may say the same."],
        ),
        ({"kind": "focus_at_position", "where": "the border (9 of 36 patches)"}, ["Swapped for another class's"]),
    ],
)
def test_each_kind_and_change_has_its_own_words(changes, sentences):
    (text,) = announce([replace(CONFIRMED, **changes)])
    for sentence in sentences:
        assert sentence in " ".join(text.split())


def test_one_fact_is_told_once_with_its_classes():
    classes = [replace(CONFIRMED, scope=Scope("class", str(i))) for i in range(9)]
    findings = [*classes, CONFIRMED, replace(CONFIRMED, target="predicted")]
    for announced in (findings, fold(findings)):
        (text,) = announce(announced)
        assert text.startswith("SHORTCUT confirmed, all classes")
        assert "Also in classes 0, 1, 2, 3, 4, 5 and 3 more." in text


def test_why_several_were_not_tested_is_said_once():
    alike = "the model predicts the same class for all but 3 of these samples: too few to swap with"
    places = [replace(POSITION, kind=kind, state="suspected", intervention=None) for kind in ("one", "two", "three")]
    texts = announce([replace(places[0], note=alike), replace(places[1], note=alike), replace(places[2], note="")])
    text = " ".join("\n".join(texts).split())
    assert text.count(alike) == text.count(f"Not tested: {alike}.") == 1
    assert text.count("Not tested, for the same reason.") == 1
    assert text.count("No intervention has tested it.") == 1
    # An evaluation after it says the reason anew.
    assert "too few to swap with" in " ".join(announce([replace(places[1], note=alike)])[0].split())


def test_the_reason_of_a_test_that_was_made_is_not_said():
    tested = replace(POSITION, note="too few")
    assert "Not tested" not in " ".join(announce([tested, replace(tested, kind="another")]))


def test_no_scope_has_two_verdicts():
    dog, fox, group = (
        replace(SUSPECTED, scope=Scope(*name)) for name in (("class", "dog"), ("class", "fox"), ("group", "1"))
    )
    (text,) = announce([dog, CONFIRMED, replace(CONFIRMED, scope=Scope("class", "owl")), fox])
    assert "Also in class owl. Suspected in classes dog and fox." in text
    assert text.startswith("SHORTCUT confirmed, all classes together: ")
    (text,) = announce([dog, CONFIRMED, group])
    assert "Suspected in class dog and group 1." in text
    refuted = replace(CONFIRMED, state="refuted")
    (text,) = announce([dog, replace(fox, state="refuted"), replace(refuted, target="predicted"), refuted])
    assert text.startswith("Suspected, class dog")
    assert "Not confirmed in all classes together and class fox." in " ".join(text.split())
    # What two kinds of maps say of the surroundings is one fact, and the classes of another place are not its own.
    (text,) = announce([replace(CONFIRMED, kind="reliance_outside_annotation"), dog])
    assert "Suspected in class dog." in text
    (text,) = announce([replace(POSITION, also=(replace(CONFIRMED, scope=Scope("class", "dog")),))])
    assert "dog" not in text


def test_kinds_places_and_states_are_not_mixed_and_the_gravest_comes_first():
    milder = replace(POSITION, intervention=replace(MOVED, effect=0.2))
    words = [
        replace(POSITION, kind="suspicious_token", where=f"the token {word!r}", state="suspected") for word in "ab"
    ]
    texts = announce([*words, milder, CONFIRMED])
    assert [
        marks in text for marks, text in zip(("relies on what", "reads the", "'a'", "'b'"), texts, strict=True)
    ] == [True] * 4


def test_words_of_a_text_are_shown_beside_its_number():
    worded = replace(CONFIRMED, medium="text", excerpts=('"... read the census ..."', '"and that"'))
    (text,) = announce([worded])
    assert 'Such as sample 17: "... read the census ..."' in text


def test_a_paragraph_fits_a_terminal_and_commands_are_not_broken(tmp_path, monkeypatch):
    far = replace(POSITION, where="bottom centre, " * 9, worst_samples=tuple("x" * 30 + str(i) for i in range(5)))
    for text in announce([far, replace(far, state="suspected", note="because " * 20)], Path("runs")):
        assert max(map(len, text.splitlines())) <= 80
    folder = tmp_path / "my runs" / ("long" * 20)
    (text,) = announce([POSITION], folder)
    assert shlex.split(text.split("lrptrain dashboard ")[1].splitlines()[0])[0] in (
        str(folder),
        os.path.relpath(folder),
    )
    monkeypatch.chdir(tmp_path)
    (text,) = announce([POSITION], folder)
    assert f"See: lrptrain dashboard 'my runs/{'long' * 20}'" in text


def test_nothing_is_announced_of_nothing():
    assert announce([]) == []
