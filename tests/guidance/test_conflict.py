"""Gradients of two losses beside each other."""

import math

import pytest
import torch

from lrptrain.guidance.conflict import compare_gradients, cosine, flat_gradient


def setting():
    weights = [torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([[3.0]], requires_grad=True)]
    return weights, weights[0].square().sum(), weights[0][0] * 5 + weights[1].sum() * 2


def test_by_hand():
    weights, task, guidance = setting()
    found = [flat_gradient(loss, weights) for loss in (task, guidance)]
    assert [row.tolist() for row in found if row is not None] == [[2, 4, 0], [5, 0, 2]]
    conflict = compare_gradients(task, guidance, weights)
    assert (conflict.task_norm, conflict.guidance_norm) == pytest.approx((math.sqrt(20), math.sqrt(29)))
    assert conflict.cosine == pytest.approx(10 / math.sqrt(20 * 29))
    assert all(0 < seconds < 60 for seconds in (conflict.task_seconds, conflict.guidance_seconds))
    assert all(weight.grad is None for weight in weights)
    (task + guidance).backward()  # the graph is still there
    assert weights[0].grad.tolist() == [7, 4]


def test_the_mean_over_processes():
    weights, task, guidance = setting()
    conflict = compare_gradients(task, guidance, weights, lambda gradient: gradient + 1)
    assert (conflict.task_norm, conflict.guidance_norm) == pytest.approx((math.sqrt(9 + 25 + 1), math.sqrt(36 + 1 + 9)))


def test_a_loss_that_reaches_nothing():
    weights, task, _ = setting()
    assert flat_gradient(torch.zeros(()), weights) is None
    assert flat_gradient(torch.ones(1, requires_grad=True).sum(), weights) is None
    conflict = compare_gradients(task, torch.zeros(()), weights)
    assert conflict.guidance_norm == 0
    assert math.isnan(conflict.cosine)


def test_cosine():
    one = torch.tensor([3.0, 4.0])
    assert cosine(one, 2 * one) == pytest.approx(1)
    assert cosine(one, -one) == pytest.approx(-1)
    assert cosine(one, torch.tensor([4.0, -3.0])) == pytest.approx(0)
