"""The gate: what passes, what fails, and what nobody can say; each with an exit status of its own."""

import json
from dataclasses import replace
from typing import Any

import hostile
import pytest
from examples import finding

from lrptrain import check
from lrptrain.cli import main
from lrptrain.cli.check import FAILED, NOT_SURE, UNREADABLE, WRONG_USE
from lrptrain.files import write_json
from lrptrain.findings import OVERALL, Evidence
from lrptrain.loggers import EpochRecord, write_record
from lrptrain.loggers.timeline import UnreadableRunError

GRAVE = replace(finding(scope=OVERALL), state="confirmed", intervention=Evidence(0.4, (0.3, 0.5), 0.1, 0.001, 20))
EDGES = replace(GRAVE, kind="reliance_on_edges", where="the image's edges", may_be_evidence=True)
ENOUGH = {"relevance/samples": 128.0, "relevance/effect_ratio": 0.4}
"""What an evaluation says that has tested enough."""


def evaluate(folder, *findings, epoch=3, scalars=ENOUGH, **others):
    write_record(folder, EpochRecord(epoch=epoch, step=10 * epoch, findings=list(findings), scalars=scalars, **others))
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


def test_a_grave_finding_fails(tmp_path, capsys):
    evaluate(tmp_path, GRAVE, finding())
    code, line = status(capsys, tmp_path, "--max-severity=0.3")
    assert code == FAILED
    assert line == "failed: 1 confirmed, 1 suspected, 0 refuted at epoch 3; severity 0.40, allowed 0.30"
    assert str(check(tmp_path)).startswith("SHORTCUT confirmed, all classes together: the model relies on")


@pytest.mark.parametrize("findings", [(), (finding(),), (replace(GRAVE, state="refuted"),)])
def test_what_is_not_confirmed_passes(findings, tmp_path, capsys):
    code, line = status(capsys, evaluate(tmp_path, *findings))
    assert code == 0
    assert line.startswith("passed: 0 confirmed")
    assert check(tmp_path)


def test_a_finding_as_grave_as_allowed_passes(tmp_path):
    assert check(evaluate(tmp_path, GRAVE), max_severity=0.4)


@pytest.mark.parametrize(("states", "options", "passes"), [
    (["confirmed"], {}, False),  # all that there is
    (["suspected", "confirmed"], {}, True),
    (["confirmed", "confirmed"], {}, False),
    (["confirmed", "refuted", "confirmed"], {}, True),
    (["suspected", "confirmed"], {"fail_after": 1}, False),
    (["suspected", "confirmed", "confirmed"], {"fail_after": 3}, True),
    ([], {}, False),  # older records do not know
])  # fmt: skip
def test_what_is_confirmed_in_two_evaluations_in_a_row_fails(states, options, passes, tmp_path):
    latest = replace(GRAVE, states=tuple(states))
    for epoch in range(len(states) or 3):
        evaluate(tmp_path, latest, epoch=epoch)
    result = check(str(tmp_path), **options)
    assert result.verdict == ("passed" if passes else "failed")
    assert ("in 2 evaluations in a row" in str(result)) == (not options and len(states) != 1)


def test_the_folder_may_lie_below(tmp_path, capsys):
    evaluate(tmp_path / "relevance" / "a")
    (tmp_path / "relevance" / "begun").mkdir()
    (tmp_path / "relevance" / "begun" / "events.jsonl").touch()  # stopped before its first evaluation
    assert check(str(tmp_path))
    evaluate(tmp_path / "relevance" / "b", GRAVE)
    with pytest.raises(ValueError, match="holds 2 runs: name one of"):
        check(str(tmp_path))
    assert status(capsys, tmp_path)[0] == WRONG_USE


def test_wrong_use_has_a_status_of_its_own(tmp_path, capsys):
    evaluate(tmp_path)
    for option, says in (
        ("--max-severity=2", "max_severity must lie in 0..1"),
        ("--fail-after=0", "fail_after must be at least 1, not 0"),
        ("--max-severity=much", "much"),
        ("--gravest=1", "gravest"),
    ):
        code, line = status(capsys, tmp_path, option)
        assert code == WRONG_USE
        assert says in line


