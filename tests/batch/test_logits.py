import pytest
import torch

from lrptrain.batch.logits import class_probabilities, two_class_logits


def test_a_single_logit_is_one_of_two_classes():
    logits = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    found = class_probabilities(logits)
    torch.testing.assert_close(found[:, 1], logits[:, 0].sigmoid(), rtol=1e-15, atol=0)
    torch.testing.assert_close(found.sum(1), torch.ones(2, dtype=torch.float64), rtol=1e-15, atol=0)
    assert two_class_logits(logits).tolist() == [[0.0, 0.0], [0.0, 2.0]]


def test_several_logits_are_their_softmax_in_double_precision():
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(class_probabilities(logits), logits.double().softmax(1))
    assert two_class_logits(logits) is logits


@pytest.mark.parametrize(
    ("given", "expected"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64")]
)
def test_the_precision_may_be_that_of_the_logits(given, expected):
    assert class_probabilities(torch.ones(1, 2, dtype=getattr(torch, given)), None).dtype == getattr(torch, expected)


def test_gradients_flow():
    logits = torch.zeros(1, 1, requires_grad=True)
    class_probabilities(logits)[:, 1].sum().backward()
    assert logits.grad is not None
    assert logits.grad.item() == 0.25  # the derivative of the sigmoid at 0
