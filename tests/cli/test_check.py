from dataclasses import replace

import pytest
from examples import finding

from lrptrain.cli import main
from lrptrain.cli.check import check_run as check
from lrptrain.findings import OVERALL, Evidence
from lrptrain.loggers import EpochRecord, write_record

GRAVE = replace(finding(scope=OVERALL), state="confirmed", intervention=Evidence(0.4, (0.3, 0.5), 0.1, 0.001, 20))


def run(folder, *findings):
    write_record(folder, EpochRecord(epoch=3, step=40, findings=list(findings)))
    return str(folder)


def test_a_grave_finding_fails(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        check(run(tmp_path, GRAVE, finding()), max_severity=0.3)
    assert ended.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("SHORTCUT confirmed, all classes together: the model relies on")
    assert lines[-1] == "failed: 1 confirmed, 1 suspected, 0 refuted at epoch 3; severity 0.40, allowed 0.30"


@pytest.mark.parametrize("findings", [(), (finding(),), (replace(GRAVE, state="refuted"),)])
def test_what_is_not_confirmed_passes(findings, tmp_path, capsys):
    check(run(tmp_path, *findings))
    assert "passed: 0 confirmed" in capsys.readouterr().out


def test_a_finding_as_grave_as_allowed_passes(tmp_path):
    check(run(tmp_path, GRAVE), max_severity=0.4)


@pytest.mark.parametrize(("states", "options", "passes"), [
    (["confirmed"], {}, False),  # all that there is
    (["suspected", "confirmed"], {}, True),
    (["confirmed", "confirmed"], {}, False),
    (["confirmed", "refuted", "confirmed"], {}, True),
    (["suspected", "confirmed"], {"fail_after": 1}, False),
    (["suspected", "confirmed", "confirmed"], {"fail_after": 3}, True),
    ([], {}, False),  # older records do not know
])  # fmt: skip
def test_what_is_confirmed_in_two_evaluations_in_a_row_fails(states, options, passes, tmp_path, capsys):
    latest = replace(GRAVE, states=tuple(states))
    for epoch in range(len(states) or 3):
        write_record(tmp_path, EpochRecord(epoch=epoch, step=epoch, findings=[latest]))
    if passes:
        check(str(tmp_path), **options)
    else:
        with pytest.raises(SystemExit):
            check(str(tmp_path), **options)
    row = "in 2 evaluations in a row" in capsys.readouterr().out
    assert row == (not options and len(states) != 1)


def test_the_folder_may_lie_below(tmp_path):
    run(tmp_path / "relevance" / "a")
    check(str(tmp_path))
    run(tmp_path / "relevance" / "b", GRAVE)
    with pytest.raises(ValueError, match="holds 2 runs: name one of"):
        check(str(tmp_path))


def test_nothing_to_judge_is_an_error(tmp_path):
    (tmp_path / "events.jsonl").write_text("{half")
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(FileNotFoundError, match="nothing to judge"):
            check(str(folder))
    with pytest.raises(ValueError, match=r"must lie in 0\.\.1"):
        check(str(tmp_path), max_severity=2)
    with pytest.raises(ValueError, match="fail_after must be at least 1, not 0"):
        check(str(tmp_path), fail_after=0)


def test_the_command_exits_with_one(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["check", run(tmp_path, GRAVE), "--max-severity", "0.1"])
    assert ended.value.code == 1
    out, err = capsys.readouterr()
    assert "failed: 1 confirmed" in out
    assert err == ""
