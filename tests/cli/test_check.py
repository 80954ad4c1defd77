"""The gate: what passes, what fails, and what nobody can say; each with an exit status of its own."""

import json
from typing import Any

import hostile
import pytest
from examples import ENDED, EVIDENCE, INCONCLUSIVE, OPEN, finding

from lrptrain import check
from lrptrain.cli import main
from lrptrain.cli.check import FAILED, UNREADABLE, WRONG_USE
from lrptrain.cli.check import INCONCLUSIVE as UNSURE
from lrptrain.loggers import EpochRecord, write_record
from lrptrain.loggers.timeline import UnreadableRunError

TESTED = {"tells": True, "text": "It does not rely on these alone: the light of the image."}
"""What an evaluation says that has tested enough."""


def evaluate(folder, *findings, epoch=3, power=TESTED):
    write_record(folder, EpochRecord(epoch=epoch, step=10 * epoch, findings=list(findings), power=power))
    return str(folder)


def status(capsys, *arguments):
    """Return the status with which the gate ends, and its last line."""
    code: Any = 0
    try:
        main(["check", *map(str, arguments)])
    except SystemExit as ended:
        code = ended.code
    out, err = capsys.readouterr()
    return code, (out or err).splitlines()[-1]


def test_a_fault_fails(tmp_path, capsys):
    evaluate(tmp_path, finding(), OPEN)
    code, line = status(capsys, tmp_path, "--max-reliance=0.2")
    assert code == FAILED
    assert line == "failed: 1 shortcut at epoch 3; reliance 0.30, allowed 0.20"
    assert str(check(tmp_path)).startswith("SHORTCUT: the model relies on the top left corner.")


@pytest.mark.parametrize("findings", [(), (EVIDENCE,), (ENDED,)])
def test_what_is_no_fault_passes(findings, tmp_path, capsys):
    code, line = status(capsys, evaluate(tmp_path, *findings))
    assert code == 0
    assert line.startswith("passed: 0 shortcuts")
    assert check(tmp_path)


def test_a_fault_as_grave_as_allowed_passes(tmp_path):
    assert check(evaluate(tmp_path, finding()), max_reliance=0.3)


@pytest.mark.parametrize(("verdicts", "options", "passes"), [
    (["relies"], {}, False),  # all that there is
    (["inconclusive", "relies"], {}, True),
    (["relies", "relies"], {}, False),
    (["relies", "does not rely", "relies"], {}, True),
    (["inconclusive", "relies"], {"fail_after": 1}, False),
    (["inconclusive", "relies", "relies"], {"fail_after": 3}, True),
])  # fmt: skip
def test_a_fault_of_two_evaluations_in_a_row_fails(verdicts, options, passes, tmp_path):
    latest = finding(verdicts=tuple(verdicts), epochs=tuple(range(len(verdicts))))
    for epoch in range(len(verdicts)):
        evaluate(tmp_path, latest, epoch=epoch)
    result = check(str(tmp_path), **options)
    assert result.verdict == ("passed" if passes else "failed")
    assert ("in 2 evaluations in a row" in str(result)) == (not options and len(verdicts) != 1)


def test_the_folder_may_lie_below(tmp_path, capsys):
    evaluate(tmp_path / "relevance" / "a")
    (tmp_path / "relevance" / "begun").mkdir()
    (tmp_path / "relevance" / "begun" / "events.jsonl").touch()  # stopped before its first evaluation
    assert check(str(tmp_path))
    evaluate(tmp_path / "relevance" / "b", finding())
    with pytest.raises(ValueError, match="holds 2 runs: name one of"):
        check(str(tmp_path))
    assert status(capsys, tmp_path)[0] == WRONG_USE


@pytest.mark.parametrize(("option", "says"), [
    ("--max-reliance=2", "max_reliance must lie in 0..1"),
    ("--fail-after=0", "fail_after must be at least 1, not 0"),
    ("--max-reliance=much", "much"),
    ("--max-severity=0.2", "is now --max_reliance"),
    ("--most severe=1", "most severe"),
])  # fmt: skip
def test_wrong_use_has_a_status_of_its_own(option, says, tmp_path, capsys):
    code, line = status(capsys, evaluate(tmp_path), option)
    assert code == WRONG_USE
    assert says in line


@pytest.mark.parametrize(("findings", "power", "says"), [
    ((OPEN,), TESTED, "NEEDS REVIEW: the model relies on the colours of the image, by 40 points."),
    ((INCONCLUSIVE, EVIDENCE), TESTED, "More samples decide whether the model relies on the border"),
    ((), {}, "Nothing was tested: the record does not say by what."),
    ((), {"tells": False, "text": "Its answers are no better than guessing."}, "no better than guessing."),
])  # fmt: skip
def test_what_nobody_can_say_is_not_sure(findings, power, says, tmp_path, capsys):
    code, line = status(capsys, evaluate(tmp_path, *findings, power=power))
    assert code == UNSURE
    assert line.startswith("inconclusive: ")
    assert says in line
    assert not check(tmp_path)


def test_what_a_person_has_to_judge_may_be_as_large_as_a_fault(tmp_path):
    evaluate(tmp_path, OPEN)
    assert check(tmp_path, max_reliance=0.3).verdict == "passed"
    assert check(tmp_path, max_reliance=0.29).verdict == "inconclusive"


def test_a_run_of_another_format_is_refused_in_one_line(tmp_path, capsys):
    evaluate(tmp_path)
    path = tmp_path / "events.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace('"format": 2', '"format": 0'), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["check", str(tmp_path)])
    assert ended.value.code == UNREADABLE
    assert "is a run in format 0, written by another version of lrptrain" in " ".join(capsys.readouterr().err.split())


