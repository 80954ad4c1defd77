"""Fused operations written out in elementary ones.

Attention probabilities then are tensors of the graph, and the rules of linear layers, products and sums serve the rest.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.tape.flex import explicit_flex_attention
from lrptrain.relevance.tape.nodes import aligned, written_out


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
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * scale) @ key.transpose(-2, -1)  # scaled where it is small
    empty = None
    if attn_mask is not None:
        mask, empty = _additive(attn_mask, scores)
        scores = scores + mask
    probabilities = F.softmax(scores, dim=-1)
    if empty is not None and bool(empty.any()):
        probabilities = probabilities.masked_fill(empty, 0.0)
    if dropout_p > 0:
        probabilities = F.dropout(probabilities, dropout_p)
    return probabilities @ value


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


def explicit_addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """Compute `input + value * tensor1 / tensor2`."""
    quotient = tensor1 / tensor2
    return input + (quotient if value == 1 else quotient * value)


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


# -- Distances and mixtures -------------------------------------------------------------------------------------------


def explicit_lerp(input: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:
    """Compute `input + weight * (end - input)` as a mean with weights, of which each part gets its share."""
    return input * (1 - weight) + end * weight


def explicit_logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """Compute `log(exp(input) + exp(other))`."""
    return torch.logsumexp(torch.stack(torch.broadcast_tensors(input, other)), 0)  # type: ignore[no-untyped-call]


def explicit_cdist(
    x1: Float[Tensor, "*batch rows width"],
    x2: Float[Tensor, "*batch columns width"],
    p: float = 2.0,
    *_: Any,
    **__: Any,
) -> Float[Tensor, "*batch rows columns"]:
    """Compute the distances of `torch.cdist` as sizes of differences."""
    distance: Tensor = torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)
    return distance


def explicit_pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """Compute the distances of `F.pairwise_distance` as sizes of differences."""
    distance: Tensor = torch.linalg.vector_norm(x1 - x2 + eps, p, -1, keepdim)
    return distance


def explicit_cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Compute `F.cosine_similarity` as the sum of products of what has length 1."""
    units = [x / torch.linalg.vector_norm(x, 2, dim, keepdim=True).clamp(min=eps) for x in (x1, x2)]
    cosine: Tensor = (units[0] * units[1]).sum(dim)
    return cosine


# -- Products of any number of operands -------------------------------------------------------------------------------


def explicit_einsum(equation: str, *operands: Any) -> Any:
    """Compute `torch.einsum` as a chain of products of two operands, from the first on, as torch does by default.

    What sums over no axis of both operands is a product of entries, a mask or a normaliser, say. `NotImplemented`
    stands for a product of two that does sum: it is what the chain is made of.
    """
    factors = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else list(operands)
    inputs, _, output = written_out(equation.replace(" ", ""), [x.ndim for x in factors]).partition("->")
    labels = inputs.split(",")
    repeats = any(len(set(axes)) < len(axes) for axes in labels)
    if len(factors) == 2 and not repeats and set(labels[0]) & set(labels[1]) - set(output):
        return NotImplemented
    result, mine = _diagonal(factors[0], labels[0])
    for i in range(1, len(factors)):
        other, theirs = _diagonal(factors[i], labels[i])
        later = set(output).union(*labels[i + 1 :])
        kept = "".join(label for label in dict.fromkeys(mine + theirs) if label in later)
        if set(mine) & set(theirs) - later:
            result = torch.einsum(f"{mine},{theirs}->{kept}", result, other)
        else:
            parts = (_summed(result, mine, later), _summed(other, theirs, later))
            first, second = (aligned(x, axes, kept) for x, axes in parts)
            result = first * second
        mine = kept
    return aligned(*_summed(result, mine, set(output)), output)