# What an evaluation of 16 samples of two classes, or of 40 of a thousand, would show in four runs of five is larger.
@pytest.mark.parametrize(("samples", "classes", "confidence", "passes"), [
    (128, 2, 0.95, True),
    (25, 2, 0.95, True),
    (24, 2, 0.95, False),
    (32, 10, 0.95, False),
    (33, 10, 0.95, True),
    (40, 1000, 0.95, False),
    (40, 2, 0.999, False),
    (0, 2, 0.95, False),
])  # fmt: skip
def test_too_few_samples_are_not_sure(samples, classes, confidence, passes, tmp_path, capsys):
    evaluate(tmp_path, scalars={**ENOUGH, "relevance/samples": float(samples)})
    write_json(tmp_path / "run.json", {"class_names": [str(i) for i in range(classes)], "confidence": confidence})
    code, line = status(capsys, tmp_path)
    assert code == (0 if passes else NOT_SURE)
    assert passes or line.startswith(f"not sure: {samples} samples are too few to decide, ")


def test_what_is_allowed_takes_fewer_samples_to_see(tmp_path):
    evaluate(tmp_path, scalars={**ENOUGH, "relevance/samples": 16.0})
    assert check(tmp_path).verdict == "not sure"
    assert check(tmp_path, max_severity=0.6).verdict == "passed"


@pytest.mark.parametrize(("changes", "says"), [
    ({"findings": (EDGES,)}, "the model relies on what lies along the image's edges, by 40 points."),
    ({"scalars": {"relevance/samples": 128.0}}, "Nothing was tested: the monitor made no intervention."),
    ({"scalars": {}}, "Nothing was tested: the monitor made no intervention."),
    ({"scalars": {"relevance/effect_ratio": 0.0}}, "0 samples are too few"),
    ({"scalars": {**ENOUGH, "relevance/effect_ratio": 1.2}}, "A test moved the answers far enough, but not surely."),
    ({"scalars": {**ENOUGH, "relevance/effect_ratio": 1.2}, "hints": "Nearest to a flag: a."}, "Nearest to a flag: a."),
    ({"power": {"tells": False, "text": "Its answers are no better than chance."}}, "no better than chance."),
])  # fmt: skip
def test_what_nobody_can_say_is_not_sure(changes, says, tmp_path, capsys):
    changes = dict(changes)
    evaluate(tmp_path, *changes.pop("findings", ()), **changes)
    code, line = status(capsys, tmp_path)
    assert code == NOT_SURE
    assert line.startswith("not sure: ")
    assert says in line
    assert not check(tmp_path)


def test_what_a_person_has_to_judge_may_be_as_large_as_a_fault(tmp_path):
    evaluate(tmp_path, EDGES)
    assert check(tmp_path).verdict == "not sure"
    assert check(tmp_path, max_severity=0.4).verdict == "passed"
    evaluate(tmp_path, EDGES.as_fault())
    assert check(tmp_path).verdict == "failed"
    evaluate(tmp_path, replace(EDGES, states=("suspected", "confirmed")))
    evaluate(tmp_path, replace(EDGES, states=("suspected", "confirmed")), epoch=4)
    assert check(tmp_path).verdict == "passed"
    assert check(tmp_path, fail_after=1).verdict == "not sure"


def test_the_keys_of_a_named_monitor_are_known(tmp_path):
    scalars = {f"val/relevance/mine/{key.partition('/')[2]}": value for key, value in ENOUGH.items()}
    assert check(evaluate(tmp_path, scalars=scalars))


def altered(folder, change):
    """Change the finding in the last of three lines."""
    for epoch in range(3):
        evaluate(folder, GRAVE, epoch=epoch)
    path = folder / "events.jsonl"
    *first, last = path.read_text(encoding="utf-8").splitlines()
    event = json.loads(last)
    change(event["findings"][0])
    path.write_text("\n".join([*first, json.dumps(event)]) + "\n", encoding="utf-8")


def without(name):
    return lambda one: one.pop(name)


def with_value(**values):
    return lambda one: one.update(values)


