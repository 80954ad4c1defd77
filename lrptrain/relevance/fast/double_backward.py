"""Attention of which the gradient, and a row times the weighted map, can be differentiated without keeping a matrix.

With scores S = c q k^T + m, probabilities P = softmax(S) and o = P v, a gradient G at o gives

    dP = G v^T,   dS = P (dP - D) with D = sum_j P dP,   dq = c dS k,   dk = c dS^T q,   dv = P^T G.

A loss on these, with gradients (a, b, e) at (dq, dk, dv), has with T = c (a k^T + q b^T) and t = sum_j P T

    at dP:  W = P (T - t),                      so W v + P e at G, and W^T G at v;
    at P:   X = dP (T - t) - D T + G e^T,       so Y = P (X - sum_j P X) at S, and
    c (Y k + dS b) at q,   c (Y^T q + dS^T a) at k.

Generic attention multiplies a row r with the mean over H heads of (P dP)+ (Chefer, Gur, Wolf, ICCV 2021). A loss on the
row that is passed on, with a gradient w at it, has, with Z = w (dP)+ / H by column,

    sum_j P Z at r,   r Z by row at P,   and r w P / H where dP > 0 at dP.

Everything here is a sum over queries, so that some queries of one sample at a time are enough: their matrices are made
again from q, k, v and G, in memory that stays in a cache.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

# As many entries of all heads' maps are made at a time: a few matrices of them fit into a processor's cache.
_ENTRIES_AT_A_TIME = 1 << 19

PerQuery = Float[Tensor, "batch heads queries width"]
PerKey = Float[Tensor, "batch heads keys width"]


class Scoring(NamedTuple):
    """How queries and keys become scores.

    Attributes:
        scale: What their products are multiplied by.
        summand: What is added, 0 or the lowest number; its shape broadcasts to `[batch, heads, queries, keys]`.
    """

    scale: float
    summand: Tensor | None = None


def attend(query: PerQuery, key: PerKey, value: PerKey, scoring: Scoring) -> PerQuery:
    """Return `softmax(scale q k^T + summand) v`."""
    result: Tensor = _Attention.apply(query, key, value, scoring)
    return result


def row_of_map(
    query: PerQuery,
    key: PerKey,
    value: PerKey,
    gradient: PerQuery,
    row: Float[Tensor, "batch queries"],
    scoring: Scoring,
    *,
    positive: bool,
) -> Float[Tensor, "batch keys"]:
    """Return a row times the mean over heads of the map times its gradient, or of the positive part of that."""
    result: Tensor = _RowOfMap.apply(query, key, value, gradient, row, scoring, positive)
    return result


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        ctx.scoring = scoring
        ctx.save_for_backward(query, key, value)
        summand = None if scoring.summand is None else _in_four_axes(scoring.summand)
        return F.scaled_dot_product_attention(query, key, value, summand, scale=scoring.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return *_AttentionGradient.apply(*ctx.saved_tensors, gradient, ctx.scoring), None


class _AttentionGradient(torch.autograd.Function):
    """The gradients at queries, keys and values, of that at the output."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, gradient: Tensor, scoring: Scoring) -> Any:
        ctx.save_for_backward(query, key, value, gradient)
        ctx.scoring = scoring
        of_query, of_key, of_value = (_unset(x) for x in (query, key, value))
        for at in _parts(query, key):
            q = query[at]
            g = gradient[at]
            k = key[at.sample]
            v = value[at.sample]
            probabilities = _probabilities(q, k, scoring, at)
            of_value[at.sample].baddbmm_(probabilities.mT, g, beta=at.kept)
            of_scores = _of_scores(probabilities, torch.bmm(g, v.mT))
            of_query[at].baddbmm_(of_scores, k, beta=0, alpha=scoring.scale)
            of_key[at.sample].baddbmm_(of_scores.mT, q, beta=at.kept, alpha=scoring.scale)
        return of_query, of_key, of_value

    @staticmethod
    def backward(ctx: Any, of_query: Tensor, of_key: Tensor, of_value: Tensor) -> Any:
        tensors = ctx.saved_tensors
        tangents = (of_query, of_key, of_value)
        if torch.is_grad_enabled():  # a third derivative is asked for
            return *_written_out(tensors, tangents, ctx.scoring, ctx.needs_input_grad), None
        return *_second_derivative(tensors, tangents, ctx.scoring), None


