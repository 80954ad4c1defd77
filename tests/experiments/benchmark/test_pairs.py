"""The plan is balanced wherever it stops; three models share their data; the tables count what they say."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from experiments.benchmark import asked, breeds, images, run, training
from experiments.benchmark.asked import ANNOTATED, BARE, RANDOM
from experiments.benchmark.cases import CORRELATIONS, DEVELOPMENT, IMAGE_KINDS, TEXT_KINDS, Case, planned, pretrained
from experiments.benchmark.report import SCORES, is_the_mark, kinds, share, tables, uses, verdicts, wins
from experiments.benchmark.training import CLEAN, DOES_NOT, READS
from experiments.real_models.samples import Pets
from experiments.vision import vit


def test_every_kind_has_a_pair_and_the_first_ones_are_balanced():
    cases = planned()
    assert {case.kind for case in cases} == {*IMAGE_KINDS, *TEXT_KINDS}
    assert len({case.key for case in cases}) == len({case.randomness for case in cases}) == len(cases)
    first = Counter(case.task for case in cases[:20])
    assert max(first.values()) - min(first.values()) <= 5
    for task in ("digits", "photographs", "texts"):
        assert {case.correlation for case in cases[:30] if case.task == task} == {*CORRELATIONS}


def test_no_kind_is_both_developed_on_and_tested():
    every = [*(kind for kinds in DEVELOPMENT.values() for kind in kinds), *IMAGE_KINDS, *TEXT_KINDS]
    assert len({*every}) == len(every)


def test_pairs_on_larger_networks_draw_anew_and_are_planned_in_turn():
    small, large = planned(), pretrained()
    assert not {case.randomness for case in small} & {case.randomness for case in large}
    assert {case.kind for case in large} <= {case.kind for case in small}
    assert [case.task for case in large[:4]] == ["pets", "moods"] * 2


@pytest.mark.parametrize(("kind", "beside_alone"), [("tiled", True), ("box", True), ("cursor", False)])
def test_a_mark_is_drawn_on_a_photograph_or_beside_its_pet(kind, beside_alone):
    side = breeds.LARGER * images.SIDE
    picture = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    mask = torch.zeros(1, side, side, dtype=torch.uint8)
    mask[:, 32:72, 28:68] = 1
    pet = Pets(picture, mask, torch.zeros(1, dtype=torch.long))
    forms = [breeds.marked(kind, form, pet, 0, np.random.default_rng(1)) for form in (1, 2)]
    changed = [(image != picture[0]).any(0) for image, _ in forms]
    assert (forms[0][0] != forms[1][0]).any()
    assert all(each.any() and (each & (mask[0] == 1)).any() != beside_alone for each in changed)
    assert all(torch.equal(found, mask[0]) for _, found in forms)


def test_what_a_stamp_hides_is_no_pet():
    side = breeds.LARGER * images.SIDE
    pet = Pets(torch.full((1, 3, side, side), 0.5), torch.ones(1, side, side, dtype=torch.uint8), torch.zeros(1).long())
    image, mask = breeds.marked("redaction", 2, pet, 0, np.random.default_rng(0))
    assert torch.equal(mask == 0, (image == 0).all(0))
    assert int((mask == 0).sum()) == (6 * breeds.LARGER) ** 2


@pytest.mark.usefixtures("small_data")
def test_the_models_of_a_pair_see_the_same_things():
    case = Case("digits", "tag", 1.0, 1)
    data = training.data_of(case)
    train = data.train
    assert all(torch.equal(train[name]["label"], train[READS]["label"]) for name in (DOES_NOT, CLEAN))
    changed = [(train[READS]["image"] != other["image"]).flatten(1).any(1) for other in (train[CLEAN], train[DOES_NOT])]
    assert changed[0].all()  # the tag
    assert 0 < changed[1].sum() < len(changed[1])  # that of another class, for three in four
    where = (train[READS]["image"] != train[CLEAN]["image"]).any(1)
    assert where.float().mean() < 0.3


@pytest.fixture
def small_data(monkeypatch):
    monkeypatch.setattr(images, "HELD_OUT", 16)
    monkeypatch.setattr(images, "TRAIN", 16)

    class Things:
        labels = np.arange(32) % 4
        colours = np.ones((32, images.THING, images.THING, 3), np.float32)
        covers = np.zeros((32, images.THING, images.THING), np.float32)

    Things.covers[:, 4:10, 4:10] = 1
    monkeypatch.setattr(images, "things", lambda task, split: Things)
    noise = np.random.default_rng(0).random((8, images.SIDE, images.SIDE, 3), np.float32)
    monkeypatch.setattr(images, "grounds", lambda split: noise)


@pytest.mark.usefixtures("small_data")
def test_a_pair_is_trained_and_asked(monkeypatch):
    monkeypatch.setattr(images, "STEPS", 60)
    monkeypatch.setattr(images, "LR", 3e-3)
    monkeypatch.setattr(images, "TRAIN", 64)
    monkeypatch.setattr(images, "HELD_OUT", 48)
    monkeypatch.setattr(images, "network", lambda _: vit(4, images.SIDE, width=32, depth=1))
    monkeypatch.setattr(asked, "has_packages", lambda: False)
    row = run.quietly(run.judged, Case("digits", "frame", 1.0, 1))
    assert row[READS]["shown"] > 0.9 > row[READS]["unbiased"]
    assert row[DOES_NOT]["shown"] < 0.6
    found = row[READS][ANNOTATED]
    assert any(each["is_fault"] for each in found["named"])
    assert not any(each["is_fault"] for each in row[READS][BARE]["named"])
    assert found["without the mark"] < found["named"][0]["effect"] / 2
    assert row[READS]["cleanlab Datalab"] is None
    assert 0 <= row[READS]["mass outside"] <= 1
    assert f"{ANNOTATED}, {RANDOM}" in row[DOES_NOT]
    assert row[CLEAN].keys() == {ANNOTATED, BARE, "lost", "won", "shown", "unbiased"}


def said(low: float, fault: bool, without: float = 0.0) -> dict:
    cue = {"cue": "the border", "kind": "place", "effect": low + 0.1, "low": low, "is_fault": fault}
    return {"named": [cue] if low else [], "accuracy": 0.9, "without the mark": without}


def model(low: float, fault: bool, without: float = 0.0, lost: int = 0) -> dict:
    names = [name + more for name in (ANNOTATED, BARE) for more in ("", f", {RANDOM}")]
    plain = dict.fromkeys(
        ("mass outside", "plain features", "clusters of maps", "cleanlab Datalab", "corelay SpRAy"), 0.5
    )
    numbers: dict[str, Any] = {
        **plain,
        "accuracy": 0.9,
        "error slice": None,
        "lost": lost,
        "won": 1,
        "shown": 0.9,
        "unbiased": 0.85,
    }
    return {**{name: said(low, fault, without) for name in names}, **numbers}


def pair(task: str, low: float, fault: bool, without: float = 0.0, lost: int = 40) -> dict:
    first = {READS: model(low, fault, without, lost), DOES_NOT: model(0.0, False), CLEAN: model(0.0, False)}
    return {"task": task, "kind": "fog", "correlation": 0.9, **first}


def test_tables_count_pairs_that_were_learned():
    pairs = [
        pair("digits", 0.3, True),
        pair("texts", 0.2, False, 0.25),
        pair("digits", 0.0, False),
        pair("digits", 0.1, True, lost=3),
    ]
    assert [uses(each) for each in pairs] == [True, True, True, False]
    learned = pairs[:3]
    assert wins(learned, SCORES[f"report {BARE}"]).value == pytest.approx(2.5 / 3)
    assert wins(learned, SCORES[f"report {ANNOTATED}"]).value == pytest.approx(2 / 3)  # what is no fault is not found
    assert wins(learned, SCORES["plain features of the images"]).value == 0.5
    assert np.isnan(wins(learned, SCORES["worst slice of errors (the idea of Domino)"]).value)
    assert [is_the_mark(each, BARE) for each in learned] == [True, False, False]
    assert is_the_mark({READS: {BARE: {**said(0.3, True), "without the mark": None}}}, BARE)
    annotated = next(line for line in verdicts(pairs, learned).splitlines() if line.startswith(f"| {ANNOTATED} |"))
    assert "| 1 of 3 " in annotated
    assert "| 0 of 4 " in annotated
    assert "(not used)" in kinds(pairs)
    assert set(tables(pairs)) == {"pairs", "verdicts", "kinds"}


def test_a_share_has_wilsons_interval():
    ratio = share(0, 10)
    assert ratio.low == pytest.approx(0)
    assert ratio.high == pytest.approx(0.2775, abs=1e-4)  # Wilson 1927, 95 %
