import numpy as np
import pytest
import torch

from lrptrain.findings.finding import OVERALL
from lrptrain.monitoring.batch import Sample
from lrptrain.monitoring.evaluate import Scored
from lrptrain.monitoring.summary import findings, scalars, table

NAMES = ["cat", "dog"]


def scored(i, label, share, predicted=0):
    return Scored(
        sample=Sample(i, label, {}),
        predicted=predicted,
        probability=0.9,
        maps={"label": torch.ones(4), "predicted": torch.ones(4)} if label >= 0 else {"predicted": torch.ones(4)},
        grid=(2, 2),
        classes=2,
        chance=0.4,
        values={
            f"{target}/energy_pointing_game": share for target in (("label",) if label >= 0 else ()) + ("predicted",)
        },
    )


def flagged(sample):
    found = findings(sample, NAMES, bound="chance", confidence=0.95, epoch=1, step=2)
    return [(finding.scope, finding.target) for finding in found]


def test_scalars_are_means_of_what_is_defined():
    found = scalars([scored(0, 0, 0.2), scored(1, 1, 0.6), scored(2, 1, np.nan, predicted=1)], NAMES)
    assert found["relevance/label/energy_pointing_game"] == pytest.approx(0.4)
    assert found["relevance/label/energy_pointing_game/dog"] == pytest.approx(0.6)
    assert found["relevance/accuracy"] == pytest.approx(2 / 3)
    assert found["relevance/samples"] == 3


def test_classes_are_flagged_for_the_label_and_once():
    sample = [scored(i, i % 2, 0.1 + 0.001 * i) for i in range(40)]
    assert flagged(sample) == [
        (OVERALL, "label"),
        ("cat", "label"),
        ("dog", "label"),
        (OVERALL, "predicted"),
    ]


def test_a_good_focus_is_not_flagged():
    assert flagged([scored(i, i % 2, 0.8 + 0.001 * i) for i in range(40)]) == []


def test_samples_without_a_label_are_flagged_by_the_predicted_class():
    sample = [scored(i, -1, 0.1 + 0.001 * i, predicted=1) for i in range(20)]
    assert flagged(sample) == [(OVERALL, "predicted"), ("dog", "predicted")]


def test_the_table_has_a_row_per_sample():
    rows = table([scored(0, 0, 0.2), scored(1, -1, 0.3)], NAMES)
    assert rows["sample_id"] == [0, 1]
    assert rows["label"] == ["cat", "?"]
    assert {len(column) for column in rows.values()} == {2}
