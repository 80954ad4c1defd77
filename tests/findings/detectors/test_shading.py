"""Reliance on how light falls across images: when it is tested, and what is said."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Effect, Evaluation, ExplainedSample, announce
from lrptrain.findings.detectors.shading import RelianceOnShading
from lrptrain.findings.detectors.unlocated import goes_with_the_answer
from lrptrain.intervention import Region
from lrptrain.intervention.shading import TERMS, shading
from lrptrain.monitor.record_builder import RecordBuilder

CONFIG = DetectionConfig(["cat", "dog"], lambda ids: [str(i) for i in ids])


def evaluation(slope=1.0, count=24, channels=(1.0, 1.0, 1.0), seed=0):
    """Noise, on the images that are read as dogs a ramp of light from left to right."""
    generator = torch.Generator().manual_seed(seed)
    ramp = torch.tensor(channels)[:, None, None] * torch.linspace(-1, 1, 8)
    images = [torch.randn(3, 8, 8, generator=generator) + (slope * ramp if i % 2 else 0) for i in range(count)]
    inputs = [Sample(i, i % 2, {"image": image}) for i, image in enumerate(images)]
    explained = [
        ExplainedSample(
            replace(each, tensors={}), each.label, np.array([0.9, 0.1]), {"label": torch.ones(4)}, (2, 2), 2, np.nan, {}
        )
        for each in inputs
    ]
    return Evaluation(explained, inputs, epoch=3, step=30)


def candidates(given):
    return list(RelianceOnShading().detect(given, CONFIG))


def test_it_is_tested_where_light_goes_with_the_answer():
    (one,) = candidates(evaluation())
    assert one.region == Region("shading")
    assert one.rows.tolist() == list(range(24))
    assert candidates(evaluation(0)) == []
    assert candidates(replace(evaluation(), inputs=None)) == []
    texts = replace(evaluation(), inputs=[Sample(i, 0, {"input_ids": torch.ones(4)}) for i in range(24)])
    assert candidates(texts) == []


def test_its_terms_together_are_wrong_no_more_often_than_one_test():
    # Of pictures without a relation, those in which one of the terms passes a test by itself.
    passing = 0
    for seed in range(40):
        given = evaluation(0, seed=seed)
        terms = shading(torch.stack([each.tensors["image"] for each in given.inputs])).mean(1).numpy()
        predicted = np.array([each.predicted for each in given.samples])
        alone = [goes_with_the_answer(term, predicted, CONFIG.confidence) for term in terms.T]
        strictly = [goes_with_the_answer(term, predicted, 1 - 0.05 / len(TERMS)) for term in terms.T]
        assert bool(candidates(given)) == any(strictly)
        passing += any(alone) and not any(strictly)
    assert passing > 3


def facts(change, count):
    given = evaluation(count=count)
    (one,) = candidates(given)
    falls = change + 0.001 * np.arange(len(one.rows))
    effect = Effect(falls, np.zeros(len(falls)), "shading")
    return RecordBuilder(class_names=["cat", "dog"]).build(given, [], [one], [effect]).findings


@pytest.mark.parametrize(
    ("change", "count", "found"), [(0.36, 24, True), (0.33, 24, False), (0.26, 40, True), (0.22, 40, False)]
)
def test_it_is_confirmed_for_a_person_to_judge(change, count, found):
    # From 32 images on it is known that the ramp tells the class, so that answers have to move less.
    confirmed = facts(change, count)
    assert bool(confirmed) == found
    for fact in confirmed:
        assert (fact.kind, fact.state, fact.is_fault) == ("reliance_on_shading", "confirmed", False)
        words = " ".join(announce([fact])[0].split())
        assert words.startswith(
            "Confirmed, for you to judge, all classes: the model relies on how light falls across the image. Lit like"
        )
        assert 'guidance by "swap", swap="shading"' in words
