import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import lrptrain
from lrptrain.auditing import AuditSettings
from lrptrain.auditing import audit as module
from lrptrain.cli import main
from lrptrain.cli.audit import CliAuditSettings, audit_checkpoint

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*logging interval:UserWarning"),
]


def run(checkpoint: str, folder: Path, *options: str) -> dict:
    main(["audit", checkpoint, f"--output={folder}", "--device=cpu", *options])
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


QUICK = {"random_maps": 1, "stages": 1}
OPTIONS = (
    "--methods=raw_attention, random,random",
    "--max-samples=10",
    *(f"--settings.{name}={value}" for name, value in QUICK.items()),
)


def test_a_checkpoint_is_audited_and_taken_up_again(digits, tmp_path, capsys):
    results = run(digits, tmp_path, *OPTIONS, "--budget=600")
    assert results["methods"] == ["raw_attention", "random"]
    assert results["about"]["samples"] == 10
    units = {(unit["test"], unit["of"]): unit for unit in results["units"]}
    assert not [unit["problem"] for unit in units.values() if unit["problem"]]
    assert ("leave_one_out", "random") in units
    said, saved = capsys.readouterr().out, (tmp_path / "audit.md").read_text(encoding="utf-8")
    assert "perturbation of raw_attention" in said
    assert saved in said
    assert "random: faithful on this model: no" in saved or "random: faithful on this model: not judged" in saved
    again = run(digits, tmp_path, *OPTIONS, "--budget=1e-6")
    assert {(unit["test"], unit["of"]): unit for unit in again["units"]} == units


def test_what_is_done_is_kept_when_it_is_stopped(digits, tmp_path, monkeypatch, capsys):
    def stops(unit):
        if unit.test == "leave_one_out" and not unit.problem:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "_print_unit", stops)
    with pytest.raises(SystemExit) as ended:
        run(digits, tmp_path, *OPTIONS)
    assert ended.value.code == 130
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert "stopped" in capsys.readouterr().out
    done = [unit["test"] for unit in results["units"] if not unit["problem"]]
    assert done == ["perturbation", "leave_one_out"]
    assert results["verdicts"][0]["faithful"] != "yes"


def test_the_options_of_the_command_line_are_the_settings():
    def declared(settings: Any) -> set[Any]:
        return {(each.name, each.type, each.default) for each in fields(settings)}

    assert declared(CliAuditSettings) == declared(AuditSettings)
    said, meant = ((each.__doc__ or "").partition("Attributes:")[2] for each in (CliAuditSettings, AuditSettings))
    assert said == meant
    text = " ".join((audit_checkpoint.__doc__ or "").replace(" and ", ", ").split())
    assert f"else {', '.join(module.AUDITED_METHODS)}." in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": "rolout"}, "rollout"),
        ({"budget": 0}, "budget must be a positive"),
        ({"max_samples": 0}, "max_samples"),
        ({"tests": "perturbations"}, "unknown tests"),
    ],
)
def test_wrong_arguments_are_told(digits, options, message):
    with pytest.raises(ValueError, match=message):
        audit_checkpoint(digits, **options)
    with pytest.raises(lrptrain.UnsupportedMethodError):
        audit_checkpoint(digits, methods="magic")
