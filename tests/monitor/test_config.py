"""The options of a monitor: few arguments, the rest in groups, and a line for whoever uses an old name."""

import inspect
from dataclasses import fields
from typing import Any, cast

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

import lrptrain
from lrptrain.callbacks import RelevanceMonitor, RelevanceMonitorCallback
from lrptrain.cues.beside import Beside
from lrptrain.cues.cue import Role
from lrptrain.monitor.config import GROUPS, MonitorConfig

BATCH = {"image": torch.zeros(1, 3, 8, 8), "label": torch.zeros(1).long()}


def made(kind, **options):
    if kind in (lrptrain.Monitor, lrptrain.inspect):
        return kind(nn.Linear(2, 2), [BATCH], **options)
    return kind(**options)


EVERYWHERE = pytest.mark.parametrize(
    "kind", [RelevanceMonitor, RelevanceMonitorCallback, lrptrain.Monitor, lrptrain.inspect]
)


@EVERYWHERE
def test_an_option_of_a_group_is_refused_with_what_to_write(kind):
    with pytest.raises(TypeError) as refused:
        made(kind, mean=[0.5], seed=1, std=[0.2])
    assert "write show=lrptrain.Show(mean=..., std=...), judge=lrptrain.Judge(seed=...)" in str(refused.value)


@EVERYWHERE
def test_what_is_no_option_is_refused_with_those_that_there_are(kind):
    with pytest.raises(TypeError, match=r"no argument max_sample: it has annotate, batch_adapter, .*max_samples"):
        made(kind, max_sample=3)


@EVERYWHERE
def test_a_group_is_an_object_of_its_class(kind):
    with pytest.raises(TypeError, match=r"show must be lrptrain.Show\(...\), not \{'mean'"):
        made(kind, show={"mean": [0.5]})


@EVERYWHERE
def test_a_cue_of_a_role_of_earlier_versions_is_refused_with_those_of_today(kind):
    with pytest.raises(ValueError, match="a role is one of 'annotation', 'shortcut', 'unreviewed', not 'fault'"):
        made(kind, cues=[Beside(role=cast(Role, "fault"))])


@pytest.mark.parametrize("options", [{"judge": lrptrain.Judge(fail_on="relies")}, {"budget": 0.5}])
def test_an_inspection_has_no_run_to_end(options):
    with pytest.raises(ValueError, match="inspect looks once"):
        made(lrptrain.inspect, **options)


@pytest.mark.parametrize("kind", [RelevanceMonitorCallback, lrptrain.Monitor, lrptrain.inspect])
def test_a_dataloader_is_chosen_under_lightning_alone(kind):
    with pytest.raises(ValueError, match="dataloader_idx is of a Lightning Trainer"):
        made(kind, run=lrptrain.Run(dataloader_idx=1))


@pytest.mark.parametrize("form", [list, tuple, np.array, torch.tensor])
def test_a_normalisation_is_taken_in_any_form(form):
    show = lrptrain.Show(mean=form([0.5, 0.4, 0.3]), std=form([0.2, 0.2, 0.2]))
    batch = {"image": torch.randn(8, 3, 16, 16), "label": torch.arange(8) % 2}
    model = VisionTransformer(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=2)
    assert lrptrain.inspect(model, [batch], show=show).samples == 8


def test_none_stands_for_a_group_as_it_is():
    assert RelevanceMonitorCallback(show=None).config.show == RelevanceMonitor(show=None).config.show == lrptrain.Show()


def test_each_option_has_one_place():
    names = [each.name for group in GROUPS.values() for each in fields(group)]
    assert len(names) == len({*names})
    direct = {each.name for each in fields(MonitorConfig)}
    assert not direct & {*names}
    given = {*inspect.signature(RelevanceMonitor.__init__).parameters} - {"self", "unknown"}
    assert given == direct - {"kind"} | {"model"}
    assert len(given) <= 13


