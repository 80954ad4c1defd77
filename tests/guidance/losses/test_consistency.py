"""The divergence of two predictions."""

import torch

from lrptrain.cues.surroundings import Surroundings
from lrptrain.guidance import consistency
from lrptrain.guidance.losses.consistency import divergences


def square(samples: int, size: int = 7) -> torch.Tensor:
    mask = torch.zeros(samples, size, size, dtype=torch.uint8)
    mask[:, 3, 3] = 1
    return mask


def test_consistency_is_the_divergence_of_the_annotated():
    logits, swapped = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    annotated = torch.tensor([True, True, False, True, False])
    p, q = (torch.distributions.Categorical(logits=x[annotated]) for x in (logits, swapped))
    expected = torch.distributions.kl_divergence(p, q).mean()
    torch.testing.assert_close(consistency(logits, swapped, annotated), expected)
    assert consistency(logits, logits, annotated) == 0
    assert consistency(logits, swapped, torch.zeros(5, dtype=torch.bool)) == 0
    both = (logits.requires_grad_(), swapped.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, y: consistency(x, y, annotated), both)


def test_a_single_logit_is_one_of_two():
    one, other = torch.tensor([[[0.3], [-1.0]], [[1.0], [2.0]]], dtype=torch.float64)
    as_two = divergences(torch.cat([torch.zeros_like(one), one], 1), torch.cat([torch.zeros_like(other), other], 1))
    torch.testing.assert_close(divergences(one, other), as_two)
    assert (as_two > 0).all()


def test_gradients_of_consistency_at_the_weights():
    """Both the images as they are and the swapped ones move the weights."""
    generator = torch.Generator().manual_seed(0)
    images, mask = torch.randn(3, 1, 3, 3, dtype=torch.float64, generator=generator), square(3, 7)[:, 2:5, 2:5]
    batch = {"image": images, "mask": mask}
    swapped = Surroundings().exchange(batch, {name: x.roll(1, 0) for name, x in batch.items()})["image"]
    annotated = torch.ones(3, dtype=torch.bool)
    weight = torch.randn(9, 4, dtype=torch.float64, generator=generator, requires_grad=True)

    def loss(weight, other):
        return consistency(images.flatten(1) @ weight, swapped.flatten(1) @ other, annotated)

    assert torch.autograd.gradcheck(lambda x: loss(x, x), weight)
    one, other = (
        torch.autograd.grad(loss(weight, weight.detach()), weight),
        torch.autograd.grad(loss(weight.detach(), weight), weight),
    )
    assert one[0].any()
    assert other[0].any()
