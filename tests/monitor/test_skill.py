"""A model that gives one answer to everything is said to do so, whatever its maps look like."""

import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from examples import explained
from timm.models.vision_transformer import VisionTransformer
from torch import nn

import lrptrain
from lrptrain.batch import Sample
from lrptrain.loggers import read_events
from lrptrain.monitor.evaluation import Evaluation
from lrptrain.monitor.power import Power, closing_words, shown_by
from lrptrain.monitor.skill import Skill, guessing, sharpened, sharpness, single_answer, tells_classes_apart

NAMES = ["cat", "dog"]
ALTERNATING = [i % 2 for i in range(40)]


def evaluation(labels, answers):
    pairs = enumerate(zip(labels, answers, strict=True))
    return Evaluation([explained(Sample(i, label, {}), np.eye(2)[answer]) for i, (label, answer) in pairs])


@pytest.mark.parametrize(
    ("labels", "answers", "one"),
    [
        (ALTERNATING, [1] * 40, True),
        (ALTERNATING, [0] * 4 + [1] * 36, True),
        (ALTERNATING, [0] * 5 + [1] * 35, False),  # 87.5 % are no single answer
        (ALTERNATING, ALTERNATING, False),
        ([0] * 40, [0] * 40, False),  # right, as far as anyone can tell
        ([-1] * 40, [1] * 40, False),
        ([0] * 38 + [1] * 2, [0] * 38 + [1] * 2, False),  # one answer to 95 %, and each is right
        ([0] * 64 + [1] * 64, [0] * 120 + [1] * 8, False),  # right in 56 %: but 8 of 8 would be by chance in 0.3 %
        ([0, 1] * 64, [1] * 120 + [0, 1] * 4, True),
    ],
)
def test_one_answer_to_nearly_all_is_no_skill(labels, answers, one):
    words = single_answer(evaluation(labels, answers), NAMES, 0.95)
    assert bool(words) == one
    if one:
        assert words.startswith(f"it predicts 'dog' for {100 * np.mean(np.array(answers) == 1):.0f} % of the samples")


def test_guessing_is_the_accuracy_of_the_same_answers_in_a_random_order():
    assert guessing(evaluation(ALTERNATING, ALTERNATING)) == 0.5
    assert guessing(evaluation([0, 0, 0, 1], [0, 0, 0, 0])) == 0.75
    assert guessing(evaluation([0, 0, 0, 1], [1, 0, 0, 0])) == 0.625  # 3 * 3 / 4 + 1 / 4, of 4
    assert math.isnan(guessing(evaluation([-1] * 4, ALTERNATING[:4])))
    assert math.isnan(guessing(evaluation([0] * 4, ALTERNATING[:4])))  # of one class, nothing is known


def test_of_several_labels_guessing_is_the_mean_over_them():
    labels, said = [(0, 0), (0, 1), (0, 0), (1, 1)], [(0.1, 0.1), (0.1, 0.9), (0.1, 0.1), (0.1, 0.9)]
    pairs = zip(labels, said, strict=True)
    several = [explained(Sample(i, -1, {}), p, labels=np.array(x)) for i, (x, p) in enumerate(pairs)]
    assert guessing(Evaluation(several)) == (0.75 + 0.5) / 2


def test_a_lucky_guess_is_no_skill_that_could_be_lost():
    skill = Skill()
    lucky = evaluation(ALTERNATING, ALTERNATING[:27] + [1 - label for label in ALTERNATING[27:]])
    assert tells_classes_apart(lucky, 0.95)  # 27 of 40: as one in 30 evaluations of a model that guesses
    skill.update(evaluation(ALTERNATING, [0, 0, 1, 1] * 10), NAMES, 0.95)
    skill.update(lucky, NAMES, 0.95)
    skill.update(evaluation(ALTERNATING, [1] * 40), NAMES, 0.95)
    assert not skill.collapsed


def test_a_model_is_at_chance_again_only_once_it_told_classes_apart():
    skill = Skill()
    guessing = evaluation(ALTERNATING, [0, 0, 1, 1] * 10)
    for answers, is_at_chance in ((guessing, False), (evaluation(ALTERNATING, ALTERNATING), False), (guessing, True)):
        skill.update(answers, NAMES, 0.95)
        assert skill.is_at_chance == is_at_chance


def test_only_a_model_that_told_classes_apart_can_collapse():
    guessing, knowing = evaluation(ALTERNATING, [1] * 40), evaluation(ALTERNATING, ALTERNATING)
    skill = Skill()
    assert not skill.update(guessing, NAMES, 0.95)
    assert skill.text.startswith("The model has not learned to distinguish classes: it predicts 'dog' for 100 %")
    assert not skill.update(knowing, NAMES, 0.95)
    assert skill.text == ""
    # It is news once, and again after it has recovered.
    assert [skill.update(each, NAMES, 0.95) for each in (guessing, guessing, knowing, guessing)] == [
        True, False, False, True,
    ]  # fmt: skip
    assert skill.text.startswith("COLLAPSED")
    assert not shown_by(guessing.samples, (), (), 0.95, skill.text).tells
    line = closing_words("Monitor ends", "epoch 3", (), Power(False, ""), None, skill.text)
    assert line.startswith("Monitor ends: COLLAPSED: the model distinguished")