class _RowOfMap(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        gradient: Tensor,
        row: Tensor,
        scoring: Scoring,
        is_positive: bool,
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, gradient, row)
        ctx.scoring = scoring
        ctx.is_positive = is_positive
        passed = torch.zeros(key.shape[0], key.shape[2], dtype=key.dtype, device=key.device)
        for at in _parts(query, key, row):
            weighted = _probabilities(query[at], key[at.sample], scoring, at)
            weighted.mul_(torch.bmm(gradient[at], value[at.sample].mT))
            counted = weighted.clamp_(min=0) if is_positive else weighted
            passed[at.sample] += torch.matmul(row[at.sample, at.queries], counted).mean(0)
        return passed

    @staticmethod
    def backward(ctx: Any, of_passed: Tensor) -> Any:
        tensors = ctx.saved_tensors
        if torch.is_grad_enabled():
            written_out = _row_written_out(tensors, of_passed, ctx.scoring, ctx.is_positive, ctx.needs_input_grad)
            return *written_out, None, None
        query, key, value, gradient, row = tensors
        scoring = ctx.scoring
        of_query, of_key, of_value, of_gradient, of_row = (_zeros(x) for x in tensors)
        shares = of_passed / query.shape[1]
        for at in _parts(query, key, None if ctx.needs_input_grad[4] else row):
            read = row[at.sample, at.queries]
            # Of r P dP all but r is a matrix: r goes with the queries and their gradient, which are smaller.
            scaled = read[:, None]
            q = query[at]
            g = gradient[at]
            k = key[at.sample]
            v = value[at.sample]
            probabilities = _probabilities(q, k, scoring, at)
            of_map = torch.bmm(g, v.mT)
            # P is nowhere negative, so that dP has the sign of the product.
            at_map = _is_positive(of_map).mul_(probabilities) if ctx.is_positive else probabilities.clone()
            at_map.mul_(shares[at.sample])
            of_gradient[at] = torch.bmm(at_map, v).mul_(scaled)
            of_value[at.sample].baddbmm_(at_map.mT, g * scaled)
            of_scores = of_map.mul_(at_map)
            sums = of_scores.sum(-1, keepdim=True)
            of_row[at.sample, at.queries] = sums.sum((0, 2))
            of_scores.addcmul_(probabilities, sums, value=-1)
            of_query[at] = torch.bmm(of_scores, k).mul_(scaled * scoring.scale)
            of_key[at.sample].baddbmm_(of_scores.mT, q * scaled, alpha=scoring.scale)
        return of_query, of_key, of_value, of_gradient, of_row, None, None


def _second_derivative(
    tensors: Sequence[Tensor],
    tangents: tuple[PerQuery, PerKey, PerKey],
    scoring: Scoring,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients at queries, keys, values and the first gradient; see the module's docstring."""
    query, key, value, gradient = tensors
    scale = scoring.scale
    of_query, of_key, of_value, of_gradient = (_unset(x) for x in tensors)
    for at in _parts(query, key):
        q, g, a = (x[at] for x in (query, gradient, tangents[0]))
        k, v, b, e = (x[at.sample] for x in (key, value, tangents[1], tangents[2]))
        probabilities = _probabilities(q, k, scoring, at)
        of_map = torch.bmm(g, v.mT)
        direction = torch.bmm(a, k.mT).baddbmm_(q, b.mT).mul_(scale)
        sums = (probabilities * of_map).sum(-1, keepdim=True)
        centred = direction - (probabilities * direction).sum(-1, keepdim=True)
        # At P; then at the scores.
        of_probabilities = torch.bmm(g, e.mT).addcmul_(of_map, centred).addcmul_(direction, sums, value=-1)
        at_map = centred.mul_(probabilities)
        of_scores = _of_scores(probabilities, of_probabilities)
        first = of_map.sub_(sums).mul_(probabilities)
        of_query[at].baddbmm_(of_scores, k, beta=0, alpha=scale).baddbmm_(first, b, alpha=scale)
        of_key[at.sample].baddbmm_(of_scores.mT, q, beta=at.kept, alpha=scale).baddbmm_(first.mT, a, alpha=scale)
        # At dP.
        of_gradient[at].baddbmm_(probabilities, e, beta=0).baddbmm_(at_map, v)
        of_value[at.sample].baddbmm_(at_map.mT, g, beta=at.kept)
    return of_query, of_key, of_value, of_gradient


def _is_positive(x: Tensor) -> Tensor:
    """1 where a number is positive, and 0 elsewhere: the derivative of the positive part, as torch has it at 0."""
    # `where` takes forty times as long on CPUs.
    return torch.gt(x, 0, out=torch.empty_like(x))


def _zeros(like: Tensor) -> Tensor:
    # Head by head in memory, also where a model has them side by side: products of many matrices are slow otherwise.
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device)


def _unset(like: Tensor) -> Tensor:
    """Memory as of `_zeros`, which the first product that is written there sets (with `beta=0`, whatever it holds)."""
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


