import copy
import random
import re
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from audited import METHODS, QUICK, Constant, batches, model
from torch import nn

import lrptrain
from lrptrain.auditing import AuditSettings, registered_tests, run_audit

NAMES = [test.name for test in registered_tests()]
DECIDING = ["perturbation", "leave_one_out", "randomisation"]


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """An audit with every test, and its folder."""
    folder = tmp_path_factory.mktemp("audit")
    return run_audit(model(), batches(), METHODS, budget=600, folder=folder, settings=QUICK), folder


def test_every_test_is_run_on_all_it_is_of(complete):
    result, _ = complete
    assert not [unit for unit in result.units if unit.problem]
    ran = [unit.test for unit in result.units]
    assert list(dict.fromkeys(ran)) == [*DECIDING, *(name for name in NAMES if name not in DECIDING)]
    # Method by method: a budget that ends amid them has judged the first ones.
    assert [(unit.test, unit.unit) for unit in result.units[: 3 * len(METHODS)]] == [
        (test, method) for method in METHODS for test in DECIDING
    ]
    counts = {"perturbation": 3, "leave_one_out": 3, "agreement": 1}
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
    assert all("budget" in unit.problem for unit in again.units[7:])
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
    settings = AuditSettings(random_maps=10**6)
    result = run_audit(model(), batches(), METHODS, budget=12, settings=settings, tests=["perturbation", "agreement"])
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
    options = {"settings": QUICK, "tests": DECIDING}
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
    result = run_audit(net, batches(sizes=(8, 8)), METHODS, budget=1.5, settings=QUICK, tests=["leave_one_out"])
    assert result.seconds < 1.5
    assert {unit.problem.partition(",")[0] for unit in result.units} == {"not run: it takes more"}


def test_the_clock_may_have_begun_before():
    started = time.monotonic() - 61
    result = run_audit(model(), batches(), METHODS, budget=60, settings=QUICK, started=started, tests=DECIDING)
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
    assert {unit.problem for unit in result.units} == {""}
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
    result = run_audit(Constant(), batches(), METHODS, settings=QUICK, tests=["perturbation", "randomisation"])
    assert {verdict.faithful for verdict in result.verdicts} == {"not judged"}
    assert "predicts class 2 for all samples" in result.verdicts[0].reasons[0]
    assert any("predicts class 2" in note for note in result.notes)


def test_one_sample_in_all():
    result = run_audit(model(), batches(sizes=(1,)), METHODS, budget=60, settings=QUICK)
    assert {verdict.faithful for verdict in result.verdicts} <= {"not judged"}
    assert any("1 sample is too few" in note for note in result.notes)


def test_a_class_without_samples_is_noted():
    result = run_audit(model(), batches(classes=3), ["random"], settings=QUICK, tests=["perturbation"])
    assert result.notes == ("There is no sample of class 3, 4: the results say nothing about it.",)


def test_a_failure_costs_one_unit_and_obstacles_are_named():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 5)).double()
    problems = {unit.title: unit.problem for unit in run_audit(net, batches(), ["raw_attention"], settings=QUICK).units}
    assert problems["perturbation of raw_attention"].startswith("not possible here: ")
    assert problems["agreement"] == "not run: a single method has no other one to agree with"


def test_progress_is_called_with_every_unit():
    called: list = []
    result = run_audit(model(), batches(), ["random"], settings=QUICK, tests=["perturbation"], progress=called.append)
    assert tuple(called) == result.units


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["magic"]}, "unknown method 'magic'"),
        ({"methods": []}, "at least one method"),
        ({"tests": ["magic"]}, "unknown tests"),
        ({"budget": -1}, "budget"),
        ({"batches": []}, "contain none"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    arguments = {"batches": batches(), "methods": METHODS, **options}
    with pytest.raises(ValueError, match=message):
        run_audit(model(), **arguments)


def test_an_unknown_method_is_refused_before_anything_is_run():
    with pytest.raises(lrptrain.UnsupportedMethodError):
        run_audit(torch.nn.Identity(), batches(), ["rolout"])
