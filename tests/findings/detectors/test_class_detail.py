"""A class whose images stand out by their fine detail: which one is tested, and on whose images."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Evaluation, ExplainedSample, Scope
from lrptrain.findings.detectors.class_detail import DetailOfClass
from lrptrain.findings.detectors.class_statistics import StatisticsOfClass
from lrptrain.findings.detectors.detail import RelianceOnDetail
from lrptrain.findings.detectors.statistics import RelianceOnStatistics
from lrptrain.findings.detectors.unlocated import MOST_JUDGED
from lrptrain.findings.facts import fact_of
from lrptrain.findings.verdicts import demanded_effect
from lrptrain.intervention import Region

NAMES = ["cat", "dog", "ship", "frog"]
CONFIG = DetectionConfig(NAMES, lambda ids: [str(i) for i in ids])


def evaluation(change, classes=4, count=96, dtype=torch.float32):
    """Noise as strong as chance says, of which that of the third class is changed."""
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.random((count, 1, 1, 1)) * rng.random((count, 3, 16, 16))).float()
    labels = np.arange(count) % classes
    third = torch.from_numpy(labels == 2)
    images[third] = change(images[third])
    images = images.to(dtype)
    inputs = [Sample(i, int(labels[i]), {"image": images[i]}) for i in range(count)]
    explained = [
        ExplainedSample(
            replace(each, tensors={}),
            each.label,
            np.eye(4)[each.label],
            {"label": torch.ones(16)},
            (4, 4),
            4,
            np.nan,
            {},
        )
        for each in inputs
    ]
    return Evaluation(explained, inputs, epoch=3, step=30)


def smoothed(images):
    return F.avg_pool2d(F.pad(images, (2, 2, 2, 2), mode="reflect"), 5, 1)


def tinted(images):
    return images + torch.tensor([0.5, 0.0, 0.0])[:, None, None]


def unchanged(images):
    return images


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("detector", "change", "kind"),
    [(DetailOfClass(), smoothed, "detail"), (StatisticsOfClass(), tinted, "statistics")],
)
def test_what_marks_a_class_is_given_to_images_of_others(detector, change, kind, dtype):
    (candidate,) = detector.detect(evaluation(change, dtype=dtype), CONFIG)
    assert candidate.finding.scope == Scope("class", "ship")
    assert candidate.region == Region(kind, (2,))
    assert candidate.region.towards == 2
    assert len(candidate.rows) == MOST_JUDGED
    assert set(candidate.rows % 4) == {0, 1, 3}


@pytest.mark.parametrize("detector", [DetailOfClass(), StatisticsOfClass()])
@pytest.mark.parametrize(
    "given",
    [
        evaluation(unchanged),
        replace(evaluation(smoothed), inputs=None),
        evaluation(smoothed, classes=2),
        evaluation(smoothed, count=28),  # 7 of the class
    ],
)
def test_nothing_is_tested_where_no_class_of_several_stands_out(detector, given):
    assert list(detector.detect(given, CONFIG)) == []


def test_a_tint_changes_no_detail_and_a_blur_is_no_tint():
    assert list(DetailOfClass().detect(evaluation(tinted), CONFIG)) == []
    assert [each.region.kind for each in StatisticsOfClass().detect(evaluation(tinted), CONFIG)] == ["statistics"]


@pytest.mark.parametrize(
    ("detector", "change", "fact", "least"),
    [
        (DetailOfClass(), smoothed, RelianceOnDetail.kind, 0.07),
        (StatisticsOfClass(), tinted, RelianceOnStatistics.kind, 0.2),
    ],
)
def test_it_is_the_same_fact_as_that_of_all_classes_and_for_a_person_to_judge(detector, change, fact, least):
    (candidate,) = detector.detect(evaluation(change), CONFIG)
    assert fact_of(candidate.finding) == (fact, "")
    assert not replace(candidate.finding, state="confirmed").is_fault
    assert demanded_effect(replace(candidate.finding, association=0.9), 0.05) == least
