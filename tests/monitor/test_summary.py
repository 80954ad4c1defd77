import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from examples import explained
from timm.models.vision_transformer import VisionTransformer

import lrptrain
from lrptrain.batch import Sample
from lrptrain.monitor.summary import METRICS, logged_metrics, scalars, table

NAMES = ["cat", "dog"]


def scored(i, label, share, predicted=0, group=None):
    targets = ("label", "predicted") if label >= 0 else ("predicted",)
    return explained(
        Sample(i, label, {}, group),
        (0.9, 0.1),
        predicted=predicted,
        maps=dict.fromkeys(targets, torch.ones(4)),
        values={f"{target}/energy_pointing_game": share for target in targets},
    )


def test_scalars_are_means_of_what_is_defined():
    found = scalars([scored(0, 0, 0.2), scored(1, 1, 0.6), scored(2, 1, np.nan, predicted=1)], NAMES)
    assert found["relevance/label/energy_pointing_game"] == pytest.approx(0.4)
    assert found["relevance/label/energy_pointing_game_per_class/dog"] == pytest.approx(0.6)
    assert found["relevance/accuracy"] == pytest.approx(2 / 3)
    assert found["relevance/samples"] == 3


def test_groups_have_an_accuracy_each_and_the_worst_is_told():
    right, wrong, unlabelled = {"label": 0}, {"label": 1}, {"label": -1}
    given = [(right, 0), (right, 0), (wrong, 0), (wrong, 3), (right, 3), (unlabelled, 7), (wrong, None)]
    found = scalars([scored(i, share=0.5, group=group, **label) for i, (label, group) in enumerate(given)], NAMES)
    accuracies = {key: value for key, value in found.items() if "accuracy" in key}
    assert accuracies == {
        "relevance/accuracy": pytest.approx(3 / 6),
        "relevance/accuracy_per_group/0": pytest.approx(2 / 3),
        "relevance/accuracy_per_group/3": pytest.approx(1 / 2),
        "relevance/worst_group_accuracy": pytest.approx(1 / 2),
    }


@pytest.mark.parametrize(("label", "group"), [(0, None), (-1, 1)])
def test_without_groups_or_labels_there_is_no_worst_group(label, group):
    assert not [key for key in scalars([scored(0, label, 0.5, group=group)], NAMES) if "group" in key]


def test_the_table_has_a_row_per_sample():
    rows = table([scored(0, 0, 0.2), scored(1, -1, 0.3)], NAMES)
    assert rows["sample_id"] == [0, 1]
    assert rows["label"] == ["cat", "?"]
    assert {len(column) for column in rows.values()} == {2}


def test_sharpness_is_logged_where_probabilities_are_sharpened():
    sure = [scored(i, 0, 0.5) for i in range(4)]
    doubtful = [replace(each, probabilities=np.array([0.51, 0.49])) for each in sure]
    assert scalars(doubtful, NAMES)["relevance/sharpness"] > 1
    assert scalars(doubtful, NAMES)["relevance/confidence"] == pytest.approx(0.51)
    assert "relevance/sharpness" not in scalars(sure, NAMES)


def test_each_score_is_explained_in_one_sentence_that_the_documentation_has():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "logged-keys.md").read_text(encoding="utf-8")
    # By key, without the name of a class or group: the rest of the row.
    rows = {key: row for row in page.splitlines() for key in re.findall(r"`relevance/([^`]+)`", row.split(" | ")[0])}
    for metric in logged_metrics():
        assert re.fullmatch(r"[A-Z][^.]+\.", metric.explanation), metric.keys
        for key in metric.keys:
            documented = re.sub("^(label|predicted)/", "<target>/", key)
            (row,) = {row for name, row in rows.items() if fullmatch_of(documented, name)}
            assert metric.explanation in row, key
            if metric.higher_is_better is not None:
                assert row.endswith("| higher |" if metric.higher_is_better else "| lower |"), key


def fullmatch_of(key, documented):
    """Return whether a key, with * for any name, is the one that the documentation has with <name>."""
    return re.fullmatch(re.escape(key).replace(r"\*", "(block_)?<.+>"), documented)


@pytest.fixture
def registry():
    before = len(METRICS)
    yield METRICS
    del METRICS[before:]


def test_a_value_of_the_users_is_logged_charted_and_explained(registry, tmp_path):
    def brightest(samples):
        return sum(float(each.maps["predicted"].max()) for each in samples) / len(samples)

    lrptrain.register_metric("brightest", brightest, "The largest relevance.", higher_is_better=True)
    model = VisionTransformer(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=2)
    batch = {"image": torch.randn(8, 3, 16, 16), "label": torch.arange(8) % 2}
    with lrptrain.Monitor(model, [batch], tmp_path, max_samples=8, run=lrptrain.Run(name="a")) as monitor:
        monitor.evaluate(0)
    assert monitor.scalars["relevance/a/brightest"] == pytest.approx(brightest(monitor.scored))
    (metric,) = (each for each in logged_metrics() if each.keys == ("brightest",))
    assert (metric.title, metric.explanation, metric.higher_is_better) == ("Brightest", "The largest relevance.", True)


@pytest.mark.parametrize("key", ["accuracy", "label/auprc", "accuracy_per_group/1", "mine"])
def test_no_two_values_have_one_name(registry, key):
    lrptrain.register_metric("mine", len)
    with pytest.raises(ValueError, match="logged already"):
        lrptrain.register_metric(key, len)


def test_a_value_that_fails_is_nan_and_warned_of(registry, tmp_path):
    lrptrain.register_metric("broken", lambda samples: 1 / 0)
    model = VisionTransformer(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=2)
    batch = {"image": torch.randn(8, 3, 16, 16), "label": torch.arange(8) % 2}
    with pytest.warns(UserWarning, match="relevance/broken could not be computed .ZeroDivisionError: .*: it is nan"):
        monitor = lrptrain.Monitor(model, [batch], tmp_path, max_samples=8, run=lrptrain.Run(name="a"))
    with pytest.warns(UserWarning, match="it is nan"):
        monitor.evaluate(0)
    assert math.isnan(monitor.scalars["relevance/a/broken"])
    assert monitor.scalars["relevance/a/samples"] == 8
