import json
from pathlib import Path
from typing import Any

import own_vision
import pytest

import lrptrain
from lrptrain.auditing import AuditSettings
from lrptrain.auditing import audit as module
from lrptrain.cli import main
from lrptrain.cli.audit import audit_model

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*logging interval:UserWarning"),
]


QUICK = AuditSettings(random_maps=1, stages=1)


def quick() -> dict[str, Any]:
    """A model of images, and how an audit of it is soon over."""
    model, loader = own_vision.untrained()
    about = {"settings": QUICK, "methods": ["raw_attention", "random"], "max_samples": 10}
    return {"model": model, "loader": loader, **about}


def run(folder: Path, *options: str) -> dict:
    main(["audit", f"{__name__}:quick", f"--output={folder}", *options])
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def test_a_model_is_audited_as_by_the_function_and_taken_up_again(tmp_path, capsys):
    results = run(tmp_path / "command", "--budget=600")
    assert results["methods"] == ["raw_attention", "random"]
    assert results["about"]["samples"] == 10
    units = {(unit["test"], unit["of"]): unit for unit in results["units"]}
    said, saved = capsys.readouterr().out, (tmp_path / "command" / "audit.html").read_text(encoding="utf-8")
    assert "perturbation of raw_attention" in said
    assert "| random " in said
    assert "random: faithful on this model: no" in saved
    again = run(tmp_path / "command", "--budget=1e-6")
    assert {(unit["test"], unit["of"]): unit for unit in again["units"]} == units
    lrptrain.audit(**quick(), output=tmp_path / "function")
    function = json.loads((tmp_path / "function" / "results.json").read_text(encoding="utf-8"))
    values = {(unit["test"], unit["of"]): unit["values"] for unit in function["units"] if unit["test"] != "cost"}
    assert values == {key: unit["values"] for key, unit in units.items() if key[0] != "cost"}


def test_what_is_typed_counts_before_what_the_function_returns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--methods=random, random", "--tests=leave_one_out", "--max-samples=4"]
    main(["audit", *options, f"{__name__}:quick"])
    results = json.loads(Path("audit/results.json").read_text(encoding="utf-8"))
    assert results["methods"] == ["random"]
    assert results["about"]["samples"] == 4
    assert {unit["test"] for unit in results["units"]} == {"leave_one_out"}


def test_the_methods_that_the_help_names_are_those_of_the_function():
    text = " ".join((audit_model.__doc__ or "").replace(" and ", ", ").split())
    assert f"else {', '.join(module.AUDITED_METHODS)}." in text


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--methods=rolout", "unknown method 'rolout'; did you mean rollout?"),
        ("--budget=0", "budget must be a positive"),
        ("--max-samples=0", "max_samples must be"),
        ("--tests=perturbations", "unknown tests"),
    ],
)
def test_wrong_arguments_are_one_line(option, message):
    with pytest.raises(SystemExit) as ended:
        main(["audit", f"{__name__}:quick", option])
    assert str(ended.value.code).startswith("lrptrain: ")
    assert message in str(ended.value.code)
    assert "\n" not in str(ended.value.code)