# -- Some queries at a time --------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """Some queries of one sample; as an index of what has queries, all heads of them."""

    sample: int
    heads: slice
    queries: slice

    @property
    def kept(self) -> int:
        """What a sum over parts is multiplied by before this part is added: 0 at the first of a sample."""
        return int(self.queries.start > 0)


def _parts(query: PerQuery, key: PerKey, row: Float[Tensor, "batch queries"] | None = None) -> Iterator[Any]:
    """All queries, part by part; with a row only parts of which it reads something."""
    samples, heads, queries = query.shape[:3]
    height = max(1, _ENTRIES_AT_A_TIME // max(1, heads * key.shape[2]))
    is_read = None if row is None else (row != 0).tolist()  # one look for all parts: each would wait for the device
    for sample in range(samples):
        for start in range(0, queries, height):
            if is_read is None or any(is_read[sample][start : start + height]):
                yield _Part(sample, slice(None), slice(start, min(start + height, queries)))


def _probabilities(
    query: Float[Tensor, "heads rows width"], key: Float[Tensor, "heads keys width"], scoring: Scoring, at: _Part
) -> Float[Tensor, "heads rows keys"]:
    scores = torch.bmm(query * scoring.scale, key.mT)
    if scoring.summand is not None:
        scores.add_(_summand_of(scoring.summand, at))
    return torch.softmax(scores, -1)


def _summand_of(summand: Tensor, at: _Part) -> Tensor:
    """What is added to the scores of some queries of a sample."""
    full = _in_four_axes(summand)
    of_sample = full[at.sample if full.shape[0] > 1 else 0]
    return of_sample[:, at.queries] if full.shape[2] > 1 else of_sample


def _in_four_axes(summand: Tensor) -> Tensor:
    return summand.view(*[1] * (4 - summand.ndim), *summand.shape)


def _of_scores(probabilities: Tensor, of_probabilities: Tensor) -> Tensor:
    """The gradient at the scores, in the memory of that at the probabilities: P (x - sum_j P x)."""
    sums = (probabilities * of_probabilities).sum(-1, keepdim=True)
    return of_probabilities.sub_(sums).mul_(probabilities)


# -- Written out, with a graph -----------------------------------------------------------------------------------------


def _map_with_graph(query: Tensor, key: Tensor, scoring: Scoring) -> Tensor:
    scores = (query * scoring.scale) @ key.mT
    return torch.softmax(scores if scoring.summand is None else scores + scoring.summand, -1)


def _written_out(
    tensors: Sequence[Tensor],
    tangents: tuple[Tensor, ...],
    scoring: Scoring,
    needed: tuple[bool, ...],
) -> list[Tensor | None]:
    """What `_second_derivative` returns, with a graph of torch's own."""

    def number(query: Tensor, key: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        probabilities = _map_with_graph(query, key, scoring)
        of_map = gradient @ value.mT
        of_scores = scoring.scale * probabilities * (of_map - (probabilities * of_map).sum(-1, keepdim=True))
        first = (of_scores @ key, of_scores.mT @ query, probabilities.mT @ gradient)
        return torch.stack([(x * tangent).sum() for x, tangent in zip(first, tangents, strict=True)]).sum()

    return _gradients(number, tensors, needed)


def _row_written_out(
    tensors: tuple[Tensor, ...], of_passed: Tensor, scoring: Scoring, is_positive: bool, needed: tuple[bool, ...]
) -> list[Tensor | None]:
    """The gradient of `row_of_map`, with a graph of torch's own."""

    def number(query: Tensor, key: Tensor, value: Tensor, gradient: Tensor, row: Tensor) -> Tensor:
        weighted = _map_with_graph(query, key, scoring) * (gradient @ value.mT)
        weighted = (weighted.relu() if is_positive else weighted).mean(1)
        return ((row[:, None] @ weighted)[:, 0] * of_passed).sum()

    return _gradients(number, tensors, needed)


def _gradients(
    number: Callable[..., Tensor], tensors: Sequence[Tensor], needed: tuple[bool, ...]
) -> list[Tensor | None]:
    """The gradients of a number at the tensors of which one is needed, with their graph."""
    # Views of their own: one of the tensors may have been computed from another, which is none of this number's.
    views = [x.view_as(x) for x in tensors]
    wanted = [x for x, is_needed in zip(views, needed, strict=False) if is_needed]
    gradients = iter(torch.autograd.grad(number(*views), wanted, create_graph=True, allow_unused=True))
    return [next(gradients) if is_needed else None for _, is_needed in zip(views, needed, strict=False)]
