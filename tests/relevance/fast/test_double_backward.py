"""Attention of which the gradient can be differentiated without its matrices, against finite differences and torch."""

from functools import partial

import pytest
import torch

from lrptrain.relevance.fast import double_backward as module
from lrptrain.relevance.fast.double_backward import Scoring, attend, row_of_map
from lrptrain.relevance.tape.explicit import explicit_attention

SAMPLES, HEADS, QUERIES, KEYS, WIDTH = 2, 3, 4, 5, 2
LOWEST = torch.finfo(torch.float64).min


@pytest.fixture(autouse=True)
def some_queries_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "_ENTRIES_AT_A_TIME", 2 * HEADS * KEYS + 1)


def tensors(queries: int = QUERIES) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    lengths = (queries, KEYS, KEYS, queries)
    made = [torch.randn(SAMPLES, n, HEADS, WIDTH, dtype=torch.float64, generator=generator) for n in lengths]
    row = torch.randn(SAMPLES, queries, dtype=torch.float64, generator=generator)
    return [*(x.transpose(1, 2).requires_grad_() for x in made), row.requires_grad_()]


def blocked(*shape: int) -> torch.Tensor:
    mask = torch.zeros(shape, dtype=torch.float64)
    mask[..., -1] = LOWEST
    if shape[0] == SAMPLES:
        mask[0, ..., 0] = LOWEST
    if len(shape) > 1 and shape[-2] == QUERIES:
        mask[..., 1, 2] = LOWEST
    return mask


SUMMANDS = {
    "none": None,
    "of keys": blocked(KEYS),
    "of queries and keys": blocked(QUERIES, KEYS),
    "of samples": blocked(SAMPLES, 1, 1, KEYS),
    "of all": blocked(SAMPLES, HEADS, QUERIES, KEYS),
}


@pytest.fixture(params=SUMMANDS)
def scoring(request):
    return Scoring(0.7, SUMMANDS[request.param])


def test_first_and_second_derivatives_are_those_of_finite_differences(scoring):
    query, key, value, _, _ = tensors()

    def function(query, key, value):
        return attend(query, key, value, scoring)

    assert torch.autograd.gradcheck(function, (query, key, value))
    assert torch.autograd.gradgradcheck(function, (query, key, value))


def test_the_output_is_that_of_attention_written_out(scoring):
    query, key, value, _, _ = tensors()
    expected = explicit_attention(query, key, value, scoring.summand, scale=scoring.scale)
    torch.testing.assert_close(attend(query, key, value, scoring), expected, rtol=1e-12, atol=1e-13)


def signed_map(query, key, value, gradient, row, scoring, part=lambda weighted: weighted):
    scores = scoring.scale * query @ key.mT + (0 if scoring.summand is None else scoring.summand)
    weighted = part(scores.softmax(-1) * (gradient @ value.mT)).mean(1)
    return (row[:, None] @ weighted)[:, 0]


positive_map = partial(signed_map, part=torch.relu)
MAPS = {
    "positive": (partial(row_of_map, positive=True), positive_map),
    "signed": (partial(row_of_map, positive=False), signed_map),
}


@pytest.fixture(params=MAPS)
def both(request):
    return MAPS[request.param]


def with_gradients(function, given, row, scoring):
    """The row that a function passes on, and the gradients of its squares."""
    query, key, value, gradient = given
    passed = function(query, key, value, gradient, row, scoring)
    read = [row] if row.requires_grad else []
    return [passed, *torch.autograd.grad(passed.pow(2).sum(), [*given, *read])]


def test_a_row_of_a_map_and_its_gradient_are_those_of_the_map(scoring, both):
    results = []
    for function in both:
        *given, row = tensors()
        results.append(with_gradients(function, given, row, scoring))
    for mine, expected in zip(*results, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-13)


def test_queries_that_a_row_does_not_read_are_left_out_with_the_same_gradient(scoring, both):
    read = torch.zeros(SAMPLES, QUERIES, dtype=torch.float64)
    read[:, 0] = 1.0
    results = []
    for function in both:
        *given, _ = tensors()
        results.append(with_gradients(function, given, read, scoring))
    for mine, expected in zip(*results, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-13)


def test_where_the_gradient_is_0_that_of_the_positive_part_is_0_too(scoring):
    results = []
    for function in MAPS["positive"]:
        query, key, value, gradient, row = tensors()
        gradient = gradient.detach().clone()
        gradient[:, :, 1] = 0  # of a query that the row reads
        given = [query, key, value, gradient.requires_grad_()]
        results.append(with_gradients(function, given, row, scoring))
    assert not results[0][4][:, :, 1].any()
    for mine, expected in zip(*results, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-13)


def test_a_third_derivative_of_a_row_is_that_of_the_map(both):
    results = []
    for function in both:
        *given, row = tensors()
        results.append(third(function(*given, row, Scoring(0.7, blocked(KEYS))), [*given, row], times=2))
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-12)


def third(numbers: torch.Tensor, given: list[torch.Tensor], times: int) -> list[torch.Tensor]:
    for _ in range(times):
        gradients = torch.autograd.grad(numbers.pow(2).sum(), given, create_graph=True, allow_unused=True)
        numbers = torch.cat([x.flatten() for x in gradients if x is not None])
    return [numbers]


def test_a_third_derivative_is_that_of_attention_written_out(scoring):
    results = []
    for is_own in (True, False):
        query, key, value, _, _ = tensors()
        if is_own:
            attended = attend(query, key, value, scoring)
        else:
            attended = explicit_attention(query, key, value, scoring.summand, scale=scoring.scale)
        results.append(third(attended, [query, key, value], times=3))
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-12)
