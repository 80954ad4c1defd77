"""Training on swaps of what the monitor of the same run finds."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from guided import annotated_data, fit, sgd_module, weights
from guided_loops import LOOPS
from setting import data, vit
from test_guidance_cues import step_by_hand
from test_guidance_gradients import EXACT, assert_close
from test_guidance_text_swaps import LANGUAGE
from torch import Tensor, nn

import lrptrain
from lrptrain.callbacks import RelevanceGuidance
from lrptrain.cues.family import Family
from lrptrain.cues.followed import Known, note_known
from lrptrain.cues.places import places
from lrptrain.cues.surroundings import Surroundings

BORDER = places("shortcut", "outside")[0]
FINDINGS: dict[str, Any] = {"loss": "swap", "swap": "findings", "on_error": "raise"}
STEPPED = [name for name in LOOPS if name != "a line"]


def unannotated() -> dict[str, Tensor]:
    return {name: x for name, x in annotated_data().items() if name != "mask"}


@pytest.mark.parametrize("beside", [False, True])
def test_a_step_is_that_of_what_the_runs_own_monitor_has_found(beside, tmp_path):
    net = vit().double()
    note_known(net, Known((BORDER,), 1))
    options = FINDINGS | ({"swap": ["outside", "findings"]} if beside else {})
    trained, guided = LOOPS["a step"](net, annotated_data(), options, 6, 1, tmp_path)
    assert_close(trained, step_by_hand([Surroundings(), BORDER] if beside else [BORDER], annotated_data()), EXACT)
    assert guided.values["guidance/swapped"] == guided.values["guidance/samples"] == 6


@pytest.mark.parametrize("columns", [annotated_data(), unannotated()], ids=["annotated", "not"])
def test_while_nothing_is_found_weights_are_those_of_plain_training(columns, tmp_path):
    plain, _ = LOOPS["a step"](vit().double(), columns, None, 3, 1, tmp_path)
    net = vit().double()
    note_known(net, Known((), 1))
    trained, guided = LOOPS["a step"](net, columns, FINDINGS, 3, 1, tmp_path)
    assert all(torch.equal(trained[name], plain[name]) for name in plain)
    assert guided.failures == 0


def test_without_a_monitor_the_first_step_is_refused(tmp_path):
    with pytest.raises(ValueError, match="none watches this model"):
        LOOPS["Lightning"](vit().double(), unannotated(), FINDINGS, 6, 1, tmp_path)


def test_without_annotations_faults_outside_of_them_are_not_swapped_and_that_is_said_once():
    said: list[str] = []
    net: nn.Module = vit().double()
    note_known(net, Known((BORDER,), 1))
    guidance = lrptrain.Guidance(**FINDINGS)
    guidance.state.messages.send = said.append
    for columns in (unannotated(), unannotated(), annotated_data()):
        with guidance.step(net, columns) as step:
            step.guided(F.cross_entropy(net(columns["image"]), columns["label"]))
    assert sum("batches without any are not swapped" in line for line in said) == 1
    assert guidance.values["guidance/swapped"] == 6


def test_losses_go_by_what_is_found_too(tmp_path):
    trained = sgd_module()
    note_known(trained.net, Known((BORDER,), 1))
    guidance = RelevanceGuidance("consistency+energy", swap="findings", on_error="raise")
    fit(tmp_path, trained, annotated_data(), guidance)
    assert guidance.guidance.values["guidance/samples"] == 6
    assert guidance.guidance.values["guidance/consistency"] > 0
    plain = sgd_module()
    fit(tmp_path, plain, annotated_data())
    assert not torch.allclose(weights(trained.net)["head.weight"], weights(plain.net)["head.weight"], atol=1e-9)


def test_a_resumed_run_swaps_what_was_found_before():
    net: nn.Module = vit()
    note_known(net, Known((BORDER,), 1))

    def stepped(guidance: lrptrain.Guidance) -> None:
        with guidance.step(net, data(6)) as step:
            step.guided(F.cross_entropy(net(data(6)["image"]), data(6)["label"]))

    guidance = lrptrain.Guidance(**FINDINGS)
    stepped(guidance)
    resumed = lrptrain.Guidance(**FINDINGS)
    resumed.load_state_dict(guidance.state_dict())
    note_known(net, Known((), 1))  # the model has lost it by now
    stepped(resumed)
    assert resumed.values["guidance/swapped"] == 6


@pytest.mark.parametrize("flips_at_once", [False, True])
def test_what_cannot_be_swapped_is_refused_at_first_and_a_warning_later(flips_at_once, tmp_path):
    """A step that flips its images moves them away from where their annotations are."""
    pl_module = sgd_module()
    note_known(pl_module, Known((), 1))

    def flipping(batch, batch_idx):
        images = batch["image"].flip(-1) if batch_idx or flips_at_once else batch["image"]
        if batch_idx == 1:
            note_known(pl_module, Known((BORDER,), 2))
        return F.cross_entropy(pl_module(images), batch["label"])

    pl_module.training_step = flipping
    guidance = RelevanceGuidance("swap", swap="findings")
    if flips_at_once:  # though nothing is swapped yet
        with pytest.raises(ValueError, match="flipped or turned"):
            fit(tmp_path, pl_module, annotated_data(), guidance)
        return
    with pytest.warns(UserWarning, match="flipped or turned"):
        fit(tmp_path, pl_module, annotated_data(), guidance, batch_size=2, max_epochs=2)
    assert guidance.failures > 0


def test_a_loss_may_wait_for_the_first_finding(tmp_path):
    pl_module = sgd_module()
    note_known(pl_module, Known((), 1))
    guidance = RelevanceGuidance("consistency", swap="findings", on_error="raise")
    fit(tmp_path, pl_module, unannotated(), guidance)
    assert guidance.failures == 0


def test_a_batch_of_another_kind_than_the_findings_is_refused_before_the_first_step(tmp_path):
    cue = Family.of("numbers", "unreviewed", LANGUAGE)
    with pytest.raises(ValueError, match="the numbers is one of texts, and the batch has"):
        fit(tmp_path, sgd_module(), unannotated(), RelevanceGuidance("swap", swap=cue))
