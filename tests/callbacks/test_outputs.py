"""Models that return more than logits: what a refusal says to write is taken, in every trainer."""

import re
from typing import Any

import own_trainers
import pytest
import torch
from own_trainers import N, in_a_loop, in_lightning, in_transformers
from torch import nn

import lrptrain
from lrptrain import UnsupportedModelError


class Outputs(nn.Module):
    """A classifier that returns its logits in some form, and its loss first where it is given labels."""

    def __init__(self, form):
        super().__init__()
        from setting import vit

        self.net, self.form = vit(), form

    def forward(self, image, labels=None):
        states = self.net.forward_features(image)
        output = self.form(self.net.forward_head(states), states)
        if labels is None:
            return output
        logits = self.net.forward_head(states)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


FORMS: dict[str, Any] = {
    "logits and states": (lambda logits, states: (logits, states), 0),
    "two heads": (lambda logits, states: {"malignancy": logits, "age": logits.flip(1)}, "malignancy"),
    "states and logits": (lambda logits, states: [states, logits], 1),
}
TRAINERS = [in_lightning, in_transformers, in_a_loop]
pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory", "ignore:.*LeafSpec", "ignore:The '.*_dataloader'")


@pytest.fixture(autouse=True)
def own_loss(monkeypatch):
    def logits(output):
        tensors = list(output.values()) if isinstance(output, dict) else list(output)
        return next(x for x in tensors if x.ndim == 2)

    monkeypatch.setattr(own_trainers.Module, "logits", staticmethod(logits))


def images():
    torch.manual_seed(0)
    return {"image": torch.randn(N, 3, 16, 16)}


@pytest.mark.parametrize("train", TRAINERS)
@pytest.mark.parametrize("title", FORMS)
def test_the_task_that_a_refusal_names_is_taken(title, train, tmp_path):
    form, head = FORMS[title]
    model, columns = Outputs(form), images()
    with pytest.raises(UnsupportedModelError, match=r"must return logits .* take task=lrptrain.Head\(") as raised:
        train(tmp_path / "refused", model, columns, {})
    advice = re.search(r"task=(lrptrain\.Head\(.*?\))", str(raised.value))
    assert advice is not None
    task = eval(advice[1])
    assert task == lrptrain.Head(head)
    watching = train(tmp_path / "taken", model.train(), columns, {"task": task})
    own = model.net.eval()(columns["image"]).argmax(1)
    assert [each.predicted for each in sorted(watching.scored, key=lambda each: each.sample.sample_id)] == own.tolist()


@pytest.mark.parametrize("train", TRAINERS)
def test_a_model_without_a_row_of_classes_is_told_so(train, tmp_path, monkeypatch):
    monkeypatch.setattr(own_trainers.Module, "logits", staticmethod(lambda output: output[:, 0]))
    model = Outputs(lambda logits, states: torch.stack([logits] * 4, 1))
    with pytest.raises(UnsupportedModelError, match="explain one class per sample, and none of this is a row"):
        train(tmp_path, model, images(), {})


def test_heads_have_tasks_of_their_own():
    task = lrptrain.Head("grade", lrptrain.Regression(2.0, 1.0))
    assert task.class_names == ["below 2", "above 2"]
    assert task.description == "lrptrain.Head(output='grade', task=Regression(mean=2.0, std=1.0))"
    assert task.classes(torch.tensor([1.0, 3.0])).tolist() == [0, 1]
