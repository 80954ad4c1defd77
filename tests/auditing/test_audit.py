import copy
import json
import random
import re
import time
from types import SimpleNamespace

import numpy as np
import own_vision
import pytest
import torch
from audited import DECIDING, METHODS, QUICK, Constant, batches, model, only
from torch import nn

import lrptrain
from lrptrain.auditing import AuditSettings, registered_tests
from lrptrain.auditing import audit as module
from lrptrain.auditing.audit import run_audit

NAMES = [test.name for test in registered_tests()]


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """An audit with every test, and its folder."""
    folder = tmp_path_factory.mktemp("audit")
    return run_audit(model(), batches(), METHODS, budget=600, folder=folder, settings=QUICK), folder


def test_every_test_is_run_on_all_it_is_of(complete):
    result, _ = complete
    problems = {unit.title: unit.problem for unit in result.units if unit.problem}
    assert problems == {"localisation": "not run: no sample has a mask, boxes or a rationale"}
    ran = [unit.test for unit in result.units]
    assert list(dict.fromkeys(ran)) == [*DECIDING, *(name for name in NAMES if name not in DECIDING)]
    # Method by method: a budget that ends amid them has judged the first ones.
    assert [(unit.test, unit.unit) for unit in result.units[: 3 * len(METHODS)]] == [
        (test, method) for method in METHODS for test in DECIDING
    ]
    counts = {"perturbation": 3, "cost": 3, "agreement": 1}
    assert {test: ran.count(test) for test in counts} == counts
    assert {verdict.method: verdict.faithful for verdict in result.verdicts}["random"] == "no"
    assert "not judged" not in [verdict.faithful for verdict in result.verdicts]
    assert result.notes == ()


def test_it_is_taken_up_where_it_was_left(complete):
    first, folder = complete
    path = folder / "units.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(lines[:7]) + "\n", encoding="utf-8")
    again = run_audit(model(), batches(), METHODS, budget=0, folder=folder, settings=QUICK)
    assert [unit.values for unit in again.units[:7]] == [unit.values for unit in first.units[:7]]
    assert all("budget" in unit.problem for unit in again.units[7:] if unit.test != "localisation")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    third = run_audit(model(), batches(), METHODS, budget=0, folder=folder, settings=QUICK)
    assert third.verdicts == first.verdicts
    other = run_audit(model(), batches(sizes=(5, 4)), METHODS, budget=0, folder=folder, settings=QUICK)
    assert not any(unit.values for unit in other.units)


def test_a_budget_too_small_is_named_and_judges_nothing():
    result = run_audit(model(), batches(), METHODS, budget=1e-6, settings=QUICK)
    assert all("not run" in unit.problem for unit in result.units)
    assert {verdict.faithful for verdict in result.verdicts} == {"not judged"}
    assert "the budget of 1e-06 s is used up" in result.verdicts[0].reasons[0]


def test_what_would_not_fit_is_left_out_before_it_starts():
    settings = AuditSettings(random_maps=10**6, tests=["perturbation", "agreement"])
    result = run_audit(model(), batches(), METHODS, budget=12, settings=settings)
    problems = {unit.test: unit.problem for unit in result.units}
    assert problems["agreement"] == ""
    assert "raise the budget" in problems["perturbation"]
    assert result.seconds < 12


class Slow(nn.Module):
    """Takes its time for each sample."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.net = model()
        self.seconds = seconds

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds * len(image))
        return self.net(image)


@pytest.mark.parametrize("budget", [0.5, 2.0])
def test_a_budget_is_kept_and_says_what_it_could_judge(budget):
    net = Slow(0.01)
    started = time.monotonic()
    result = run_audit(net, batches(sizes=(8, 8)), METHODS, budget=budget, settings=QUICK)
    # A pass of 8 samples that has begun, and what is computed behind it.
    assert time.monotonic() - started < budget + 1.0
    assert result.seconds < budget + 1.0
    judged = sum(verdict.faithful != "not judged" for verdict in result.verdicts)
    (note,) = (note for note in result.notes if "methods were judged" in note)
    assert note.startswith(f"{judged} of 3 methods were judged in {budget:g} s")
    assert note.endswith("raise budget.")
    assert not net._forward_pre_hooks


def test_the_advice_of_a_small_budget_leads_to_a_verdict(monkeypatch):
    """One method's verdict takes what the note of an audit says that has judged one of two; passes alone take time."""
    net = Slow(0.1)
    now = [0.0]
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now[-1] + seconds))
    monkeypatch.setattr("lrptrain.auditing.audit.time", SimpleNamespace(monotonic=lambda: now[-1]))
    options = {"settings": only(*DECIDING)}
    one = run_audit(net, batches(sizes=(8, 8)), METHODS[:1], budget=60000, **options)
    first = run_audit(net, batches(sizes=(8, 8)), METHODS, budget=1.5 * one.seconds, **options)
    assert first.verdicts[0].faithful != "not judged"
    (note,) = (note for note in first.notes if "methods were judged" in note)
    assert re.match(
        r"[12] of 3 methods were judged in .* s: a verdict on one takes about \d+ s on 16 samples, and", note
    )
    advised = float(note.partition("takes about ")[2].partition(" s")[0])
    assert one.seconds / 5 <= advised <= one.seconds, "random orders are shared"
    budget = 1.5 * one.seconds + 2 * advised
    every = run_audit(net, batches(sizes=(8, 8)), METHODS, budget=budget, **options)
    assert "not judged" not in [verdict.faithful for verdict in every.verdicts]
    assert not [note for note in every.notes if "methods were judged" in note]


