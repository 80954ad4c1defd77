"""A weight that destroys a run is told of, whoever runs the loop; one that does not is silent."""

import logging

import pytest
import torch
from guided import annotated_data, fit, guidance, sgd_module
from guided_loops import LOOPS
from setting import loader, messages, monitor, trainer, vit

import lrptrain
from lrptrain.guidance import dominance, strength
from lrptrain.guidance.dominance import IN_A_ROW
from lrptrain.loggers import read_events
from lrptrain.trainers.held_back import tellers

WAYS = ["Lightning", "a step", "transformers"]
SIZE = 8
EVERY_N_BATCHES = 3
"""So often gradients are compared here: less seldom than by default, as a test needs few batches then."""
BATCHES = IN_A_ROW * EVERY_N_BATCHES + 1
"""The first comparison does not count: so many batches have as many as it takes."""
KEPT = "the guidance keeps the task from being learned: its gradient is"


@pytest.fixture(autouse=True)
def frequent_comparisons(monkeypatch):
    for module in (dominance, strength):
        monkeypatch.setattr(module, "BOUND_EVERY_N_BATCHES", EVERY_N_BATCHES)


def noise(batches=BATCHES):
    """Labels that nothing in the images tells: no model answers better than by chance."""
    return annotated_data(batches * SIZE, dtype=torch.float32)


def bright(batches=BATCHES):
    """Classes that a single step of the mean brightness tells apart."""
    columns = noise(batches)
    columns["image"] += 3 * (columns["label"] - 1).view(-1, 1, 1, 1)
    return columns


def lines_of(way, columns, options, folder, caplog):
    """What is said of dominance in a training."""
    with caplog.at_level(logging.INFO), messages() as said:
        guided = LOOPS[way](vit(), columns, options, SIZE, 1, folder)[1]
    watched = getattr(guided, "guidance", guided).state.strength
    texts = {*said, *(record.getMessage() for record in caplog.records)}
    return [text for text in texts if KEPT in text], watched


@pytest.mark.parametrize("way", WAYS)
def test_a_weight_that_destroys_is_told_of(way, tmp_path, caplog):
    options = {"loss": "energy", "weight": 30.0, "on_error": "raise"}
    lines, watched = lines_of(way, noise(), options, tmp_path, caplog)
    assert len(lines) == 1
    assert "Leave out its weights" in lines[0]
    assert watched.dominance.text in lines[0]


@pytest.mark.parametrize(
    ("way", "options"),
    [
        ("transformers", {"loss": "energy", "weight": 1e-3}),
        ("a step", {"loss": "energy"}),  # bounded by the task's gradient
        ("transformers", {"loss": "energy", "weight": 30.0, "compare_every_n_batches": 0}),  # nobody is to compare
        ("Lightning", {"loss": "swap"}),  # nothing is compared
    ],
    ids=str,
)
def test_what_does_not_dominate_is_silent(way, options, tmp_path, caplog):
    assert lines_of(way, noise(), {**options, "on_error": "raise"}, tmp_path, caplog)[0] == []


def test_a_model_that_learns_is_left_alone(tmp_path, caplog):
    options = {"loss": {"l1": 30.0}, "on_error": "raise"}
    lines, watched = lines_of("a step", bright(), options, tmp_path, caplog)
    assert lines == []
    assert watched.dominance.watches
    assert not watched.dominance.compares(0)  # it is learned: nothing more is paid


def test_swaps_alone_have_no_weight_that_could_be_watched():
    assert not lrptrain.Guidance("swap").state.strength.dominance.watches
    assert lrptrain.Guidance({"swap": 1.0, "energy": 1.0}).state.strength.dominance.watches


def test_a_call_in_one_line_knows_no_task_to_compare_with(tmp_path, caplog):
    lines, watched = lines_of("a line", noise(), {"loss": "energy", "weight": 30.0}, tmp_path, caplog)
    assert lines == []
    assert not watched.dominance.watches


def test_the_page_and_the_end_of_the_run_say_so(tmp_path):
    columns = noise()
    pl_module = sgd_module(vit())
    type(pl_module).validation_step = lambda self, batch, batch_idx: None
    watch = monitor(max_samples=24)
    runner = trainer(tmp_path, guidance(weight=30.0), watch, max_epochs=1)
    with messages() as said:
        runner.fit(pl_module, loader(columns, SIZE), loader(noise(6), SIZE))
    said = [" ".join(line.split()) for line in said]
    assert sum(KEPT in line for line in said) == 2  # as soon as it is seen, and at the end
    assert any(f"ends: NOT LEARNED: {KEPT}" in line for line in said)
    power = read_events(watch.folder)[-1]["power"]
    assert power["collapsed"]
    assert KEPT in power["text"]


def test_another_run_of_the_model_does_not_hear_of_it(tmp_path):
    net = vit()
    pl_module = sgd_module(net)
    guided = guidance(weight=30.0)
    fit(tmp_path, pl_module, noise(), guided, batch_size=SIZE)
    (teller,) = tellers(pl_module)
    assert KEPT in teller.text
    guided.guidance.start_over()
    assert teller.text == ""
