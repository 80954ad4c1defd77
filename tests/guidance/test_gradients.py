"""How long the gradients of losses are."""

import math

import pytest
import torch

from lrptrain.guidance.gradients import flat_gradient, gradient_norm


def setting():
    weights = [torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([[3.0]], requires_grad=True)]
    return weights, weights[0].square().sum(), weights[0][0] * 5 + weights[1].sum() * 2


def test_by_hand():
    weights, task, guidance = setting()
    found = [flat_gradient(loss, weights) for loss in (task, guidance)]
    assert [row.tolist() for row in found if row is not None] == [[2, 4, 0], [5, 0, 2]]
    norms = [gradient_norm(loss, weights) for loss in (task, guidance)]
    assert norms == pytest.approx([math.sqrt(20), math.sqrt(29)])
    assert all(weight.grad is None for weight in weights)
    (task + guidance).backward()  # the graph is still there
    assert weights[0].grad.tolist() == [7, 4]


def test_the_mean_over_processes_is_taken_before_the_norm():
    weights, task, _ = setting()
    assert gradient_norm(task, weights, lambda gradient: gradient + 1) == pytest.approx(math.sqrt(9 + 25 + 1))


def test_a_loss_that_reaches_nothing_takes_part_in_the_mean():
    weights, *_ = setting()
    assert flat_gradient(torch.zeros(()), weights) is None
    assert flat_gradient(torch.ones(1, requires_grad=True).sum(), weights) is None
    assert gradient_norm(torch.zeros(()), weights, lambda gradient: gradient + 2) == pytest.approx(math.sqrt(12))
