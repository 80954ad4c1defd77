"""Records of runs, and whether the gate lets them pass: by the last evaluation of the kept checkpoint of this run."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from examples import ENDED, EVIDENCE, INCONCLUSIVE, OPEN, finding

import lrptrain
from lrptrain.cli import main
from lrptrain.findings import Finding
from lrptrain.loggers import EpochRecord, write_record

PASSED, FAILED, WRONG_USE, UNSURE, UNREADABLE = range(5)
TESTED = {"tells": True, "text": "It does not rely on these alone: the light of the image.", "doubt": ""}
MUTE = {"tells": False, "text": "That says nothing yet: its answers are no better than guessing."}
FEW = {"tells": False, "text": "That says nothing: 4 samples are too few; 8 can be enough."}
COLLAPSED = {"tells": False, "text": "COLLAPSED: one answer.", "collapsed": True}
UNLABELLED = {**TESTED, "doubt": "No sample has a label."}
FAULT = finding(effect=0.998, interval=(0.99, 1.0))
MILD = finding(effect=0.1, interval=(0.05, 0.15))
ON_OBJECT = finding(
    name="a mark of 4 x 4 pixels on the annotated object", kind="mark", role="unreviewed", plain={"where": "evidence"}
)


def after(fault: Finding, *verdicts: Any, first: int = 0) -> Finding:
    """A fault with its history, an evaluation an epoch."""
    epochs = tuple(range(first, first + len(verdicts)))
    return finding(effect=fault.effect, interval=fault.interval, verdict=verdicts[-1], verdicts=verdicts, epochs=epochs)


def evaluation(*findings: Finding, power: Any = TESTED, **more: Any) -> dict[str, Any]:
    return {"findings": list(findings), "power": power, **more}


CLEAN, AT_CHANCE = evaluation(), evaluation(power=MUTE)
RELIES, RELIES_TWICE = evaluation(after(FAULT, "relies")), evaluation(after(FAULT, "relies", "relies"))
KEPT: Any = "the last"


def write(folder: Path, evaluations: Any, kept: Any = KEPT, **settings: Any) -> Path:
    """Write the record of a run that has ended: an evaluation an epoch, the last of which is of the kept checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    for epoch, given in enumerate(evaluations):
        write_record(folder, EpochRecord(epoch, 10 * epoch, **given), marks={"id": f"evaluation-{epoch}"})
    last = len(evaluations) - 1
    own = {"epoch": last, "step": 10 * last, "id": f"evaluation-{last}"} if kept is KEPT else kept
    content = {"id": "1", "name": folder.name, "ended": True, "kept": own, **settings}
    (folder / "run.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def status(capsys: Any, *arguments: Any) -> tuple[int, str]:
    """Return the status with which the command ends, and what it says."""
    code: Any = 0
    try:
        main(["check", *map(str, arguments)])
    except SystemExit as ended:
        code = ended.code
    out, err = capsys.readouterr()
    return code, " ".join((out or err).split())


RECORDS: dict[str, tuple[Any, dict[str, Any], int, str]] = {
    # What passes: the last evaluation is of the kept checkpoint, could tell, and found nothing that is forbidden.
    "clean": ([CLEAN], {}, PASSED, ""),
    "clean again": ([CLEAN, CLEAN], {}, PASSED, ""),
    "clean after chance": ([AT_CHANCE, CLEAN], {}, PASSED, ""),
    "clean after a fault": ([RELIES, evaluation(after(FAULT, "relies", "does not rely"))], {}, PASSED, ""),
    "it has ceased": ([evaluation(ENDED)], {}, PASSED, ""),
    "evidence": ([evaluation(EVIDENCE)], {}, PASSED, ""),
    "what lies on the annotation": ([evaluation(ON_OBJECT)], {}, PASSED, ""),
    "evidence, and another mark on it": ([evaluation(EVIDENCE, ON_OBJECT)], {}, PASSED, ""),
    "once in three evaluations that could tell": (
        [CLEAN, CLEAN, evaluation(after(FAULT, "relies", first=2))], {}, PASSED, "",
    ),
    "kept checkpoint of an earlier validation": (
        [CLEAN, CLEAN, evaluation(weights=(0, 0))], {}, PASSED, "",
    ),
    # A fault.
    "a fault": ([RELIES], {}, FAILED, "1 shortcut at epoch 0; reliance 0.99, allowed 0.20"),
    "a fault that lasts": ([RELIES, RELIES_TWICE], {}, FAILED, "in 2 evaluations in a row"),
    "a fault after chance": ([AT_CHANCE, evaluation(after(FAULT, "relies", first=1))], {}, FAILED, "0.99"),
    "a fault after chance, whose history has that": (
        [AT_CHANCE, evaluation(after(FAULT, "does not rely", "relies"))], {}, FAILED, "0.99",
    ),
    "a fault after few samples": ([evaluation(power=FEW), evaluation(after(FAULT, "relies", first=1))], {}, FAILED, ""),
    "a fault around an evaluation at chance": (
        [RELIES, AT_CHANCE, evaluation(after(FAULT, "relies", first=2))], {}, FAILED, "in 2 evaluations in a row",
    ),
    "a fault of a model at chance": ([CLEAN, evaluation(FAULT, power=MUTE)], {}, FAILED, ""),
    "a fault of the kept checkpoint, the last ones were clean": (
        [RELIES, CLEAN, evaluation(after(FAULT, "relies", first=2), weights=(0, 0))], {}, FAILED, "",
    ),
    "a fault, and what follows failed": ([RELIES, RELIES_TWICE], {"kept": None}, FAILED, ""),
    # The last evaluation could not tell.
    "chance": ([AT_CHANCE], {}, UNSURE, "no better than guessing"),
    "chance in the end": ([CLEAN, AT_CHANCE], {}, UNSURE, "no better than guessing"),
    "a mild fault at chance": ([evaluation(MILD, power=MUTE)], {}, UNSURE, "no better than guessing"),
    "collapsed": ([CLEAN, evaluation(power=COLLAPSED)], {}, UNSURE, "COLLAPSED"),
    "few samples in the end": ([CLEAN, evaluation(power=FEW)], {}, UNSURE, "too few"),
    "no label": ([evaluation(power=UNLABELLED)], {}, UNSURE, "No sample has a label"),
    "a test that failed": (
        [evaluation(power={**TESTED, "doubt": "The test of the border failed."})], {}, UNSURE, "The test of the border",
    ),
    "nothing tested": ([evaluation(power={})], {}, UNSURE, "Nothing was tested"),
    "a doubt": ([evaluation(INCONCLUSIVE)], {}, UNSURE, "More samples decide whether"),
    "for review": ([evaluation(OPEN)], {}, UNSURE, "NEEDS REVIEW"),
    "for review, beside what lies on the annotation": ([evaluation(ON_OBJECT, OPEN)], {}, UNSURE, "the colours"),
    # It is not of the kept checkpoint of this run.
    "later ones failed": ([CLEAN], {"kept": None}, UNSURE, "not of the weights that training left"),
    "not ended": ([CLEAN], {"kept": None, "ended": False}, UNSURE, "has not come to its end"),
    "resumed, and not ended": ([CLEAN, CLEAN], {"ended": False}, UNSURE, "has not come to its end"),
    "ended in words": ([CLEAN], {"ended": "yes"}, UNSURE, "has not come to its end"),
    "an earlier one is of them": (
        [CLEAN, CLEAN], {"kept": {"epoch": 0, "step": 0, "id": "evaluation-0"}}, UNSURE, "not of the weights",
    ),
    "another run has the same moment": (
        [CLEAN], {"kept": {"epoch": 0, "step": 0, "id": "another"}}, UNSURE, "not in the record any more",
    ),
    "kept in another form": ([CLEAN], {"kept": "evaluation-0"}, UNSURE, "not of the weights"),
    # Nothing to judge.
    "no evaluation": ([], {"kept": None, "ended": False}, UNREADABLE, "nothing to judge"),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_passes_or_not(name, tmp_path, capsys):
    evaluations, settings, expected, says = RECORDS[name]
    folder = write(tmp_path / "run", evaluations, **settings)
    code, said = status(capsys, folder, "--max-reliance=0.2")
    assert code == expected, said
    assert says in said


def test_a_record_without_its_settings_is_judged_by_what_it_found(tmp_path, capsys):
    folder = write(tmp_path / "run", [CLEAN])
    (folder / "run.json").unlink()
    assert status(capsys, folder)[0] == PASSED
    write(tmp_path / "fault", [RELIES])
    (tmp_path / "fault" / "run.json").write_text("{half", encoding="utf-8")
    assert status(capsys, tmp_path / "fault")[0] == FAILED


def at(folder: Path, time: int) -> Path:
    for path in folder.iterdir():
        os.utime(path, (time, time))
    return folder


def test_a_newer_run_of_the_same_name_is_not_passed_over(tmp_path, capsys):
    first = at(write(tmp_path / "my_run", [CLEAN]), 1)
    assert status(capsys, first)[0] == PASSED
    second = at(write(tmp_path / "my_run-2", [evaluation(FAULT)], name="my_run"), 2)
    code, said = status(capsys, first)
    assert code == WRONG_USE
    assert f"{str(second)!r} is a newer run of the same name" in said
    assert status(capsys, second)[0] == FAILED
    third = tmp_path / "my_run-3"
    third.mkdir()  # stopped before its first evaluation
    for folder in (first, tmp_path / "my_run" / ".." / "my_run"):
        code, said = status(capsys, folder)
        assert code == WRONG_USE
        assert str(third) in said
    third.rmdir()
    at(first, 3)  # it was resumed
    assert status(capsys, first)[0] == PASSED


def test_a_name_with_a_number_may_be_one_that_was_asked_for(tmp_path, capsys):
    first = write(tmp_path / "seed", [CLEAN])
    write(tmp_path / "seed-2", [evaluation(FAULT)])
    write(tmp_path / "seed-best", [evaluation(FAULT)], name="seed")
    assert status(capsys, first)[0] == PASSED


def test_in_python_too(tmp_path):
    assert lrptrain.check(write(tmp_path / "run", [CLEAN])).verdict == "passed"
    assert lrptrain.check(write(tmp_path / "none", [CLEAN], kept=None)).verdict == "inconclusive"
