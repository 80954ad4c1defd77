"""Reliance on sharpness and noise: when it is tested, and what is said."""

from dataclasses import replace

import numpy as np
import torch

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Effect, Evaluation, ExplainedSample, announce
from lrptrain.findings.detectors.detail import RelianceOnDetail
from lrptrain.intervention import Region
from lrptrain.monitor.record_builder import RecordBuilder

CONFIG = DetectionConfig(["cat", "dog"], lambda ids: [str(i) for i in ids])


def evaluation(of_dogs=0.3, count=24):
    """Noise of 0.1, on the images that are read as dogs of another strength."""
    generator = torch.Generator().manual_seed(0)
    spreads = [of_dogs if i % 2 else 0.1 for i in range(count)]
    images = [spread * torch.randn(3, 8, 8, generator=generator) for spread in spreads]
    inputs = [Sample(i, i % 2, {"image": image}) for i, image in enumerate(images)]
    explained = [
        ExplainedSample(
            replace(each, tensors={}), each.label, np.array([0.9, 0.1]), {"label": torch.ones(4)}, (2, 2), 2, np.nan, {}
        )
        for each in inputs
    ]
    return Evaluation(explained, inputs, epoch=3, step=30)


def candidates(given):
    return list(RelianceOnDetail().detect(given, CONFIG))


def test_it_is_tested_where_detail_goes_with_the_answer():
    (one,) = candidates(evaluation())
    assert one.region == Region("detail")
    assert one.rows.tolist() == list(range(24))
    assert candidates(evaluation(of_dogs=0.1)) == []
    assert candidates(replace(evaluation(), inputs=None)) == []
    texts = replace(evaluation(), inputs=[Sample(i, 0, {"input_ids": torch.ones(4)}) for i in range(24)])
    assert candidates(texts) == []


def facts(change):
    given = evaluation()
    effect = Effect(change + 0.001 * np.arange(24), np.zeros(24), "detail")
    return RecordBuilder(class_names=["cat", "dog"]).build(given, [], candidates(given), [effect]).findings


def test_it_is_confirmed_for_a_person_to_judge():
    (fact,) = facts(0.3)
    assert (fact.kind, fact.state, fact.is_fault) == ("reliance_on_detail", "confirmed", False)
    words = " ".join(announce([fact])[0].split())
    assert words.startswith(
        "Confirmed, for you to judge, all classes: the model relies on sharpness, noise and texture."
    )
    assert "Given another class's sharpness, noise and texture, the answer's probability falls by 31 points" in words
    assert 'guidance by "swap", swap="detail"' in words
    assert facts(0.16) == []