def test_a_trial_that_is_too_long_is_cut_off_and_made_once():
    """Of two samples of 16, for which a batch of 8 may take half of the time at most."""
    net = Slow(0.02)
    result = run_audit(net, batches(sizes=(8, 8)), METHODS, budget=1.5, settings=only("leave_one_out"))
    assert result.seconds < 1.5
    assert {unit.problem.partition(",")[0] for unit in result.units} == {"not run: it takes more"}


def test_the_clock_may_have_begun_before():
    started = time.monotonic() - 61
    result = run_audit(model(), batches(), METHODS, budget=60, settings=only(*DECIDING), started=started)
    assert all("the budget of 60 s is used up" in unit.problem for unit in result.units)


def test_model_and_random_state_are_as_before():
    net = model("bert").train()
    net.bert.embeddings.requires_grad_(False)
    before = copy.deepcopy(net.state_dict())
    flags = [(module.training, sorted(vars(module))) for module in net.modules()]
    samples = batches("bert")
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index]
    with torch.inference_mode():
        result = run_audit(net, samples, METHODS, budget=600, settings=QUICK)
    assert [unit.test for unit in result.units if unit.problem] == ["localisation"]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [(module.training, sorted(vars(module))) for module in net.modules()] == flags
    assert all(parameter.grad is None and not parameter.is_inference() for parameter in net.parameters())
    assert [name for name, p in net.named_parameters() if not p.requires_grad] == [
        f"bert.embeddings.{name}" for name, _ in net.bert.embeddings.named_parameters()
    ]
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()  # type: ignore[index]


def test_constant_predictions_are_noted_and_not_judged():
    result = run_audit(Constant(), batches(), METHODS, budget=600, settings=only("perturbation", "randomisation"))
    assert {verdict.faithful for verdict in result.verdicts} == {"not judged"}
    assert "predicts class 2 for all samples" in result.verdicts[0].reasons[0]
    assert any("predicts class 2" in note for note in result.notes)


def test_one_sample_in_all():
    result = run_audit(model(), batches(sizes=(1,)), METHODS, budget=60, settings=QUICK)
    assert {verdict.faithful for verdict in result.verdicts} <= {"not judged"}
    assert any("1 sample is too few" in note for note in result.notes)


def test_a_class_without_samples_is_noted():
    result = run_audit(model(), batches(classes=3), ["random"], budget=600, settings=only("perturbation"))
    assert result.notes == ("There is no sample of class 3, 4: the results say nothing about it.",)


def test_a_failure_costs_one_unit_and_obstacles_are_named():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 5)).double()
    result = run_audit(net, batches(), ["raw_attention"], budget=600, settings=QUICK)
    problems = {unit.title: unit.problem for unit in result.units}
    assert problems["perturbation of raw_attention"].startswith("not possible here: ")
    assert problems["agreement"] == "not run: a single method has no other one to agree with"


def test_progress_is_called_with_every_unit():
    called: list = []
    result = run_audit(
        model(), batches(), ["random"], budget=600, settings=only("perturbation"), progress=called.append
    )
    assert tuple(called) == result.units


def test_the_function_writes_its_report_and_leaves_the_model_as_it_was(tmp_path, capsys):
    net, loader = own_vision.untrained()
    net.train().backbone.patch_embed.requires_grad_(False)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    random_state = torch.get_rng_state()
    methods = ["random", "rollout", "random"]
    found = lrptrain.audit(net, loader, methods, max_samples=6, settings=QUICK, output=tmp_path, verbose=True)
    assert found.methods == ("random", "rollout")
    said = capsys.readouterr().out
    assert str(found) in said
    assert "cost of rollout" in said
    written = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert written["about"]["samples"] == 6
    assert (tmp_path / "audit.html").exists()
    assert net.backbone.training
    assert {name for name, each in net.named_parameters() if not each.requires_grad} == {
        name for name, _ in net.named_parameters() if "patch_embed" in name
    }
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_what_is_done_is_kept_when_it_is_stopped(tmp_path, monkeypatch, capsys):
    def stops(unit):
        if unit.test == "leave_one_out" and not unit.problem:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "_print_unit", stops)
    net, loader = own_vision.untrained()
    with pytest.raises(KeyboardInterrupt):
        lrptrain.audit(net, loader, ["random"], max_samples=8, settings=QUICK, output=tmp_path, verbose=True)
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert "stopped" in capsys.readouterr().out
    assert [unit["test"] for unit in results["units"] if not unit["problem"]] == ["perturbation", "leave_one_out"]
    assert results["verdicts"][0]["faithful"] != "yes"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["rolout"]}, "rollout"),
        ({"methods": []}, "methods must be a list"),
        ({"methods": "random"}, "methods must be a list"),
        ({"settings": AuditSettings(tests=["magic"])}, "unknown tests"),
        ({"budget": 0}, "budget"),
        ({"max_samples": 0}, "max_samples"),
        ({"loader": []}, "no sample"),
        ({"model": own_vision.Headless(8)}, r"pass the model itself, such as module\.backbone"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    net, loader = own_vision.untrained()
    with pytest.raises(ValueError, match=message):
        lrptrain.audit(**{"model": net, "loader": loader, "methods": METHODS, **options})


def test_an_unknown_method_is_refused_before_anything_is_run():
    with pytest.raises(lrptrain.UnsupportedMethodError):
        lrptrain.audit(torch.nn.Identity(), batches(), ["rolout"])


def test_compare_says_what_to_use_instead():
    with pytest.raises(AttributeError, match=r"lrptrain\.audit"):
        lrptrain.compare  # noqa: B018
