"""A model whose output the step goes on with gives no logits, whatever its shape."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lrptrain.trainers.continuation import Continuation, way_out


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head, self.other = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(4, 6)

    def classify(self, image):
        return self.head(self.encoder(image))


class Whole(Parts):
    def forward(self, image):
        return self.classify(image)


def goes_on(net, model, step):
    listened = Continuation(model, net)
    step(torch.ones(3, 4))
    listened.stop()
    step(torch.ones(3, 4))
    return listened


@pytest.mark.parametrize("between", [lambda x: x, F.normalize, torch.relu])
def test_what_another_module_takes_is_no_logits(between):
    net = Parts()
    found = goes_on(net, net.encoder, lambda image: net.head(between(net.encoder(image))))
    assert found.name == "head"
    with pytest.raises(ValueError, match=r"the step gives what the model returns to 'head'.* model='classify'"):
        found.check("the step")


@pytest.mark.parametrize(
    "step",
    [
        lambda net, image: net(image),
        lambda net, image: (net(image), net.other(image)),  # another branch, of the same image
        lambda net, image: (net.other(image), net(image)),
        lambda net, image: (net.head(net.encoder(image)), net(image)),
    ],
)
def test_a_model_that_gives_the_logits_does(step):
    net = Whole()
    goes_on(net, net, lambda image: step(net, image)).check("the step")


def test_without_a_method_one_is_advised():
    assert "model.classify in place of the model" in way_out(Parts(), "step=")
    assert "such as logits(self, image), and pass model='logits'" in way_out(nn.Linear(1, 1))