def test_an_option_arrives_where_it_is_used():
    monitor = RelevanceMonitor(
        show=lrptrain.Show(targets=["predicted"], mixing_ratios=True),
        judge=lrptrain.Judge(fail_on="inconclusive", fail_after=3),
        run=lrptrain.Run(name="a", batch_size=3, dataloader_idx=1),
    )
    assert monitor.config.targets == ["predicted"]
    assert monitor.config.title == "RelevanceMonitor 'a'"
    assert monitor.dataloader_idx == 1
    assert monitor.core.judging._required(at_end=False) == 3


def test_the_stages_of_a_monitor_share_no_key():
    core = RelevanceMonitor().core
    keys = [key for stage in core._stages for key in stage.state_dict()]
    assert len(keys) == len({*keys})
    assert core.state_dict().keys() == {*keys}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lrptrain.Show(targets="label"), "targets must be a list"),
        (lambda: lrptrain.Show(mean=[0.5]), "give both mean and std"),
        (lambda: lrptrain.Show(max_pictures=-1), "max_pictures must be at least 0"),
        (lambda: lrptrain.Judge(min_effect=0), "min_effect must lie between 0 and 1"),
        (lambda: lrptrain.Judge(confidence=1), "confidence must lie between 0 and 1"),
        (lambda: lrptrain.Judge(fail_on=cast(Any, "unreviewed")), "fail_on must be 'relies'"),
        (lambda: lrptrain.Judge(fail_after=0), "fail_after must be at least 1"),
        (lambda: lrptrain.Run(every_n_epochs=0), "every_n_epochs must be at least 1"),
        (lambda: lrptrain.Run(on_error=cast(Any, "ignore")), "on_error must be 'warn' or 'raise'"),
        (lambda: RelevanceMonitor(cues=None, judge=lrptrain.Judge(fail_on="relies")), "needs tests, and cues=None"),
        (lambda: RelevanceMonitor(cues=cast(Any, ["the corner"])), "cues must be frozen dataclasses"),
        (lambda: RelevanceMonitor(budget=1), "budget must be a share between 0 and 1, or None"),
        (lambda: RelevanceMonitor(budget=-0.1), "budget must be a share between 0 and 1, or None"),
        (lambda: RelevanceMonitor(method="magic"), "unknown method 'magic'; known are"),
        (lambda: RelevanceMonitor(method="lrp", show=lrptrain.Show(method_options={"magic": 1})), "of lrp 'magic'"),
        (lambda: RelevanceMonitor(show=lrptrain.Show(method_options={"target": 1})), "target"),
        (lambda: RelevanceMonitor(max_samples=0), "max_samples must be at least 1"),
        (lambda: lrptrain.Run(batch_size=0), "batch_size must be at least 1"),
        (lambda: lrptrain.Show(targets=["labels"]), "targets must be a list of some of"),
        (lambda: RelevanceMonitor(max_samples=cast(Any, 16.5)), "max_samples must be a whole number"),
        (lambda: RelevanceMonitor(max_samples=cast(Any, None)), "max_samples must be a whole number"),
        (lambda: lrptrain.Show(class_maps=cast(Any, "5")), "class_maps must be a whole number"),
        (lambda: lrptrain.Show(class_names=cast(Any, {0: "a"})), "class_names must be a list"),
        (lambda: lrptrain.Show(mean=[0.5], std=[0.0]), "std must be larger than 0"),
        (lambda: lrptrain.Show(targets=cast(Any, 1)), "targets must be a list"),
        (lambda: lrptrain.Judge(seed=-1), "seed must be at least 0"),
        (lambda: lrptrain.Judge(fail_after=cast(Any, 1.5)), "fail_after must be a whole number"),
        (lambda: lrptrain.Judge(min_effect=cast(Any, "5%")), "min_effect must lie between 0 and 1"),
        (lambda: lrptrain.Run(name=cast(Any, 3)), "name must be a text"),
        (lambda: lrptrain.Run(run_name=cast(Any, 3)), "run_name must be a text"),
    ],
)
def test_what_cannot_be_is_refused_at_once(make, message):
    with pytest.raises(ValueError, match=message):
        make()
