"""What gradient the task's loss would have if all answers were guesses."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lrptrain.batch.task import EachLabel, find_task
from lrptrain.guidance.gradients import gradient_norm
from lrptrain.guidance.guesses import loss_of_guesses

LABELS = torch.tensor([0, 1, 2, 2, 1, 0])


def outputs_of(classes, scale=1.0, squeezed=False):
    """A linear model in float64, six samples, and its outputs for them."""
    torch.manual_seed(0)
    model = nn.Linear(4, classes).double()
    with torch.no_grad():
        model.weight.mul_(scale)
        model.bias.mul_(scale)
    samples = torch.randn(6, 4, dtype=torch.float64)
    output = model(samples).squeeze(1) if squeezed else model(samples)
    return model, samples, output


def gradient(loss, model):
    return torch.cat([each.flatten() for each in torch.autograd.grad(loss, [*model.parameters()], retain_graph=True)])


def guessed_gradient(model, samples, labels):
    """That of the cross-entropy of labelled samples, at logits of 0."""
    shares = torch.zeros(len(samples), len(model.weight), dtype=torch.float64, requires_grad=True)
    kept = labels >= 0
    (at_logits,) = torch.autograd.grad(F.cross_entropy(shares[kept], labels[kept]), shares)
    return gradient((model(samples) * at_logits).sum(), model)


@pytest.mark.parametrize("factor", [1.0, 3.0, 1e-3])
@pytest.mark.parametrize("labels", [LABELS, torch.tensor([0, -1, 2, 2, 1, -1])])
def test_it_is_the_gradient_of_guesses_in_the_units_of_the_task(factor, labels):
    model, samples, output = outputs_of(3, scale=4.0)
    task = factor * F.cross_entropy(output[labels >= 0], labels[labels >= 0])
    loss = loss_of_guesses(task, output, labels)
    assert loss is not None
    torch.testing.assert_close(gradient(loss, model), factor * guessed_gradient(model, samples, labels))
    task.backward()  # the graph is still there


def test_a_model_that_guesses_has_this_very_gradient():
    model, _, output = outputs_of(3, scale=0.0)
    task = F.cross_entropy(output, LABELS)
    loss = loss_of_guesses(task, output, LABELS)
    assert loss is not None
    weights = [*model.parameters()]
    assert gradient_norm(loss, weights) == pytest.approx(gradient_norm(task, weights), rel=1e-6)


def test_a_model_that_has_learned_has_hardly_any_of_its_own_and_this_one_stays():
    model, samples, _ = outputs_of(3)
    samples = samples[:4]  # of four numbers each: they can be told apart
    with torch.no_grad():
        model.weight.copy_(torch.linalg.solve(samples, 20.0 * F.one_hot(LABELS[:4]).double()).T)
        model.bias.zero_()
    output = model(samples)
    task = F.cross_entropy(output, LABELS[:4])
    loss = loss_of_guesses(task, output, LABELS[:4])
    assert loss is not None
    weights = [*model.parameters()]
    assert gradient_norm(task, weights) < 1e-6
    expected = guessed_gradient(model, samples, LABELS[:4]).norm().item()
    assert gradient_norm(loss, weights) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("squeezed", [False, True])
def test_one_logit_is_that_of_two_classes(squeezed):
    model, samples, output = outputs_of(1, squeezed=squeezed)
    labels = LABELS.clamp(max=1)
    task = F.binary_cross_entropy_with_logits(output.flatten(), labels.double())
    with find_task("binary").reading():
        loss = loss_of_guesses(task, output, labels)
    assert loss is not None
    guessed = gradient((model(samples).flatten() * (0.5 - labels.double()) / 6).sum(), model)
    torch.testing.assert_close(gradient(loss, model), guessed)


def test_of_several_labels_each_answer_is_a_guess():
    model, samples, output = outputs_of(3)
    labels = torch.stack([LABELS > 0, LABELS > 1, LABELS == 1], 1).long()
    labels[0, 1] = -1
    known = labels >= 0
    task = F.binary_cross_entropy_with_logits(output[known], labels[known].double())
    loss = loss_of_guesses(task, output, labels, EachLabel())
    assert loss is not None
    at_logits = torch.where(known, 0.5 - labels.double(), 0) / known.sum()
    torch.testing.assert_close(gradient(loss, model), gradient((model(samples) * at_logits).sum(), model))


def test_what_is_no_loss_of_classes_says_nothing():
    _, samples, output = outputs_of(3)
    task = F.cross_entropy(output, LABELS)
    assert loss_of_guesses(task, output, None) is None
    assert loss_of_guesses(task, output, torch.full((6,), -1)) is None
    # A loss that does not come from these logits, and one that rewards wrong answers.
    assert loss_of_guesses(samples.requires_grad_().sum(), output, LABELS) is None
    assert loss_of_guesses(-task, output, LABELS) is None
    assert loss_of_guesses(task, torch.zeros(6, 3, 2, requires_grad=True), LABELS) is None
    assert loss_of_guesses(task, None, LABELS) is None
