"""Fused operations written out in elementary ones.

Attention probabilities then are tensors of the graph, and the rules of linear layers, products and sums serve the rest.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


def explicit_attention(
    query: Float[Tensor, "*batch queries width"],
    key: Float[Tensor, "*groups keys width"],
    value: Float[Tensor, "*groups keys values"],
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "*batch queries values"]:
    """Compute `softmax(Q K^T * scale + mask) V` with the arguments of `F.scaled_dot_product_attention`.

    A query whose keys are all masked out attends to nothing and yields 0, as the fused kernels do.
    """
    query, key, value, mask = attention_operands(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    probabilities = attention_map(query, key, mask)
    if dropout_p > 0:
        probabilities = F.dropout(probabilities, dropout_p)
    return probabilities @ value


def attention_operands(
    query: Float[Tensor, "*batch queries width"],
    key: Float[Tensor, "*batch keys width"],
    value: Float[Tensor, "*batch keys values"],
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return scaled queries, a key and a value for each head, and the mask, of `F.scaled_dot_product_attention`."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return query * scale, key, value, attn_mask  # scaled where it is small


def attention_map(
    query: Float[Tensor, "*batch queries width"], key: Float[Tensor, "*batch keys width"], mask: Tensor | None
) -> Float[Tensor, "*batch queries keys"]:
    """Compute the attention of scaled queries; 0 where all keys of a query are masked out."""
    scores = query @ key.transpose(-2, -1)
    empty = None
    if mask is not None:
        summand, empty = _additive(mask, scores)
        scores = scores + summand
    probabilities = F.softmax(scores, dim=-1)
    if empty is not None and bool(empty.any()):
        probabilities = probabilities.masked_fill(empty, 0.0)
    return probabilities


def _additive(mask: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The mask as a finite summand, and which queries it leaves without any key."""
    blocked = torch.isneginf(mask) if mask.dtype != torch.bool else ~mask
    summand = mask if mask.dtype != torch.bool else torch.zeros_like(mask, dtype=scores.dtype)
    return summand.masked_fill(blocked, torch.finfo(scores.dtype).min), blocked.all(-1, keepdim=True)


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


def explicit_glu(input: Tensor, dim: int = -1) -> Tensor:
    """Compute `a * sigmoid(b)` of the two halves of `input`."""
    first, second = input.chunk(2, dim)
    return first * torch.sigmoid(second)


def explicit_addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """Compute `input + value * tensor1 * tensor2`."""
    product = tensor1 * tensor2
    return input + (product if value == 1 else product * value)


def explicit_solve_triangular(
    input: Float[Tensor, "*batch n n"],
    B: Float[Tensor, "*batch n columns"],  # noqa: N803
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Float[Tensor, "*batch n columns"]:
    """Compute the X of `input @ X = B` (`X @ input = B` if not `left`) with the arguments of `solve_triangular`.

    Rows are found one by one, x_i = (b_i - sum_j a_ij x_j) / a_ii, as products and differences. Halves are solved at a
    time, so that most of that are products of matrices.
    """
    if not left:
        return explicit_solve_triangular(input.mT, B.mT, upper=not upper, unitriangular=unitriangular).mT
    size = input.shape[-1]
    if size < 2:
        return B if unitriangular else B / input
    half = size // 2
    # The half that needs no other: the first rows of a lower matrix, the last of an upper one.
    first = slice(half, size) if upper else slice(half)
    second = slice(half) if upper else slice(half, size)
    options = {"upper": upper, "unitriangular": unitriangular}
    x = explicit_solve_triangular(input[..., first, first], B[..., first, :], **options)
    rest = B[..., second, :] - input[..., second, first] @ x
    y = explicit_solve_triangular(input[..., second, second], rest, **options)
    return torch.cat([y, x] if upper else [x, y], -2)


# -- Recurrent layers -------------------------------------------------------------------------------------------------

State = tuple[Tensor, Tensor]
"""Hidden and cell state."""


def explicit_lstm(input: Float[Tensor, "first second width"], *arguments: Any) -> Any:
    """Compute what `torch.lstm` does, step by step; `NotImplemented` for packed sequences."""
    if isinstance(arguments[2], (tuple, list)):
        return NotImplemented
    hx, params, has_biases, layers, dropout, train, bidirectional, batch_first = arguments
    outputs = input.transpose(0, 1) if batch_first else input  # [steps, batch, width]
    directions = 2 if bidirectional else 1
    starts = list(zip(*hx, strict=True))
    size = len(params) // (layers * directions)
    last: list[State] = []
    for layer in range(layers):
        read = outputs if layer == 0 or not (train and dropout) else F.dropout(outputs, dropout)
        both = []
        for direction in range(directions):
            row = layer * directions + direction
            weights = params[row * size : (row + 1) * size]
            states, end = _steps(read.flip(0) if direction else read, starts[row], weights, has_biases)
            both.append(states.flip(0) if direction else states)
            last.append(end)
        outputs = torch.cat(both, -1) if bidirectional else both[0]
    return outputs.transpose(0, 1) if batch_first else outputs, *(torch.stack(x) for x in zip(*last, strict=True))


def _steps(
    x: Float[Tensor, "steps batch width"], state: State, weights: Sequence[Tensor], has_biases: bool
) -> tuple[Float[Tensor, "steps batch hidden"], State]:
    """One layer in one direction: its hidden states, and the last state."""
    of_input, of_hidden, *others = weights
    biases = others[: 2 * has_biases]
    projection = others[2 * has_biases :]
    steps = []
    for step in F.linear(x, of_input, *biases[:1]):
        state = _lstm_step(step, state, (of_hidden, *projection), biases[1:])
        steps.append(state[0])
    return torch.stack(steps), state


def _lstm_step(read: Tensor, state: State, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> State:
    """Gates are factors of products, which composites halve: "LRP-half" of Arras et al. 2019."""
    hidden, cell = state
    gates = read + F.linear(hidden, weights[0], *biases)
    keep_new, keep_old, new, show = gates.chunk(4, -1)
    cell = torch.sigmoid(keep_old) * cell + torch.sigmoid(keep_new) * torch.tanh(new)
    hidden = torch.sigmoid(show) * torch.tanh(cell)
    return F.linear(hidden, weights[1]) if len(weights) > 1 else hidden, cell


# -- The table --------------------------------------------------------------------------------------------------------

EXPLICIT: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": explicit_attention,
    "addmm": explicit_addmm,
    "baddbmm": explicit_baddbmm,
    "glu": explicit_glu,
    "addcmul": explicit_addcmul,
    "linalg_solve_triangular": explicit_solve_triangular,
    "lstm": explicit_lstm,
}
"""Fused operations, and their explicit forms."""
