"""Guidance under mixed precision, compilation, checkpointing and averaging, and beside a monitor."""

import pytest
import torch
from guided import FEW, annotated_data, by_hand, fit, guidance, sgd_module, stepped, weights
from pytorch_lightning.plugins import MixedPrecision
from setting import loader, monitor, trainer, vit
from test_guidance_gradients import SEVERAL, assert_close

from lrptrain.callbacks import RelevanceGuidance


def amp(kind, scale=2.0**8):
    """Lightning makes bf16 of fp16 on the CPU, unless it is told by a plugin."""
    scaler = torch.amp.GradScaler(device="cpu", init_scale=scale) if kind == "16-mixed" else None
    return MixedPrecision(kind, "cpu", scaler)


def moved(one, other):
    return {name: one[name] - other[name] for name in one}


def norm(rows):
    return sum(x.square().sum() for x in rows.values()).sqrt().item()


# Measured: 0.0012 and 0.032 for generic_attention, 0.006 and 0.042 for attnlrp, 0.021 and 0.1 for input_x_gradient,
# 0.014 and 0.1 for rrr.
HALF = {"16-mixed": 0.05, "bf16-mixed": 0.2}
IN_HALF = [
    ("energy", "attnlrp", "bf16-mixed"),
    ("rrr", "attnlrp", "16-mixed"),
]


@pytest.mark.parametrize(("loss", "method", "kind"), IN_HALF)
def test_half_precision_guides_as_single_does(loss, method, kind, tmp_path):
    columns, pulls = annotated_data(dtype=torch.float32), []
    for plugins in ([], [amp(kind)]):
        free = sgd_module(vit())
        fit(tmp_path, free, columns, plugins=plugins)
        guided = guidance(loss, weight=100.0 if loss == "rrr" else 1.0, method=method)
        found = stepped(tmp_path, guided, columns, vit(), plugins=[amp(kind)] if plugins else [])
        pulls.append(moved(found, weights(free.net)))
        assert guided.skipped == guided.failures == 0
    assert norm(moved(*pulls)) < HALF[kind] * norm(pulls[0])


def test_a_scaler_that_is_too_large_is_lowered(tmp_path):
    """The first steps are left out, as without guidance."""
    precision, guided = amp("16-mixed", 2.0**30), guidance()
    pl_module = sgd_module(vit())
    fit(tmp_path, pl_module, annotated_data(dtype=torch.float32), guided, plugins=[precision], max_epochs=16)
    assert precision.scaler.get_scale() < 2.0**30
    assert norm(moved(weights(pl_module.net), weights(vit()))) > 0
    assert guided.skipped == 0  # by the guidance
    assert all(x.isfinite().all() for x in weights(pl_module).values())


@pytest.mark.parametrize(
    ("losses", "method", "rows", "compare"),
    [("energy", "attnlrp", FEW, 0), ("rrr", "generic_attention", None, 1), (*SEVERAL[0], None, 1)],
)
def test_checkpointed_blocks(losses, method, rows, compare, tmp_path):
    columns, net = annotated_data(rows=rows), vit().double()
    net.set_grad_checkpointing()
    found = stepped(
        tmp_path, guidance(losses, weight=0.5, method=method, compare_every_n_batches=compare), columns, net
    )
    assert_close(found, by_hand(columns, names=losses, method=method))


@pytest.mark.parametrize(("what", "rows"), [("net", FEW), ("blocks", FEW), ("module", None)])
def test_compiled(what, rows, tmp_path):
    columns, net = annotated_data(rows=rows), vit().double()
    if what == "blocks":
        for block in net.blocks:
            block.compile(backend="aot_eager")
    pl_module = sgd_module(torch.compile(net, backend="aot_eager") if what == "net" else net)
    given = torch.compile(pl_module, backend="aot_eager") if what == "module" else pl_module
    fit(tmp_path, given, columns, guidance("consistency+energy", weight=0.5))
    assert_close(weights(net), by_hand(columns, names="consistency+energy"))


def test_averaged_weights_beside_it(tmp_path):
    from pytorch_lightning.callbacks import EMAWeightAveraging

    columns, outcomes = annotated_data(18), []
    for before in (True, False):
        averaging, guided = EMAWeightAveraging(decay=0.5), guidance(weight=0.5)
        pl_module = sgd_module()
        fit(tmp_path, pl_module, columns, *((averaging, guided) if before else (guided, averaging)), max_epochs=2)
        outcomes.append(weights(pl_module.net))
        assert "training_step" not in vars(pl_module)
    assert_close(*outcomes, tolerance=0.0)
    plain = stepped(tmp_path, guidance(weight=0.5), columns, max_epochs=2)
    assert norm(moved(outcomes[0], plain)) > 1e-9  # they are averages in the end


def test_with_a_monitor_beside_it(tmp_path):
    columns = annotated_data(12, dtype=torch.float32)
    outcomes = []
    for others in ([], [monitor(on_error="raise")]):
        pl_module = sgd_module(vit())
        type(pl_module).validation_step = lambda self, batch, batch_idx: None
        guided = RelevanceGuidance("energy", on_error="raise")
        runner = trainer(tmp_path, guided, *others, max_epochs=2)
        runner.fit(pl_module, loader(columns, 6), loader(columns, 6))
        outcomes.append(weights(pl_module))
    assert_close(*outcomes, tolerance=0.0)
    assert {"relevance/samples", "guidance/energy"} <= runner.callback_metrics.keys()
