"""A model that is explained in train mode is told of, once, unless the map is trained through."""

import warnings
from functools import partial
from typing import Any

import pytest
import torch
from small_models import Small, patches
from torch import nn

import lrptrain


def silent(model: nn.Module, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lrptrain.attribute(model, patches(), 1, "input_x_gradient", **options)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("module", [nn.Dropout(0.5), nn.BatchNorm1d(16).double()])
def test_it_is_said_once(module, recorded):
    model = Small(module).train()
    recording = lrptrain.record(model, patches())
    explain = recording.attribute if recorded else partial(lrptrain.attribute, model, patches())
    with pytest.warns(lrptrain.RelevanceWarning, match=r"train mode.*'between'.*model.eval\(\)") as caught:
        explain(1, "input_x_gradient")
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    silent(model)


def test_what_changes_nothing_is_not_said():
    silent(Small(nn.Dropout(0.5)).eval())
    silent(Small(nn.Dropout(0.0)).train())
    silent(Small().train())


def test_who_trains_through_a_map_means_it():
    torch.manual_seed(0)
    silent(Small(nn.Dropout(0.5)).train(), create_graph=True)