def altered(folder, change):
    """Change the finding in the last of three lines."""
    fault = finding(verdicts=("relies", "relies"), epochs=(1, 2))
    for epoch in range(3):
        evaluate(folder, fault, epoch=epoch)
    path = folder / "events.jsonl"
    *first, last = path.read_text(encoding="utf-8").splitlines()
    event = json.loads(last)
    change(event["findings"][0])
    path.write_text("\n".join([*first, json.dumps(event)]) + "\n", encoding="utf-8")


def without(name):
    return lambda one: one.pop(name)


def with_value(**values):
    return lambda one: one.update(values)


# What else cannot be read is in tests/findings/test_finding.py.
@pytest.mark.parametrize(("change", "says"), [
    (with_value(verdict="RELIES"), "a finding that cannot be read"),
    (with_value(is_fault=False), "a finding that contradicts its verdict and role"),
    (with_value(role="unreviewed"), "a finding that contradicts its verdict and role"),
    (with_value(effect=None), "a finding that the model relies on, without its effect"),
    (without("interval"), "a finding without interval"),
    (without("verdict"), "a finding without verdict"),
])  # fmt: skip
def test_a_finding_that_cannot_be_read_does_not_pass(change, says, tmp_path, capsys):
    altered(tmp_path, change)
    code, line = status(capsys, tmp_path)
    assert code == UNREADABLE
    assert says in line


EMPTY = '{"epoch": 1, "step": 3, "format": 2, "scalars": {}, "findings": []'


@pytest.mark.parametrize("change", [
    with_value(kind="of_another_version"),
    without("is_fault"),
    without("sentences"),
    without("epochs"),
    with_value(of_another_version=[1]),
])  # fmt: skip
def test_a_fault_of_another_version_fails_all_the_same(change, tmp_path, capsys):
    altered(tmp_path, change)
    assert status(capsys, tmp_path)[0] == FAILED


@pytest.mark.parametrize(("line", "says"), [
    ("{half", "no evaluation"),
    ('{"epoch": 2, "step": 20, "scalars": {"relevance/sever', "no evaluation"),
    ("[]", "no evaluation"),
    ("null", "no evaluation"),
    ('{"epoch": true, "step": 3, "scalars": {}, "findings": []}', "no evaluation"),
    ('{"epoch": 1.5, "step": 3, "scalars": {}, "findings": []}', "no evaluation"),
    ('{"step": 3, "scalars": {}, "findings": []}', "no evaluation"),
    ('{"epoch": 1, "step": 3, "format": 2, "findings": []}', "an evaluation without its scalars"),
    (EMPTY.replace("{}", '{"a": "b"}') + "}", "an evaluation without its scalars"),
    ('{"epoch": 1, "step": 3, "format": 2, "scalars": {}}', "an evaluation without its findings"),
    ('{"epoch": 1, "step": 3, "format": 2, "scalars": {}, "findings": {"a": 1}}', "an evaluation without its findings"),
    ('{"epoch": 1, "step": 3, "format": 2, "scalars": {}, "findings": [3]}', "a finding that is none"),
    (f'{EMPTY}, "power": {{"tells": 1}}}}', "power of an unknown form"),
    (f'{EMPTY}, "continued_after": "a"}}', "an unknown continued_after"),
])  # fmt: skip
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_line_that_cannot_be_read_does_not_pass(place, line, says, tmp_path, capsys):
    for epoch in (3, 4):
        evaluate(tmp_path, epoch=epoch)
    assert status(capsys, tmp_path)[0] == 0
    path = tmp_path / "events.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines.insert(place, line)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    code, said = status(capsys, tmp_path)
    assert code == UNREADABLE
    assert f"line {place + 1} of {path} holds {says}" in said


def test_a_line_of_a_killed_process_is_forgiven_once_its_evaluation_was_made_again(tmp_path, capsys):
    evaluate(tmp_path, epoch=3)
    path = tmp_path / "events.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + '{"epoch": 4, "step": 40, "scal', encoding="utf-8")
    assert status(capsys, tmp_path)[0] == UNREADABLE
    evaluate(tmp_path, epoch=4)
    assert status(capsys, tmp_path)[0] == 0


def test_nothing_to_judge_is_no_pass(tmp_path, capsys):
    with pytest.raises(FileNotFoundError, match="nothing to judge"):
        check(tmp_path / "absent")
    for folder in (tmp_path, tmp_path / "absent"):
        code, line = status(capsys, folder)
        assert code == UNREADABLE
        assert "nothing to judge" in line
    (tmp_path / "events.jsonl").write_text("{half")
    with pytest.raises(UnreadableRunError, match=r"line 1 of .* holds no evaluation"):
        check(str(tmp_path))


@pytest.mark.parametrize("name", hostile.UNREADABLE)
def test_among_several_runs_one_that_cannot_be_read_counts(name, tmp_path, capsys):
    evaluate(tmp_path / "a")
    hostile.RUNS[name](tmp_path / "b")
    code, line = status(capsys, tmp_path)
    assert code == WRONG_USE
    assert "holds 2 runs" in line


def test_an_error_of_the_gate_itself_is_no_fault(tmp_path, monkeypatch, capsys):
    """Python ends with 1 after an error, which would say that a shortcut was found."""

    def broken(*arguments):
        raise KeyError("a defect")

    monkeypatch.setattr("lrptrain.monitor.check.check", broken)
    assert status(capsys, evaluate(tmp_path)) == (
        UNREADABLE,
        f"lrptrain: {str(tmp_path)!r} cannot be read as a run (KeyError: 'a defect')",
    )


def test_the_help_names_every_status(capsys):
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "Exit with 0 if a run passes, 1 if it relies on a shortcut, 3 if it is inconclusive, 4" in said
