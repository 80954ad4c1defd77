"""Which module runs: the innermost one of the model, called with or without its hooks."""

import torch
from torch import nn

from lrptrain.relevance.tape.running import RunningModule


class Told(nn.Module):
    """Notes which module runs while it does."""

    def __init__(self, names):
        super().__init__()
        self.names = names

    def forward(self, x):
        self.names.append(NOW[-1].name())
        return x


class Twice(Told):
    def forward(self, x):
        return super().forward(x)


class Direct(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner.forward(x)


NOW: list[RunningModule] = []


def names(build):
    found: list[str] = []
    model = build(found)
    NOW.append(RunningModule(model))
    model(torch.zeros(1))
    NOW.pop()
    return found


def test_modules_of_one_class():
    assert names(lambda found: nn.Sequential(Told(found), Twice(found), Told(found))) == ["0", "1", "2"]


def test_a_forward_without_hooks():
    assert names(lambda found: nn.Sequential(Direct(Told(found)), Direct(Twice(found)))) == ["0.inner", "1.inner"]


def test_hooks_and_decorations():
    def hooked(found):
        model = nn.Sequential(Told(found), Direct(Told(found)))
        for module in model.modules():
            module.register_forward_hook(lambda *_: None)
        return model

    assert names(hooked) == ["0", "1.inner"]


def test_a_module_that_is_not_of_the_model_counts_as_the_one_that_calls_it():
    class Making(nn.Module):
        def __init__(self, found):
            super().__init__()
            self.found = found

        def forward(self, x):
            return Told(self.found)(x)

    assert names(lambda found: nn.Sequential(Making(found))) == ["0"]


def test_outside_of_a_model_it_is_the_model_itself():
    assert RunningModule(nn.Linear(1, 1)).name() == ""