# Each passed, with "severity 0.00", though the same line says 0.40.
@pytest.mark.parametrize(("change", "says"), [
    (with_value(state="CONFIRMED"), "a finding in the unknown state 'CONFIRMED'"),
    (with_value(state="relies"), "unknown state"),
    (with_value(state=None), "unknown state"),
    (with_value(state=["confirmed"]), "unknown state"),
    (with_value(states=["confirmed", "fault"]), "unknown state 'fault'"),
    (with_value(states="confirmed"), "cannot be read"),
    (with_value(scope_kind="subset"), "a finding on the unknown scope 'subset'"),
    (with_value(scope_kind=3), "unknown scope"),
    (with_value(state="suspected"), "whose severity 0.4 is not that of its state"),
    (with_value(severity=0.9), "whose severity 0.9 is not that of its state and effect"),
    (with_value(severity="high"), "whose severity 'high'"),
    (without("kind"), "a finding without kind"),
    (without("state"), "a finding without state"),
    (without("scope"), "a finding without scope"),
    (without("target"), "a finding without target"),
    (without("intervention"), "a confirmed finding without its effect"),
    (with_value(intervention={"effect": 0.4}), "a finding that cannot be read"),
    (with_value(intervention={"effect": "0.4", "interval": [0, 1], "reference": 0, "p_value": 0, "samples": 9}), ""),
    (with_value(intervention=[1]), "a finding that cannot be read"),
    (with_value(also=[{"kind": "a"}]), "a finding without scope"),
    (with_value(also=[3]), "a finding that is none"),
    (with_value(part={"kind": 3}), ""),
    (with_value(worst_samples=3), "a finding that cannot be read"),
])  # fmt: skip
def test_a_finding_that_cannot_be_read_does_not_pass(change, says, tmp_path, capsys):
    altered(tmp_path, change)
    code, line = status(capsys, tmp_path)
    assert code in ((UNREADABLE,) if says else (UNREADABLE, FAILED))
    assert says in line


# What its record calls a fault is one, whatever this version knows of its kind.
@pytest.mark.parametrize("change", [
    with_value(kind="of_another_version"),
    with_value(may_be_evidence=True),
    with_value(is_fault=False),
    without("is_fault"),
    without("severity"),
    without("states"),
    with_value(of_another_version=[1]),
])  # fmt: skip
def test_a_finding_of_another_version_fails_all_the_same(change, tmp_path, capsys):
    altered(tmp_path, change)
    assert status(capsys, tmp_path)[0] == FAILED


LINE = '{"epoch": 1, "step": 10, "scalars": {}, "findings": []}'


@pytest.mark.parametrize(("line", "says"), [
    ("{half", "no evaluation"),
    ('{"epoch": 2, "step": 20, "scalars": {"relevance/sever', "no evaluation"),
    ("[]", "no evaluation"),
    ("null", "no evaluation"),
    ('{"epoch": true, "step": 3, "scalars": {}, "findings": []}', "no evaluation"),
    ('{"epoch": 1.5, "step": 3, "scalars": {}, "findings": []}', "no evaluation"),
    ('{"step": 3, "scalars": {}, "findings": []}', "no evaluation"),
    ('{"epoch": 1, "step": 3, "findings": []}', "an evaluation without its scalars"),
    ('{"epoch": 1, "step": 3, "scalars": {"a": "b"}, "findings": []}', "an evaluation without its scalars"),
    ('{"epoch": 1, "step": 3, "scalars": {}}', "an evaluation without its findings"),
    ('{"epoch": 1, "step": 3, "scalars": {}, "findings": {"a": 1}}', "an evaluation without its findings"),
    ('{"epoch": 1, "step": 3, "scalars": {}, "findings": [3]}', "a finding that is none"),
    ('{"epoch": 1, "step": 3, "scalars": {}, "findings": [], "power": {"tells": 1}}', "power of an unknown form"),
    ('{"epoch": 1, "step": 3, "scalars": {}, "findings": [], "hints": 3}', "hints of an unknown form"),
    ('{"epoch": 1, "step": 3, "scalars": {}, "findings": [], "continued_after": "a"}', "an unknown continued_after"),
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
    assert "Exit with 0 if a run passes, 1 if a finding is graver than allowed, 3 if nobody can say, 4 if" in said
