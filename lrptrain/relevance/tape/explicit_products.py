"""Fused products and sums written out, so that the rules of linear layers, products and sums serve them."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F


def explicit_addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """Compute `beta * input + alpha * mat1 @ mat2` with the arguments of `torch.addmm`; a row `input` is a bias."""
    if input.ndim == 1 and beta == alpha == 1:
        return F.linear(mat1, mat2.t(), input)
    return explicit_baddbmm(input, mat1, mat2, beta=beta, alpha=alpha)


def explicit_baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """Compute `beta * input + alpha * batch1 @ batch2` with the arguments of `torch.baddbmm`.

    A factor of 0 leaves out what it multiplies, NaN or not, as the fused kernels do.
    """
    product = batch1 @ batch2
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return (input if beta == 1 else input * beta) + product
