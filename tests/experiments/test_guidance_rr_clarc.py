"""RR-ClArC of experiments/guidance against its formulas."""

import torch
from torch import nn

from experiments.guidance import rr_clarc
from experiments.guidance.arms import Arm
from experiments.guidance.fitting import Trained

SINGLE = 1e-5
"""Of float32: sums of some ten products of numbers around 1."""


class Network(nn.Module):
    """Two blocks on tokens, of which the second bends; the logits are of the mean token."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 4)
        self.blocks = nn.Sequential(self.first, nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.blocks(x.flatten(2).transpose(1, 2)).mean(1))


def inputs(batch):
    return {"x": batch["image"]}


def test_a_pattern_is_the_difference_of_means():
    generator = torch.Generator().manual_seed(0)
    activations = torch.randn(20, 4, generator=generator)
    member = torch.arange(20) < 6
    difference = activations[:6].mean(0) - activations[6:].mean(0)
    found = rr_clarc.pattern(activations, member)
    assert torch.allclose(found, difference / difference.norm(), atol=SINGLE)


def test_the_penalty_is_the_squared_derivative_where_all_tokens_move():
    net = Network().double()
    image = torch.randn(5, 3, 2, 2, generator=torch.Generator().manual_seed(1)).double()
    directions = [torch.eye(4)[:2], torch.eye(4)[1:3]]
    signs = torch.tensor([[1.0, -1.0]] * 5).double()
    with rr_clarc.block_outputs(net) as outputs:
        logits = net(image)
    found = rr_clarc.penalty((signs * logits).sum(), outputs, torch.ones(5, 4), directions)

    def moved(block, direction, step):
        with torch.no_grad():
            tokens = net.blocks[0](image.flatten(2).transpose(1, 2))
            tokens = tokens + step * direction if block == 0 else net.blocks[1](tokens) + step * direction
            tokens = net.blocks[1](tokens) if block == 0 else tokens
            return (signs * net.head(tokens.mean(1))).sum(1)

    # Central differences: an error of step^2, 1e-8, beside rounding of 1e-12.
    step = 1e-4
    squares = [
        sum(((moved(block, h.double(), step) - moved(block, h.double(), -step)) / (2 * step)) ** 2 for h in rows).mean()
        for block, rows in enumerate(directions)
    ]
    assert torch.allclose(found.double(), torch.stack(squares).mean(), rtol=SINGLE)


def test_a_direction_is_that_of_the_surroundings_and_training_against_it_unlearns_it():
    """Surroundings in the colour of the class; what is evidence is grey."""
    label = torch.arange(40) % 2
    image = torch.zeros(40, 3, 4, 4)
    image[torch.arange(40), label] = 1.0
    mask = torch.zeros(40, 4, 4, dtype=torch.uint8)
    mask[:, 1:3, 1:3] = 1
    image[:, :, 1:3, 1:3] = 0.5
    net = Network()
    annotated = {"image": image, "mask": mask, "label": label}
    directions = rr_clarc.shortcut_directions(net, inputs, annotated, 2, seed=0)
    # The first block is linear: red for class 0 in place of green, whatever lies inside.
    expected = net.first.weight.detach() @ torch.tensor([1.0, -1.0, 0.0])
    assert torch.allclose(directions[0][0], expected / expected.norm(), atol=1e-4)
    assert torch.allclose(directions[0][1], -directions[0][0], atol=1e-4)

    def along(factor):
        trained = Trained(Network(), inputs, Arm(), 0.1)
        corrected = rr_clarc.Corrected(trained, directions, factor, seed=0)
        optimizer = torch.optim.SGD(corrected.parameters(), lr=0.1)
        for _ in range(30):
            optimizer.zero_grad()
            corrected.training_step({"image": image, "label": label}, 0).backward()
            optimizer.step()
        with rr_clarc.block_outputs(corrected.net) as outputs:
            difference = corrected.net(image) @ torch.tensor([1.0, -1.0])
        return rr_clarc.penalty(difference.sum(), outputs, torch.ones(40, 16), directions).item()

    assert along(10.0) < 0.1 * along(0.0)
