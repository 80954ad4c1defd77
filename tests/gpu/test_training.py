"""A fine-tuning in bf16-mixed of two epochs: bit-identical with and without the monitor; guided steps run."""

import pytest
import torch
from on_device import in_small
from setting import data, loader, module, monitor, trainer, vit

from lrptrain.callbacks import RelevanceGuidance


def trained(folder, device, attached, **options):
    """Weights, optimizer and random state after two epochs."""
    pl_module = module(net=vit(proj_drop_rate=0.2, attn_drop_rate=0.2))
    torch.manual_seed(1)
    accelerator = "gpu" if device.type == "cuda" else "cpu"
    runner = trainer(folder, *attached, accelerator=accelerator, precision="bf16-mixed", **options)
    runner.fit(pl_module, loader(data(20), shuffle=True), loader())
    random = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
    return {name: x.cpu() for name, x in pl_module.state_dict().items()} | {"random": random}


@pytest.mark.usefixtures("repeatable")
def test_the_monitor_changes_no_bit(device, tmp_path):
    watching = monitor(on_error="raise", max_pictures=1)
    plain = trained(tmp_path, device, [])
    again = trained(tmp_path, device, [])
    watched = trained(tmp_path, device, [watching])
    assert not [name for name in plain if not torch.equal(plain[name], again[name])], "training itself does not repeat"
    assert not [name for name in plain if not torch.equal(plain[name], watched[name])]
    assert watching.failures == 0
    assert len(watching.scored) == 8


@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize("loss", in_small(["energy", "swap", "consistency", "rrr"]))
def test_guidance(loss, device, tmp_path):
    guiding = [RelevanceGuidance(loss, on_error="raise", weight=1.0) for _ in range(2)]
    plain = trained(tmp_path, device, [])
    guided, again = (trained(tmp_path, device, [each, monitor(on_error="raise")]) for each in guiding)
    assert all(x.isfinite().all() for x in guided.values())
    assert [name for name in plain if name != "random" and not torch.equal(plain[name], guided[name])]
    assert not [name for name in guided if not torch.equal(guided[name], again[name])]
