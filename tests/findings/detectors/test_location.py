"""Reliance on the place of the annotated object: when it is tested, and what is said."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Effect, Evaluation, ExplainedSample, announce
from lrptrain.findings.detectors.location import RelianceOnLocation
from lrptrain.findings.detectors.size import RelianceOnSize
from lrptrain.findings.detectors.unlocated import annotated_objects, goes_with_the_answer
from lrptrain.intervention import Region
from lrptrain.monitor.record_builder import RecordBuilder

CONFIG = DetectionConfig(["cat", "dog"], lambda ids: [str(i) for i in ids])


def evaluation(down=0, across=0, larger=0, count=24):
    """Objects of 3 x 3 pixels in 16 x 16; those that are read as dogs lie elsewhere, or are larger."""
    inputs = []
    for i in range(count):
        dog = i % 2
        top = 2 + i % 3 + dog * down
        left = 2 + i // 3 % 3 + dog * across
        mask = torch.zeros(16, 16, dtype=torch.uint8)
        # As much on every side, so that the middle stays.
        mask[top - dog * larger : top + 3 + dog * larger, left - dog * larger : left + 3 + dog * larger] = 1
        inputs.append(Sample(i, dog, {"image": torch.zeros(3, 16, 16), "mask": mask}))
    explained = [
        ExplainedSample(
            replace(each, tensors={}), each.label, np.array([0.9, 0.1]), {"label": torch.ones(4)}, (2, 2), 2, np.nan, {}
        )
        for each in inputs
    ]
    return Evaluation(explained, inputs, epoch=3, step=30)


def regions(given, detector=None):
    detectors = [detector] if detector else [RelianceOnLocation(), RelianceOnSize()]
    return [each.region for one in detectors for each in one.detect(given, CONFIG)]


@pytest.mark.parametrize(
    ("elsewhere", "tested"),
    [
        ({}, []),
        ({"down": 6}, [Region("location")]),
        ({"across": 6}, [Region("location")]),
        ({"larger": 1}, [Region("size")]),
        ({"down": 6, "larger": 1}, [Region("location"), Region("size")]),
    ],
)
def test_each_is_tested_where_it_goes_with_the_answer(elsewhere, tested):
    assert regions(evaluation(**elsewhere)) == tested


def test_a_size_is_that_of_the_area():
    given = evaluation()
    for i, sample in enumerate(given.inputs):
        sample.tensors["mask"].zero_()[4:8, 5 : 8 + 3 * (i % 2)] = 1
    assert regions(given, RelianceOnSize()) == [Region("size")]


def test_either_of_two_axes_must_be_as_unlikely_as_both_may_be():
    # 8 of 12 dogs and 3 of 12 cats lie in the lower half, for which p is 0.045.
    given = evaluation()
    for i, sample in enumerate(given.inputs):
        low = (i // 2) % 12 < (8 if i % 2 else 3)
        sample.tensors["mask"].zero_()[2 + 6 * low : 5 + 6 * low, 5:8] = 1
    boxes = annotated_objects(given)[1]
    predicted = np.array([sample.predicted for sample in given.samples])
    rows = [box.top + box.bottom for box in boxes]
    assert goes_with_the_answer(rows, predicted, CONFIG.confidence)
    assert not goes_with_the_answer(rows, predicted, 1 - (1 - CONFIG.confidence) / 2)
    assert regions(given, RelianceOnLocation()) == []


def test_the_annotated_images_are_tested_all_of_a_few():
    given = evaluation(down=6, larger=1)
    for sample in given.inputs[:4]:
        sample.tensors["mask"].zero_()
    for detector in (RelianceOnLocation(), RelianceOnSize()):
        (candidate,) = detector.detect(given, CONFIG)
        assert candidate.rows.tolist() == list(range(4, 24))


def test_neither_is_tested_without_an_intervention_an_annotation_one_shape_or_an_image():
    given = evaluation(down=6, larger=1)
    assert regions(replace(given, inputs=None)) == []
    bare = [Sample(i, 0, {"image": torch.zeros(3, 16, 16)}) for i in range(24)]
    assert regions(replace(given, inputs=bare)) == []
    wider = [*given.inputs[1:], Sample(0, 0, {"image": torch.zeros(3, 16, 20)})]
    assert regions(replace(given, inputs=wider)) == []
    texts = [Sample(i, 0, {"input_ids": torch.ones(4)}) for i in range(24)]
    assert regions(replace(given, inputs=texts)) == []
    series = replace(given, samples=[replace(each, grid=None) for each in given.samples])
    assert regions(series) == []


@pytest.mark.parametrize(
    ("detector", "said", "done", "remedy"),
    [
        (RelianceOnLocation(), "where the annotated object lies.", "Put where another class's object lies", "shifts"),
        (RelianceOnSize(), "how large the annotated object is.", "Made as large as another class's object", "scales"),
    ],
)
def test_what_moves_far_enough_is_confirmed_for_a_person_to_judge(detector, said, done, remedy):
    given = evaluation(down=6, larger=1)
    candidates = list(detector.detect(given, CONFIG))

    def facts(change):
        effect = Effect(change + 0.001 * np.arange(12), np.zeros(12), candidates[0].region.kind)
        return RecordBuilder(class_names=["cat", "dog"]).build(given, [], candidates, [effect]).findings

    (fact,) = facts(0.16)
    assert (fact.kind, fact.state, fact.is_fault) == (detector.kind, "confirmed", False)
    words = " ".join(announce([fact])[0].split())
    assert words.startswith(f"Confirmed, for you to judge, all classes: the model relies on {said} {done}")
    assert remedy in words
    assert facts(0.13) == []
