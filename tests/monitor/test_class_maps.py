"""Maps of other classes: those of single calls, for the classes that were asked for, from one forward pass."""

from typing import Any

import numpy as np
import pytest
import torch
from hugging_face import small_sizes
from small_models import tiny_vit
from transformers import BertConfig, BertForSequenceClassification

from lrptrain.batch import Sample
from lrptrain.monitor.config import MonitorConfig, Run, Show
from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.relevance import attribute

NAMES = [f"class {i}" for i in range(5)]


@pytest.fixture(scope="module")
def model():
    return tiny_vit(num_classes=5).double().eval()


def images(count=6):
    drawn = torch.randn(count, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return [Sample(f"s{i}", i % 6 - 1, {"image": image}) for i, image in enumerate(drawn)]  # the first has no label


def made(model, method="attnlrp", class_maps=5, **show):
    config = MonitorConfig(show=Show(**show), run=Run(batch_size=4))
    return Evaluator(model, config, method=method, class_maps=class_maps)


def explained(model, samples, **options):
    evaluator = made(model, **options)
    shown = evaluator.evaluate(samples)
    return shown, evaluator.class_maps_of(shown, NAMES)


def known(one: ExplainedSample):
    return {{"label": one.sample.label, "predicted": one.predicted}[target] for target in one.maps}


def of(found, one):
    return [each for each in found if each.sample_id == one.sample.sample_id]


@pytest.mark.parametrize("method", ["attnlrp", "transformer_attribution"])
def test_each_map_is_that_of_a_single_call(model, method):
    shown, found = explained(model, images(), method=method)
    for one in shown:
        for each in of(found, one):
            target = NAMES.index(each.class_name)
            single = attribute(model, one.sample.tensors["image"][None], target, method)
            np.testing.assert_allclose(each.relevance, single.scores[0].numpy(), rtol=1e-9, atol=1e-14)
            assert each.probability == one.probabilities[target]


@pytest.mark.parametrize("targets", [("label", "predicted"), ("label",), ("predicted",)])
@pytest.mark.parametrize("most", [1, 3, 5, 99])
def test_the_most_probable_classes_come_first_and_none_twice(model, most, targets):
    shown, found = explained(model, images(), class_maps=most, targets=targets)
    assert any(len(known(one)) == 2 for one in shown) == (targets == ("label", "predicted"))
    for one in shown:
        ranked = np.argsort(-one.probabilities)
        others = [target for target in ranked if target not in known(one)][: max(most - len(known(one)), 0)]
        expected = [NAMES[target] for target in ranked if target in {*known(one), *others}]
        assert [each.class_name for each in of(found, one)] == expected


@pytest.mark.parametrize("options", [{"class_maps": 0}, {"method": "rollout"}])
def test_none_are_made_where_none_are_asked_for_or_all_are_alike(model, options):
    assert explained(model, images(), **options)[1] == []


def test_one_forward_pass_serves_all_classes_of_a_batch(model):
    passed = []
    hook = model.head.register_forward_hook(lambda *_: passed.append(1))
    evaluator = made(model)
    shown = evaluator.evaluate(images())
    passed.clear()
    assert len(evaluator.class_maps_of(shown, NAMES)) == 6 * 5
    hook.remove()
    assert len(passed) == 2  # batches of 4 and 2


def test_a_single_logit_has_two_classes():
    model = tiny_vit(num_classes=1).double().eval()
    shown, maps = explained(model, [Sample(0, -1, images()[0].tensors)])
    both = sorted((float(each.probabilities[k]), k) for each in shown for k in (0, 1))[::-1]
    assert [(found.probability, found.class_name) for found in maps] == [(p, NAMES[k]) for p, k in both]
    torch.testing.assert_close(maps[0].relevance, -maps[1].relevance, rtol=1e-10, atol=0)
    assert made(torch.nn.Identity()).class_maps_of([], NAMES) == []


def test_texts_have_a_value_for_each_token():
    torch.manual_seed(0)
    sizes: dict[str, Any] = {**small_sizes(16), "num_labels": 5}
    bert = BertForSequenceClassification(BertConfig(vocab_size=30, **sizes)).double().eval()
    lengths = (4, 7, 5)
    ids = [torch.randint(1, 30, (length,)) for length in lengths]
    samples = [Sample(i, i, {"input_ids": own, "attention_mask": torch.ones_like(own)}) for i, own in enumerate(ids)]
    shown, found = explained(bert, samples)
    for one, length in zip(shown, lengths, strict=True):
        for each in of(found, one):
            single = attribute(
                bert, {"input_ids": ids[one.sample.label][None]}, NAMES.index(each.class_name), "attnlrp"
            )
            assert len(each.relevance) == length
            np.testing.assert_allclose(each.relevance, single.scores[0].numpy(), rtol=1e-8, atol=1e-14)
