"""With and without the monitor, training is the same to the last bit."""

import random

import numpy as np
import pytest
import torch
from examples import assert_same
from setting import PACKAGES, data, loader, module, monitor, no_graph_left, trainer, vit


def outcome(folder, attached, module_options=None, package=PACKAGES[0], freeze=False, stays=False, **options):
    """Everything that training leaves behind."""
    pl_module = module(package, vit(**(module_options or {})))
    if freeze:
        pl_module.net.patch_embed.requires_grad_(False)
        pl_module.net.blocks[0].requires_grad_(False)
    if stays:  # dropout is active in validation too, so that the monitor draws random numbers
        pl_module.on_validation_model_eval = lambda: None
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    runner = trainer(folder, *attached, package=package, **options)
    runner.fit(pl_module, loader(data(20), shuffle=True), loader())
    return {
        "weights": pl_module.state_dict(),
        "gradients": {name: p.grad for name, p in pl_module.named_parameters() if p.grad is not None},
        "optimizer": runner.optimizers[0].state_dict(),
        "flags": {name: each.training for name, each in pl_module.named_modules()},
        "attributes": {name: sorted(vars(each)) for name, each in pl_module.named_modules()},
        "torch": torch.get_rng_state(),
        "numpy": list(np.random.get_state(legacy=True))[1:3],
        "python": random.getstate(),
    }


CASES: dict[str, dict] = {
    "dropout in validation": {
        "module_options": {"proj_drop_rate": 0.2, "attn_drop_rate": 0.2, "drop_path_rate": 0.2},
        "stays": True,
    },
    "accumulation across a validation": {"accumulate_grad_batches": 3, "val_check_interval": 2},
    "bf16 autocast": {"precision": "bf16-mixed"},
    "frozen layers": {"freeze": True},
    "clipping": {"gradient_clip_val": 0.1, "num_sanity_val_steps": 0},
    "lightning.pytorch": {"package": PACKAGES[1], "module_options": {"proj_drop_rate": 0.2}},
}


@pytest.mark.filterwarnings("ignore:the model is in train mode")  # "dropout in validation" is
@pytest.mark.parametrize("case", [case for case in CASES if case not in ("bf16 autocast", "lightning.pytorch")])
def test_training_is_the_same_to_the_bit(case, tmp_path):
    watching = monitor(on_error="raise", max_pictures=1)
    with_monitor = outcome(tmp_path, [watching], **CASES[case])
    assert watching.failures == 0
    assert len(watching.scored) == 8
    assert_same(outcome(tmp_path, [], **CASES[case]), with_monitor)


@pytest.mark.parametrize(("package", "inference_mode"), [(PACKAGES[1], False)])
def test_validation_leaves_the_model_as_it_was(package, inference_mode, tmp_path):
    pl_module, watching = module(package), monitor(on_error="raise")
    before = {name: value.clone() for name, value in pl_module.state_dict().items()}
    states = []
    for attached in ([], [watching]):
        torch.manual_seed(3), np.random.seed(3), random.seed(3)
        runner = trainer(tmp_path, *attached, package=package, inference_mode=inference_mode)
        runner.validate(pl_module, loader(), verbose=False)
        states.append([torch.get_rng_state(), list(np.random.get_state(legacy=True))[1:3], random.getstate()])
    assert_same(*states)
    assert_same(before, dict(pl_module.state_dict()))
    assert all(p.grad is None and not p.is_inference() for p in pl_module.parameters())
    assert all(
        not value.is_inference() for one in watching.core.reader.sample.samples for value in one.tensors.values()
    )
    assert runner.callback_metrics["relevance/samples"] == 8


def test_nothing_of_an_evaluation_stays_alive(tmp_path):
    with no_graph_left():
        pl_module = module()
        watching = monitor(on_error="raise")
        trainer(tmp_path, watching, max_epochs=1).fit(pl_module, loader(), loader())
    assert all(not one.sample.tensors for one in watching.scored)
    assert all(x.device.type == "cpu" and not x.requires_grad for one in watching.scored for x in one.maps.values())


def test_a_failure_keeps_no_graph_alive(tmp_path):
    import gc

    watching = monitor()
    kept = []

    def fails(*arguments, **options):
        x = torch.ones(3, requires_grad=True) * 2
        kept.append(__import__("weakref").ref(x))
        raise RuntimeError("out of memory")

    watching.core.explainer.evaluator = fails
    gc.disable()
    try:
        with pytest.warns(UserWarning, match="out of memory"):
            trainer(tmp_path, watching, max_epochs=1, num_sanity_val_steps=0).fit(module(), loader(), loader())
        assert kept[0]() is None
    finally:
        gc.enable()
