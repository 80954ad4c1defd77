"""Reliance on sharpness and noise: when it is tested, and what is said."""

from dataclasses import replace

import numpy as np
import torch

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Effect, Evaluation, ExplainedSample, Finding, announce
from lrptrain.findings.detectors.detail import RelianceOnDetail
from lrptrain.intervention import Region
from lrptrain.monitor.record_builder import RecordBuilder

CONFIG = DetectionConfig(["cat", "dog"], lambda ids: [str(i) for i in ids])


def evaluation(of_dogs=0.3, count=24, side=8):
    """Noise of 0.1, on the images that are read as dogs of another strength."""
    generator = torch.Generator().manual_seed(0)
    spreads = [of_dogs if i % 2 else 0.1 for i in range(count)]
    images = [spread * torch.randn(3, side, side, generator=generator) for spread in spreads]
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


def with_fringes(given):
    """Red noise is blue's, moved by a pixel: down in images of dogs, across in those of cats. Its strength is one."""

    def fringed(sample):
        image = sample.tensors["image"].clone()
        image[2] = image[0].roll(1, 0 if sample.label else 1)
        return replace(sample, tensors={"image": image})

    return replace(given, inputs=[fringed(each) for each in given.inputs])


def test_it_is_tested_where_a_pattern_along_the_edges_tells_the_class():
    plain = evaluation(of_dogs=0.1, count=48)
    assert candidates(plain) == []
    (one,) = candidates(with_fringes(plain))
    assert one.finding.association > 0.5


def test_the_middle_does_not_count_for_what_tells_the_class():
    given = evaluation(of_dogs=0.1, count=48, side=16)
    for sample in given.inputs[1::2]:
        sample.tensors["image"][:, 5:-5, 5:-5] *= 3
    (one,) = candidates(given)  # for the strength of its detail
    assert one.finding.association < 0.2


def facts(change, given):
    (one,) = candidates(given)
    falls = change + 0.001 * np.arange(len(one.rows))
    effect = Effect(falls, np.zeros(len(falls)), "detail")
    return RecordBuilder(class_names=["cat", "dog"]).build(given, [], [one], [effect]).findings


def test_it_is_confirmed_for_a_person_to_judge():
    (fact,) = facts(0.3, evaluation())
    assert (fact.kind, fact.state, fact.is_fault) == ("reliance_on_detail", "confirmed", False)
    words = " ".join(announce([fact])[0].split())
    assert words.startswith(
        "Confirmed, for you to judge, all classes: the model relies on sharpness, noise and patterns."
    )
    assert "Given another class's sharpness, noise and patterns, the answer's probability falls by 31 points" in words
    assert 'guidance by "swap", swap="detail"' in words
    assert "kappa" not in str(fact)


def test_where_it_tells_the_class_answers_have_to_move_less():
    assert facts(0.2, evaluation()) == []
    (fact,) = facts(0.2, with_fringes(evaluation(of_dogs=0.1, count=48)))
    assert "no map can show it, for it lies at no place; along the edges alone, it tells the class" in str(fact)
    assert facts(0.15, with_fringes(evaluation(of_dogs=0.1, count=48))) == []
    assert Finding.from_dict(fact.to_dict()).association == fact.association
