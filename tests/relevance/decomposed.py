"""What the tests of the norm-based family share."""

from functools import cache, partial

import numpy as np
import torch
from model_zoo import KINDS, missing_forms

import lrptrain
from lrptrain.relevance.decomposition.blocks import FORMS, transformer_blocks
from lrptrain.relevance.decomposition.contributions import Contributions
from lrptrain.relevance.decomposition.linearised import _call, chain, linearise
from lrptrain.relevance.tape.functions import COPIES

WHOLE = [name for name, kind in KINDS.items() if kind.attention]
assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-11)


@cache
def recorded(name):
    return lrptrain.record(KINDS[name].build(True), KINDS[name].inputs())


def contributions(name):
    recording = recorded(name)
    return [Contributions(recording, block) for block in transformer_blocks(recording)]


def parts(one, site):
    """z_ij, [batch, length, length, width]: what row i's value at a site has of token j."""
    steps, _ = one._steps([site])
    columns = []
    for j, mark in enumerate(torch.eye(one.weights.shape[-1], dtype=one.weights.dtype)):
        attention = torch.einsum("bhi,bhd->bid", one.weights[..., j], one.heads[:, :, j])
        columns += one._pushed(steps, attention, one.residual * mark[:, None], [site])
    return torch.stack(columns, 2)


def affine(links, sources):
    """Pass a part on, with what each operation gives at 0: its biases and other constants."""
    values = dict(sources)
    for step in linearise(links):
        node = step.link.node
        zeros = {value: torch.zeros_like(value.tensor) for value in step.link.moving}
        at_zero = [torch.zeros(())] if node.name in COPIES else _call(node, zeros)
        results = [x + o for x, o in zip(step.linear(values), at_zero, strict=True)]
        values.update(zip(node.outputs, results, strict=True))
    return values


def constant(one, site):
    """What biases and other constants behind the values contribute, in the layout of the site."""
    tape, block = one.recording.tape, one.block
    nothing = {block.weights: torch.zeros_like(block.weights.tensor)}
    bias = affine(chain(tape, [block.weights], [block.attention]), nothing)[block.attention]
    sources = {block.attention: bias, block.residual: torch.zeros_like(block.residual.tensor)}
    return affine(chain(tape, list(sources), [site]), sources)[site]


def expected_forms(name):
    return [form for form in FORMS if form not in missing_forms(name)]


def integrated(h, u, g, points=80):
    """Integrated gradients of g from 0 to u, as contributions h to u, by quadrature."""
    places, weights = np.polynomial.legendre.leggauss(points)
    slope = torch.zeros_like(u)
    for place, weight in zip((places + 1) / 2, weights / 2, strict=True):
        x = (place * u).requires_grad_()
        slope += weight * torch.autograd.grad(g(x).sum(), x)[0]
    return h * slope
