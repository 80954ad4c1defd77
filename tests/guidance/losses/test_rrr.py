"""Input gradients outside of the evidence."""

import pytest
import torch
from torch import nn

import lrptrain
from lrptrain.guidance import right_reasons


class Linear(nn.Module):
    """logits = W x + b of an image's pixels."""

    def __init__(self, scale=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(2 * 3 * 3, 4).double()
        self.linear.weight.data *= scale

    def forward(self, image):
        return self.linear(image.flatten(1))


def setting(samples=3):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(samples, 2, 3, 3, dtype=torch.float64, generator=generator)
    mask = torch.randint(0, 2, (samples, 3, 3), generator=generator)
    mask[0, 0, 0] = 255
    return images, mask


def by_hand(weight, bias, images, mask):
    """d/dx sum_k log p_k = sum_k W_k - K sum_k p_k W_k."""
    p = (images.flatten(1) @ weight.T + bias).softmax(-1)
    gradient = (weight.sum(0) - len(weight) * p @ weight).view_as(images)
    return ((mask == 0)[:, None] * gradient.square()).flatten(1).sum(1)


def test_by_hand_of_a_linear_model():
    model, (images, mask) = Linear(), setting()
    found = right_reasons(lrptrain.record(model, images), mask)
    expected = by_hand(model.linear.weight, model.linear.bias, images, mask)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    ours, theirs = (torch.autograd.grad(x.sum(), model.linear.weight)[0] for x in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-13)


def test_gradient_at_the_weights_by_finite_differences():
    model, (images, mask) = Linear(0.5), setting()

    def total():
        return right_reasons(lrptrain.record(model, images), mask).sum()

    weight, step = model.linear.weight, 1e-5
    (gradient,) = torch.autograd.grad(total(), weight)
    for index in ((0, 0), (1, 7), (3, 17)):
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                weight[index] += sign * step
            ends.append(total().item())
            with torch.no_grad():
                weight[index] -= sign * step
        assert gradient[index].item() == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6)


def test_what_is_evidence_or_ignored_has_no_part():
    model, (images, _) = Linear(), setting(2)
    recorded = lrptrain.record(model, images)
    nothing = torch.tensor([1, 255])[:, None, None].expand(2, 3, 3)
    assert right_reasons(recorded, nothing).tolist() == [0, 0]


def test_a_batch_is_its_samples():
    model, (images, mask) = Linear(), setting()
    whole = right_reasons(lrptrain.record(model, images), mask)
    alone = [right_reasons(lrptrain.record(model, images[i : i + 1]), mask[i : i + 1]) for i in range(3)]
    torch.testing.assert_close(whole, torch.cat(alone))


def test_wrong_sizes():
    with pytest.raises(ValueError, match=r"annotation \(3, 2, 3\) must have the size of the input \(3, 3, 3\)"):
        right_reasons(lrptrain.record(Linear(), setting()[0]), setting()[1][:, :2])