class Brightness(nn.Module):
    """Reads the mean brightness of patches, by attention that sees all of them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        sizes: dict[str, Any] = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2}
        self.head = nn.Linear(8, 2)
        self.vit = VisionTransformer(num_classes=0, **sizes)

    def forward(self, x):
        # A skip of the brightness beside the blocks: the model is right from its first evaluation on.
        brightness = x.mean((1, 2, 3))
        return self.head(self.vit(x)) + self.head.weight.abs().sum() * torch.stack([-brightness, brightness], 1)


def test_a_run_says_that_its_model_has_collapsed(tmp_path, caplog):
    label = torch.arange(24) % 2
    images = torch.randn(24, 3, 8, 8) + 20.0 * (label - 0.5)[:, None, None, None]
    model = Brightness()
    monitor = lrptrain.Monitor(
        model, [{"image": images, "label": label}], tmp_path, budget=None, run=lrptrain.Run(progress_bar=False)
    )
    with caplog.at_level(logging.INFO):
        monitor.evaluate(0, 0)
        with torch.no_grad():
            model.head.weight.zero_()
            model.head.bias.copy_(torch.tensor([0.0, 3.0]))
        monitor.evaluate(1, 1)
        monitor.close()
    assert caplog.text.count("COLLAPSED") == 2  # when it happened, and at the end
    assert monitor.folder is not None
    powers = [event.get("power", {}) for event in read_events(monitor.folder)]
    assert [power.get("collapsed", False) for power in powers] == [False, True]


def of_features(answers):
    pairs = enumerate(zip(ALTERNATING, answers, strict=True))
    return Evaluation([explained(Sample(i, label, {}), np.eye(48)[answer]) for i, (label, answer) in pairs])


def test_answers_beyond_all_labels_are_no_skill():
    """Features read as logits: the few answers that are classes may well go with the label."""
    features = of_features([i % 2 if i < 18 else 7 + i for i in range(40)])
    assert not tells_classes_apart(features, 0.95)
    words = single_answer(features, [str(i) for i in range(48)], 0.95)
    assert words.startswith("most of its answers are classes beyond 1, and no label is. Its 48 outputs may be features")
    assert tells_classes_apart(of_features([i % 2 if i < 24 else 7 + i for i in range(40)]), 0.95)


LABELS = np.arange(40) % 4


def answers_with(margin: float, right: int = 40) -> np.ndarray:
    """Softmax of logits of which the label's (or, of the last samples, the next class's) is higher by the margin."""
    logits = np.zeros((40, 4))
    named = np.where(np.arange(40) < right, LABELS, (LABELS + 1) % 4)
    logits[np.arange(40), named] = margin
    raised = np.exp(logits)
    return raised / raised.sum(1, keepdims=True)


@pytest.mark.parametrize("margin", [0.01, 0.1, 1.0])
def test_the_confidence_of_a_doubtful_model_becomes_its_accuracy(margin):
    before = answers_with(margin, right=32)
    power = sharpness(before, LABELS)
    # One margin everywhere: confidence e^(km) / (e^(km) + 3) = 0.8 has the solution k = ln(12) / m.
    assert power == pytest.approx(np.log(12) / margin, rel=1e-9)
    assert sharpened(before, power).max(1).mean() == pytest.approx(0.8, abs=1e-9)


@pytest.mark.parametrize("margin", [0.2, np.log(22)])  # 0.88 sure
def test_a_model_that_is_always_right_becomes_nearly_sure(margin):
    before = answers_with(margin)
    after = sharpened(before, sharpness(before, LABELS))
    assert after.max(1).mean() == pytest.approx(0.99, abs=1e-9)
    assert (after.argmax(1) == before.argmax(1)).all()


@pytest.mark.parametrize(
    ("before", "labels"),
    [
        (answers_with(8.0, right=20), LABELS),  # surer than right
        (answers_with(0.1, right=10), LABELS),  # guessing, and as sure as that
        (answers_with(0.1), np.full(40, -1)),  # nobody knows
        (answers_with(np.log(34.5)), LABELS),  # always right, and 0.92 sure
    ],
)
def test_other_models_are_taken_as_they_are(before, labels):
    assert sharpness(before, labels) == 1.0
    assert sharpened(before, 1.0) is before


def test_sharpened_probabilities_are_those_of_larger_logits():
    logits = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wanted = (7.0 * logits).softmax(1).numpy()
    np.testing.assert_allclose(sharpened(logits.softmax(1).numpy(), 7.0), wanted, rtol=1e-12, atol=0)
    assert sharpened(np.array([[1.0, 0.0]]), 3.0).tolist() == [[1.0, 0.0]]
