"""What tells weights from others: a step, a loading, a buffer; not a device, a mode or a copy."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from lrptrain.monitor.weights import WeightsWatch, fingerprint


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(5, 3)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64])
def test_a_copy_has_the_same_fingerprint_and_one_changed_bit_another(dtype):
    model = nn.Linear(3, 3, dtype=dtype) if dtype.is_complex else net(dtype)
    before = fingerprint(model)
    assert fingerprint(copy.deepcopy(model).eval().requires_grad_(False)) == before
    with torch.inference_mode():
        assert fingerprint(model) == before
    with torch.no_grad():
        weight = next(model.parameters()).view(-1)[:1]
        weight.copy_(torch.nextafter(weight, weight + 1) if not dtype.is_complex else weight * 2)
    assert fingerprint(model) != before


@pytest.mark.parametrize("name", ["weight", "running_mean", "num_batches_tracked"])
def test_each_kind_of_tensor_counts(name):
    model = net()
    before = fingerprint(model)
    getattr(model[1], name).data.add_(1)
    assert fingerprint(model) != before
    getattr(model[1], name).data.sub_(1)
    assert fingerprint(model) == before


def test_strides_and_places_in_memory_do_not_count():
    values = torch.randn(4, 6)
    fingerprints = set()
    for tensor in (values, values.T.contiguous().T, torch.cat([torch.zeros(1), values.flatten()])[1:].view(4, 6)):
        model = nn.Module()
        model.register_buffer("values", tensor)
        fingerprints.add(fingerprint(model))
    assert len(fingerprints) == 1


def test_what_has_no_numbers_to_be_read_is_no_error():
    model: Any = nn.Module()
    model.register_buffer("sparse", torch.eye(3).to_sparse())
    model.register_buffer("empty", torch.empty(0))
    model.register_buffer("elsewhere", torch.empty(3, device="meta"))
    model.lazy = nn.LazyLinear(3)
    before = fingerprint(model)
    model.sparse.mul_(2)
    assert fingerprint(model) != before


def test_the_last_evaluation_decides_if_it_was_of_the_same_weights_and_samples():
    watch = WeightsWatch()
    assert not watch.is_decided("a", 8)
    watch.tried = ("a", 8)
    assert watch.is_decided("a", 8)
    assert not watch.is_decided("a", 9)
    assert not watch.is_decided("b", 8)


def test_a_resumed_run_knows_whose_weights_are_whose():
    watch = WeightsWatch({"a": (0, 3), "b": (1, 7)}, ("b", 8), ("a", 8))
    resumed = WeightsWatch()
    resumed.load_state_dict(watch.state_dict())
    assert resumed == watch
    assert resumed.moment == (0, 3)
    earlier = WeightsWatch()
    earlier.load_state_dict({})
    assert earlier == WeightsWatch()
