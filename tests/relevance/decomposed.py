"""What the tests of the norm-based family share."""

from functools import cache, partial

import numpy as np
import torch
from model_zoo import KINDS, missing_forms

import lrptrain
from lrptrain.relevance.decomposition.blocks import FORMS, transformer_blocks
from lrptrain.relevance.decomposition.contributions import Contributions

WHOLE = [name for name, kind in KINDS.items() if kind.attention]
assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-11)


@cache
def recorded(name):
    return lrptrain.record(KINDS[name].build(True), KINDS[name].inputs())


def contributions(name):
    recording = recorded(name)
    return [Contributions(recording, block) for block in transformer_blocks(recording)]


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
