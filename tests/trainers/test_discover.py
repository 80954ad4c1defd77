"""Which module is the model, and what guides it."""

import copy

import torch
from torch import nn

from lrptrain.trainers.discover import Method, find_model, guided_by, logits_model, methods_of, note_guided, title_of

CODE = """
import pytorch_lightning as pl
from torch import nn

class Made(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.head = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.net(x))
"""


def test_a_class_that_was_made_by_exec_has_a_forward_of_its_own():
    space: dict = {}
    exec(CODE, space)
    made = space["Made"]()
    assert type(made).forward.__module__ is None
    assert find_model(made, None) is made
    assert logits_model(made) is made


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(4, 6), nn.Linear(6, 2)

    def logits(self, image, scale=1.0):
        return scale * self.head(self.encoder(image))

    def _hidden(self):
        pass

    def train(self, mode=True):
        return super().train(mode)


def test_a_method_may_be_the_model_until_it_is_given_back():
    net = Parts()
    assert methods_of(net) == ["logits"]
    model, image, seen = find_model(net, "logits"), torch.ones(2, 4), []
    assert isinstance(model, Method)
    assert find_model(net, "logits") is model
    assert title_of(model) == "Parts.logits"
    model.register_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(net.logits(image, scale=2.0), 2 * net.head(net.encoder(image)))
    assert seen == [1]
    assert set(net.state_dict()) == set(Parts().state_dict())
    assert {*model.parameters()} == {*net.parameters()}
    copied = copy.deepcopy(net)
    assert vars(copied)["logits"].owner is copied
    model.release()
    assert "logits" not in vars(net)
    net.logits(image)
    assert seen == [1]
    model.release()


def test_the_forward_of_a_module_is_the_module():
    net = Parts()
    assert find_model(net, "encoder.forward") is net.encoder


def test_what_guides_a_part_guides_the_whole():
    part = nn.Linear(2, 2)
    whole = nn.Sequential(nn.Linear(2, 2), part)
    assert guided_by(whole) == ()
    note_guided(part, ["swap", "energy"])
    assert guided_by(whole) == guided_by(part) == ("swap", "energy")
    assert guided_by(whole[0]) == ()
