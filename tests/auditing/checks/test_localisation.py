from dataclasses import replace

import pytest
import torch
from audited import METHODS, context, registered

from lrptrain.auditing.score import summarize
from lrptrain.batch import token_annotations
from lrptrain.metrics import EnergyPointingGame, LocalizationAUPRC, PointingGame

TEST = registered("localisation")


def annotated(mask):
    """An audit of which the samples have this mask, by rows."""
    audit = context()
    rows = mask.split([len(batch.label) for batch in audit.batches])
    audit.batches = [
        replace(batch, batch={**batch.batch, "mask": part}) for batch, part in zip(audit.batches, rows, strict=True)
    ]
    return audit


def test_it_measures_as_the_metrics_do():
    mask = (torch.rand(10, 32, 32, generator=torch.Generator().manual_seed(0)) < 0.3).long()
    audit = annotated(mask)
    values = TEST.run(audit, METHODS[0])
    for name, kind in (("epg", EnergyPointingGame), ("auprc", LocalizationAUPRC), ("pointing_game", PointingGame)):
        metric = kind()
        for batch, found in zip(audit.batches, audit.maps(METHODS[0]), strict=True):
            evidence, _ = token_annotations(batch.batch, found.image_grid)
            assert evidence is not None
            metric.update(found.scores, evidence)
        expected = metric.compute()
        score = summarize(values[name])
        assert score.samples == expected["samples"]
        for part in ("value", "low", "high"):
            assert getattr(score, part) == pytest.approx(float(expected[part]), abs=2e-6, nan_ok=True)
        if name == "epg":
            assert summarize(values["chance"]).value == pytest.approx(float(expected["chance"]), abs=2e-6)


def test_of_several_regions_the_first_is_the_evidence():
    first, second = torch.zeros(2, 10, 32, 32, dtype=torch.long)
    first[:, :16], second[:, 16:] = 1, 1
    one, both = (TEST.run(annotated(mask), METHODS[0]) for mask in (first, torch.stack([first, second], 1)))
    assert one == both


def test_without_annotations_it_is_not_run():
    assert "mask" in TEST.obstacle(context())
    audit = annotated(torch.ones(10, 32, 32, dtype=torch.long))
    assert TEST.obstacle(audit) == ""
    audit.batches = [replace(audit.batches[0], batch={"image": audit.batches[0].batch["image"]}), audit.batches[1]]
    assert TEST.obstacle(audit) == ""
    values = TEST.run(audit, METHODS[0])["epg"]
    assert [value != value for value in values] == [True] * 6 + [False] * 4