def _diagonal(x: Tensor, labels: str) -> tuple[Tensor, str]:
    """Entries of equal places along axes of the same label."""
    for label in set(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = x.diagonal(0, first, second)
            labels = labels[:first] + labels[first + 1 : second] + labels[second + 1 :] + label
    return x, labels


def _summed(x: Tensor, labels: str, kept: set[str]) -> tuple[Tensor, str]:
    """Sum over the axes of labels that are not kept."""
    axes = [axis for axis, label in enumerate(labels) if label not in kept]
    return x.sum(axes) if axes else x, "".join(label for label in labels if label in kept)


# -- Recurrent layers -------------------------------------------------------------------------------------------------

# Hidden and cell state of an LSTM; of others the hidden state.
State = tuple[Tensor, ...]


def _lstm_step(read: Tensor, state: State, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> State:
    """Gates are factors of products, which composites halve: "LRP-half" of Arras et al. 2019."""
    hidden, cell = state
    gates = read + F.linear(hidden, weights[0], *biases)
    keep_new, keep_old, new, show = gates.chunk(4, -1)
    cell = torch.sigmoid(keep_old) * cell + torch.sigmoid(keep_new) * torch.tanh(new)
    hidden = torch.sigmoid(show) * torch.tanh(cell)
    return F.linear(hidden, weights[1]) if len(weights) > 1 else hidden, cell


def _gru_step(read: Tensor, state: State, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> State:
    """1 - sigmoid(x) is sigmoid(-x), a gate like the others, that no constant takes a share of."""
    (hidden,) = state
    reset, update, new = read.chunk(3, -1)
    reset_too, update_too, new_too = F.linear(hidden, weights[0], *biases).chunk(3, -1)
    keep_old = update + update_too
    new = torch.tanh(new + torch.sigmoid(reset + reset_too) * new_too)
    return (torch.sigmoid(-keep_old) * new + torch.sigmoid(keep_old) * hidden,)


def _tanh_step(read: Tensor, state: State, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> State:
    return (torch.tanh(read + F.linear(state[0], weights[0], *biases)),)


def _relu_step(read: Tensor, state: State, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> State:
    return (torch.relu(read + F.linear(state[0], weights[0], *biases)),)


_STEPS = {"lstm": _lstm_step, "gru": _gru_step, "rnn_tanh": _tanh_step, "rnn_relu": _relu_step}


def explicit_recurrent(kind: str, input: Float[Tensor, "first second width"], *arguments: Any) -> tuple[Tensor, ...]:
    """Compute what `torch.lstm`, `torch.gru`, `torch.rnn_tanh` and `torch.rnn_relu` do, step by step.

    Args:
        kind: Which of them.
        input: The sequences; or packed, `[tokens, width]`, of several lengths.
        *arguments: Those of torch: packed, the sizes of the steps come first.
    """
    sizes = arguments[0] if isinstance(arguments[2], (tuple, list)) else None
    hx, params, has_biases, layers, dropout, train, bidirectional, *first = arguments[sizes is not None :]
    is_active = None if sizes is None else _active(sizes)
    lengths = None if is_active is None else is_active.sum(0)
    outputs = input.transpose(0, 1) if any(first) else input  # [steps, batch, width]
    if is_active is not None:
        outputs = _unpacked(input, is_active)
    directions = 2 if bidirectional else 1
    starts = list(zip(*hx, strict=True)) if kind == "lstm" else [(state,) for state in hx]
    size = len(params) // (layers * directions)
    last: list[State] = []
    for layer in range(layers):
        read = outputs if layer == 0 or not (train and dropout) else F.dropout(outputs, dropout)
        both = []
        for direction in range(directions):
            row = layer * directions + direction
            weights = params[row * size : (row + 1) * size]
            states, end = _steps(kind, read, starts[row], weights, has_biases, lengths, backwards=direction == 1)
            both.append(states)
            last.append(end)
        outputs = torch.cat(both, -1) if bidirectional else both[0]
    if is_active is not None:
        outputs = _packed(outputs, is_active)
    elif any(first):
        outputs = outputs.transpose(0, 1)
    return outputs, *(torch.stack(states) for states in zip(*last, strict=True))


def _steps(
    kind: str,
    x: Float[Tensor, "steps batch width"],
    state: State,
    weights: Sequence[Tensor],
    has_biases: bool,
    lengths: Int[Tensor, " batch"] | None,
    *,
    backwards: bool,
) -> tuple[Float[Tensor, "steps batch hidden"], State]:
    """One layer in one direction: its hidden states, and the last state of each sequence.

    All sequences begin at the first step, backwards too, so that none depends on what another has read before it
    begins. What is made behind the end of one is not read.
    """
    of_input, of_hidden, *others = weights
    biases = others[: 2 * has_biases]
    projection = others[2 * has_biases :]
    read = F.linear(_turned(x, lengths) if backwards else x, of_input, *biases[:1])
    steps = []
    for step in read:
        state = _STEPS[kind](step, state, (of_hidden, *projection), biases[1:])
        steps.append(state)
    states = torch.stack([state[0] for state in steps])
    if lengths is not None:
        of_sample = (lengths - 1, torch.arange(len(lengths)))
        state = tuple(torch.stack(parts)[of_sample] for parts in zip(*steps, strict=True))
    return _turned(states, lengths) if backwards else states, state


def _turned(x: Float[Tensor, "steps batch width"], lengths: Int[Tensor, " batch"] | None) -> Tensor:
    """Each sequence from its last step to its first; what is behind it stays there."""
    if lengths is None:
        return x.flip(0)
    step = torch.arange(len(x))[:, None]
    return x[torch.where(step < lengths, lengths - 1 - step, step), torch.arange(len(lengths))]


def explicit_cell(
    kind: str, input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, *biases: Tensor | None
) -> Tensor | tuple[Tensor, ...]:
    """Compute one step of `torch.lstm_cell`, `torch.gru_cell`, `torch.rnn_tanh_cell` and `torch.rnn_relu_cell`."""
    given = [bias for bias in biases if bias is not None]
    state = _STEPS[kind](F.linear(input, w_ih, *given[:1]), tuple(hx) if kind == "lstm" else (hx,), [w_hh], given[1:])
    return state if kind == "lstm" else state[0]


def _active(sizes: Int[Tensor, " steps"]) -> Bool[Tensor, "steps batch"]:
    """Which sequences of a packed batch, the longest first, are not over at each step."""
    return torch.arange(int(sizes[0])) < sizes[:, None]


def _packed(
    x: Float[Tensor, "steps batch width"], is_active: Bool[Tensor, "steps batch"]
) -> Float[Tensor, "tokens width"]:
    return x.flatten(0, 1)[is_active.flatten().nonzero()[:, 0].to(x.device)]


def _unpacked(
    data: Float[Tensor, "tokens width"], is_active: Bool[Tensor, "steps batch"], padding: float = 0.0
) -> Float[Tensor, "steps batch width"]:
    place = torch.full(is_active.shape, len(data)).masked_scatter(is_active, torch.arange(len(data)))
    return torch.cat([data, data.new_full((1, *data.shape[1:]), padding)])[place.to(data.device)]


def explicit_pack(input: Tensor, lengths: Int[Tensor, " batch"], batch_first: bool) -> tuple[Tensor, Tensor]:
    """Compute what `pack_padded_sequence` calls: the tokens of all sequences, step by step, and the steps' sizes."""
    is_active = torch.arange(int(lengths[0]))[:, None] < lengths
    return _packed(input.transpose(0, 1) if batch_first else input, is_active), is_active.sum(1)


def explicit_pad(
    data: Tensor, batch_sizes: Int[Tensor, " steps"], batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    """Compute what `pad_packed_sequence` calls: the sequences, and their lengths."""
    is_active = _active(batch_sizes)
    steps = F.pad(is_active, (0, 0, 0, max(total_length - len(is_active), 0)))
    padded = _unpacked(data, steps, padding_value)
    return padded.transpose(0, 1) if batch_first else padded, is_active.sum(0)


# -- The table --------------------------------------------------------------------------------------------------------

EXPLICIT: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": explicit_attention,
    "addmm": explicit_addmm,
    "baddbmm": explicit_baddbmm,
    "glu": explicit_glu,
    "addcmul": explicit_addcmul,
    "addcdiv": explicit_addcdiv,
    "linalg_solve_triangular": explicit_solve_triangular,
    "lerp": explicit_lerp,
    "logaddexp": explicit_logaddexp,
    "cdist": explicit_cdist,
    "pairwise_distance": explicit_pairwise_distance,
    "cosine_similarity": explicit_cosine_similarity,
    "einsum": explicit_einsum,
    **{kind: partial(explicit_recurrent, kind) for kind in _STEPS},
    **{f"{kind}_cell": partial(explicit_cell, kind) for kind in _STEPS},
    "pack_padded_sequence": explicit_pack,
    "pad_packed_sequence": explicit_pad,
    "flex_attention": explicit_flex_attention,
}
"""Fused operations, and their explicit forms."""
