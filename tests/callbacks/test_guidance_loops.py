"""Guidance does the same in every trainer and in loops of one's own."""

from typing import Any

import pytest
import torch
from guided import NanBackward, annotated_data, by_hand, weights
from guided_loops import LOOPS
from setting import vit
from test_guidance_gradients import EXACT, assert_close

from lrptrain.guidance import MAP_LOSSES


@pytest.fixture(params=LOOPS)
def loop(request):
    return request.param


@pytest.fixture
def trained(loop, tmp_path):
    """Trains a network, and returns its weights and the guidance; without options there is none."""

    def train(columns, options=None, net=None, size=6, accumulate=1):
        defaults = {"loss": "energy", "weight": 0.5, "on_error": "raise"}
        chosen = None if options is None else {**defaults, **options}
        return LOOPS[loop](vit().double() if net is None else net, columns, chosen, size, accumulate, tmp_path)

    return train


def test_one_step_is_that_of_plain_pytorch(trained):
    columns = annotated_data()
    after, guidance = trained(columns, {"loss": "consistency+energy"})
    assert_close(after, by_hand(columns, names="consistency+energy"))
    assert guidance.failures == guidance.skipped == guidance.left_out == 0


def test_accumulated_batches_are_one_large_batch(trained):
    columns = annotated_data(12)
    halves, _ = trained(columns, {}, accumulate=2)
    assert_close(halves, by_hand(columns, names="energy"))


def test_the_task_bounds_the_guidance(trained, loop):
    if loop == "a line":
        with pytest.raises(ValueError, match="which a call with model and batch does not know: pass weight="):
            trained(annotated_data(), {"weight": None})
        return
    columns = annotated_data(12)
    after, _ = trained(columns, {"weight": None})
    expected, _ = LOOPS["Lightning"](vit().double(), columns, {"loss": "energy", "on_error": "raise"}, 6, 1, None)
    assert_close(after, expected, EXACT)


def test_checkpointed_blocks(trained, loop):
    columns, net = annotated_data(), vit().double()
    net.set_grad_checkpointing()
    if loop == "a line":
        with pytest.raises(ValueError, match=r"computes its blocks again.*with guidance.step"):
            trained(columns, {}, net)
        return
    assert_close(trained(columns, {"loss": "consistency+energy"}, net)[0], by_hand(columns, names="consistency+energy"))


@pytest.mark.filterwarnings("ignore:Found .* in eval mode at the start of training")
def test_modes_and_random_states_are_left_alone(trained):
    """Dropout in a guided step draws what it draws in a plain one."""
    after = []
    choices: tuple[dict[str, Any] | None, ...] = (None, {})
    for options in choices:
        torch.manual_seed(3)
        net = vit(proj_drop_rate=0.5).double()
        net.blocks[0].eval()
        trained(annotated_data(), options, net)
        after.append((torch.get_rng_state(), {name: each.training for name, each in net.named_modules()}))
    assert torch.equal(after[0][0], after[1][0])
    assert after[0][1] == after[1][1]


def test_a_wrong_setting_is_told_before_the_first_step(trained):
    columns, net = annotated_data(), vit().double()
    del columns["mask"]
    with pytest.raises(ValueError, match="no annotation of images in a batch with"):
        trained(columns, {"on_error": "warn"}, net)
    assert_close(weights(net), weights(vit().double()), 0.0)
    assert "forward" not in vars(net)


def test_a_gradient_that_is_not_finite_is_dropped(trained, monkeypatch):
    monkeypatch.setitem(MAP_LOSSES, "energy", lambda scores, annotation: NanBackward.apply(scores.sum(-1)))
    after, guidance = trained(annotated_data(), {"compare_every_n_batches": 0})
    assert guidance.skipped == 1
    assert_close(after, weights(vit().double()), 0.0)
