"""A class whose images stand out by colour or contrast: which one is tested, and how it is told."""

from dataclasses import replace

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Effect, Evaluation, ExplainedSample, Scope, unfold
from lrptrain.findings.detector import detect_candidates
from lrptrain.findings.detectors import class_statistics
from lrptrain.findings.detectors.class_statistics import ClassRelianceOnStatistics, outstanding_class, statistics
from lrptrain.intervention import Region
from lrptrain.monitor.record_builder import RecordBuilder

NAMES = ["cat", "dog", "ship", "frog"]
CONFIG = DetectionConfig(NAMES, lambda ids: [str(i) for i in ids])


def evaluation(tint=0.3, classes=4, count=96, channels=3):
    """Pictures of all brightnesses; those of the third class have a cast."""
    rng = np.random.default_rng(0)
    images = torch.from_numpy(0.1 * rng.random((count, channels, 6, 6)) + rng.random((count, 1, 1, 1))).float()
    labels = np.arange(count) % classes
    images[labels == 2, 0] += tint
    inputs = [Sample(i, int(labels[i]), {"image": images[i]}) for i in range(count)]
    explained = [
        ExplainedSample(
            replace(each, tensors={}),
            each.label,
            np.eye(4)[each.label],
            {"label": torch.ones(4)},
            (2, 2),
            4,
            np.nan,
            {},
        )
        for each in inputs
    ]
    return Evaluation(explained, inputs, epoch=3, step=30)


def candidates(given):
    return list(ClassRelianceOnStatistics().detect(given, CONFIG))


def test_the_class_that_stands_out_is_tested_on_a_few_of_its_images():
    (found,) = candidates(evaluation())
    assert found.finding.scope == Scope("class", "ship")
    assert found.region == Region("statistics")
    assert len(found.rows) == class_statistics.MOST_IMAGES
    assert (found.rows % 4 == 2).all()
    assert found.finding.relevance is None


def test_nothing_is_tested_where_no_class_stands_out_or_all_do_alike():
    assert candidates(evaluation(tint=0)) == []
    assert candidates(evaluation(classes=2)) == []
    assert candidates(evaluation(count=28)) == []  # 7 of the class
    assert candidates(evaluation(channels=1)) == []  # brightness varies, and there is no cast
    assert candidates(replace(evaluation(), inputs=None)) == []


def test_how_well_a_statistic_tells_a_class_is_the_area_under_its_roc_curve():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(60, 2))
    predicted = np.arange(60) % 3
    values[predicted == 1, 1] -= 1.2
    values = values.round(1)  # ties
    areas = {c: [roc_auc_score(predicted == c, column) for column in values.T] for c in range(3)}
    best = {c: max(max(area, 1 - area) for area in each) for c, each in areas.items()}
    assert max(best, key=best.__getitem__) == 1
    assert outstanding_class(values, predicted, 0.5) == 1  # all three reach that: the best one
    assert outstanding_class(values, predicted, best[1] - 1e-9) == 1
    assert outstanding_class(values, predicted, best[1] + 1e-9) is None


def test_statistics_are_means_spreads_and_casts():
    images = torch.rand(2, 3, 4, 5, dtype=torch.float64)
    x = images.numpy().reshape(2, 3, -1)
    mean = x.mean(2)
    by_hand = [*mean.T, *x.std(2, ddof=1).T, mean[:, 0] - mean[:, 1], mean[:, 0] - mean[:, 2], mean[:, 1] - mean[:, 2]]
    np.testing.assert_allclose(statistics(list(images)), np.stack(by_hand, 1), rtol=0, atol=1e-12)


def test_a_class_alone_is_told_and_with_all_classes_it_is_one_fact():
    given = evaluation()
    tested = [each for each in detect_candidates(given, CONFIG) if each.region == Region("statistics")]
    builder = RecordBuilder(class_names=NAMES)

    def built(overall, alone):
        falls = {"overall": overall, "class": alone}
        effects = [
            Effect(np.full(len(x.rows), falls[x.finding.scope.kind]), np.zeros(len(x.rows)), "statistics")
            for x in tested
        ]
        return builder.build(given, [], tested, effects)

    (fact,) = built(0.2, 0.8).findings
    assert (str(fact.scope), fact.state, fact.is_fault) == ("class ship", "confirmed", False)
    assert built(0.2, 0.8).scalars["relevance/statistics_reliance"] == np.float64(0.2)  # that of all classes
    (fact,) = built(0.7, 0.8).findings
    assert [str(each.scope) for each in unfold([fact])] == ["overall", "class ship"]
    assert built(0.2, 0.5).findings == []
