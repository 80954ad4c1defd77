"""What scales a guidance, and when gradients are compared."""

import math

import pytest
import torch

from lrptrain.guidance.strength import Strength, bounded_factor, flat_gradient, gradient_norm


@pytest.mark.parametrize(
    ("norms", "expected"),
    [
        ((1.0, 5.0), 0.1),  # half of the task's
        ((1.0, 0.1), 1.0),
        ((0.0, 5.0), None),
        ((1.0, math.inf), None),
    ],
)
def test_the_bound_by_hand(norms, expected):
    assert bounded_factor(None, *norms) == (expected if expected is None else pytest.approx(expected))
    assert bounded_factor(0.01, *norms) == pytest.approx(0.01 if expected is None else 0.02)


def test_a_bounded_guidance_is_compared_until_it_has_a_factor_and_then_rarely():
    strength = Strength(bounded=True, compare_every_n_batches=0)
    assert strength() == 0
    assert strength.compares(3)
    strength.update(1.0, 5.0)
    assert strength() == pytest.approx(0.1)
    assert [batch for batch in range(31) if strength.compares(batch)] == [0, 10, 20, 30]
    resumed = Strength(bounded=True, compare_every_n_batches=0)
    resumed.load_state_dict(strength.state_dict())
    assert resumed() == strength()
    strength.start_over()
    assert strength() == 0


def test_a_weight_of_the_users_own_is_applied_as_it_is():
    strength = Strength(bounded=False, compare_every_n_batches=4)
    strength.update(1.0, 5.0)
    assert strength() == 1
    assert [batch for batch in range(9) if strength.compares(batch)] == [0, 4, 8]
    assert [batch for batch in range(9) if strength.measures_swaps(batch)] == [0, 4, 8]


def test_a_guidance_without_a_gradient_is_refused_after_some_steps():
    strength = Strength(bounded=False, compare_every_n_batches=50)
    strength.check_gradient(0.0, 2, excused=False)
    assert strength.compares(1)  # until it has one, or is refused
    strength.check_gradient(0.0, 11, excused=False)
    strength.check_gradient(0.0, 12, excused=True)
    with pytest.raises(ValueError, match="no gradient in its first 10 steps"):
        strength.check_gradient(0.0, 12, excused=False)
    strength.check_gradient(1.0, 12, excused=False)
    strength.check_gradient(0.0, 99, excused=False)  # it has had one
    assert not strength.compares(1)


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
