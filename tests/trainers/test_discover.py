from lrptrain.trainers.discover import find_model, logits_model

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
