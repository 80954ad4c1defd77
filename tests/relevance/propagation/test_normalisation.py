"""The frozen normalisation: linear, and the recorded output where its denominators were taken."""

from collections.abc import Callable

import pytest
import torch
from small_models import Block
from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.passes.recording import run_on_tape
from lrptrain.relevance.propagation.normalisation import frozen
from lrptrain.relevance.tape.nodes import Node
from lrptrain.relevance.types import UnsupportedOperationError

GAMMA = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
BETA = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
MEAN, VARIANCE = BETA.flip(0), GAMMA.square() + 0.1


def recorded(function: Callable[[Tensor], Tensor], *shape: int) -> tuple[Node, Tensor]:
    """The last recorded call, and its input."""
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 2 + 1
    tape, _ = run_on_tape(Block(function), x)
    return tape.nodes[-1], x


NORMS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...], Tensor | float]] = {
    "layer norm": (lambda x: F.layer_norm(x, (6,), GAMMA, BETA, 1e-3), (3, 4, 6), BETA),
    "layer norm over two axes": (
        lambda x: F.layer_norm(x, (4, 6), GAMMA.repeat(4, 1), BETA.repeat(4, 1), 0.1),
        (3, 4, 6),
        BETA,
    ),
    "layer norm, plain": (lambda x: F.layer_norm(x, (4, 6)), (3, 4, 6), 0.0),
    "rms norm": (lambda x: F.rms_norm(x, (6,), GAMMA, 1e-3), (3, 4, 6), 0.0),
    "rms norm, plain": (lambda x: F.rms_norm(x, [6]), (3, 4, 6), 0.0),
    "group norm": (lambda x: F.group_norm(x, 2, GAMMA, BETA, 1e-3), (3, 6, 5), BETA[:, None]),
    "group norm, plain": (lambda x: F.group_norm(x, 3), (3, 6, 2, 2), 0.0),
    "batch norm": (
        lambda x: F.batch_norm(x, MEAN, VARIANCE, GAMMA, BETA, eps=1e-3),
        (3, 6, 2, 2),
        (BETA - GAMMA * MEAN / (VARIANCE + 1e-3).sqrt())[:, None, None],
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_frozen_at_the_recorded_input_is_the_output_less_the_bias(name):
    function, shape, bias = NORMS[name]
    node, x = recorded(function, *shape)
    assert torch.allclose(frozen(node)(x), function(x) - bias, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NORMS)
def test_frozen_is_linear(name):
    function, shape, _ = NORMS[name]
    node, x = recorded(function, *shape)
    other = torch.randn(shape, dtype=torch.float64)
    apply = frozen(node)
    assert torch.allclose(apply(3 * x - 2 * other), 3 * apply(x) - 2 * apply(other), rtol=1e-11, atol=1e-11)
    assert not torch.allclose(apply(3 * x), function(3 * x) - function(0 * x), rtol=0.1, atol=0.1) or "batch" in name


@pytest.mark.parametrize("with_graph", [True, False])
def test_frozen_has_a_graph_where_one_is_asked_for(with_graph):
    weight = GAMMA.clone().requires_grad_()
    node, x = recorded(lambda x: F.layer_norm(x, (6,), weight, BETA, 1e-3), 3, 4, 6)
    with torch.set_grad_enabled(with_graph):
        assert frozen(node)(x).requires_grad == with_graph


def test_what_is_no_normalisation_or_mixes_samples_raises():
    with pytest.raises(UnsupportedOperationError, match=r"gelu.*is no normalisation"):
        frozen(recorded(F.gelu, 3, 6)[0])
    with pytest.raises(UnsupportedOperationError, match=r"batch_norm.*over the samples of the batch"):
        frozen(recorded(lambda x: F.batch_norm(x, None, None, training=True), 3, 6)[0])
