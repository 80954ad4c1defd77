"""What a recording serves: the label, the predicted class, and the further classes of samples that are drawn."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from small_models import tiny_vit

import lrptrain
from lrptrain.batch import Sample
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.relevance import attribute
from lrptrain.relevance.passes import recording


@pytest.fixture(scope="module")
def model():
    return tiny_vit(num_classes=5).double().eval()


def samples(model, misread: int, count: int = 6):
    """Samples of which the first `misread` have another label than the model's prediction."""
    images = torch.randn(count, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    predicted = model(images).argmax(1).tolist()
    labels = [(each + 1) % 5 if i < misread else each for i, each in enumerate(predicted)]
    return [Sample(i, label, {"image": image}) for i, (label, image) in enumerate(zip(labels, images, strict=True))]


def passes_of(model, work, before=()):
    """The number of samples of every forward pass, and what was made, once other work was done."""
    sizes: list[int] = []
    hook = model.head.register_forward_hook(lambda _, arguments, __: sizes.append(len(arguments[0])))
    for each in before:  # here: a model with another hook would be another one, with plans and tokens to be found
        each()
    sizes.clear()
    made = work()
    hook.remove()
    return sizes, made


def single(model, sample, target, method="attnlrp"):
    return attribute(model, sample.tensors["image"][None], target, method).scores[0].numpy()


# A recording costs half as much as a walk back: three walks of six samples, or two and a recording of one.
WALKED = [(0, [6]), (1, [6, 1]), (3, [6]), (6, [6])]
BY_PLAN = [(0, [6]), (1, [6, 1]), (3, [6, 3]), (6, [6, 6])]


@pytest.mark.parametrize(
    ("method", "misread", "passes"),
    [("epsilon_lrp", *each) for each in WALKED] + [("attnlrp", *each) for each in BY_PLAN],
)
def test_the_label_and_the_predicted_class_share_a_recording_where_many_differ(
    model, method, misread, passes, monkeypatch
):
    evaluator = Evaluator(model, MonitorConfig(), method=method)
    given = samples(model, misread)
    recorded: list[Any] = []
    run = recording._run_on

    def noted(*arguments):
        recorded.append(arguments)
        return run(*arguments)

    monkeypatch.setattr(recording, "_run_on", noted)
    plans = [partial(evaluator.evaluate, samples(model, each)) for each in (6, 1)]
    sizes, explained = passes_of(model, lambda: evaluator.evaluate(given), [*plans, recorded.clear])
    assert sizes == passes
    assert bool(recorded) == (method == "epsilon_lrp"), "a map by a plan needs no tape"
    for each, sample in zip(explained, given, strict=True):
        for target, of_class in (("label", sample.label), ("predicted", each.predicted)):
            expected = single(model, sample, of_class, method)
            np.testing.assert_allclose(each.maps[target], expected, rtol=1e-9, atol=1e-14)


def test_drawn_samples_have_the_maps_of_further_classes_from_the_same_recording(model):
    config = MonitorConfig(run=lrptrain.Run(batch_size=4))
    evaluator = Evaluator(model, config, method="attnlrp", class_maps=3)
    given = samples(model, misread=2)
    given_alone = samples(model, misread=1)
    plans = [partial(evaluator.evaluate, x) for x in (given, given_alone)]
    sizes, explained = passes_of(model, lambda: evaluator.evaluate(given, drawn={1, 3, 5}), plans)
    assert [each.sample.sample_id for each in explained] == [1, 3, 5, 0, 2, 4]
    # Sample 1 is one of three that are misread, sample 0 another; no class map takes a pass.
    assert sizes == [3, 1, 3, 1]
    for each in explained:
        drawn = each.sample.sample_id % 2 == 1
        known = {each.sample.label, each.predicted}
        most_probable = [x for x in np.argsort(-each.probabilities) if x not in known][: 3 - len(known)]
        assert list(each.class_maps) == (most_probable if drawn else [])
        for of_class, found in each.class_maps.items():
            np.testing.assert_allclose(found, single(model, each.sample, of_class), rtol=1e-9, atol=1e-14)
    sizes, maps = passes_of(model, lambda: evaluator.class_maps_of(explained[:3], [*"abcde"]))
    assert sizes == []
    assert len(maps) == 9


def test_a_further_class_that_fails_leaves_the_scores_and_is_tried_again(model, monkeypatch):
    from lrptrain.monitor import evaluator as module

    def fails(*_):
        raise RuntimeError("no memory for this map")

    evaluator = Evaluator(model, MonitorConfig(), method="attnlrp")
    with monkeypatch.context() as patch:
        patch.setattr(module, "explain_classes", fails)
        explained = evaluator.evaluate(samples(model, misread=1), drawn={0, 1})
    assert [each.class_maps for each in explained] == [{}] * 6
    assert len(evaluator.class_maps_of(explained[:2], [*"abcde"])) == 10
