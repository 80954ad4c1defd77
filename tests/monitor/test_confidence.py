import numpy as np
import pytest
import torch

from lrptrain.monitor.confidence import sharpened, sharpness

LABELS = np.arange(40) % 4


def probabilities(margin: float, right: int = 40) -> np.ndarray:
    """Softmax of logits of which the label's (or, of the last samples, the next class's) is higher by the margin."""
    logits = np.zeros((40, 4))
    named = np.where(np.arange(40) < right, LABELS, (LABELS + 1) % 4)
    logits[np.arange(40), named] = margin
    raised = np.exp(logits)
    return raised / raised.sum(1, keepdims=True)


@pytest.mark.parametrize("margin", [0.01, 0.1, 1.0])
def test_the_confidence_of_a_doubtful_model_becomes_its_accuracy(margin):
    before = probabilities(margin, right=32)
    power = sharpness(before, LABELS)
    # One margin everywhere: confidence e^(km) / (e^(km) + 3) = 0.8 has the solution k = ln(12) / m.
    assert power == pytest.approx(np.log(12) / margin, rel=1e-9)
    assert sharpened(before, power).max(1).mean() == pytest.approx(0.8, abs=1e-9)


@pytest.mark.parametrize("margin", [0.2, np.log(22)])  # 0.88 sure
def test_a_model_that_is_always_right_becomes_nearly_sure(margin):
    before = probabilities(margin)
    after = sharpened(before, sharpness(before, LABELS))
    assert after.max(1).mean() == pytest.approx(0.99, abs=1e-9)
    assert (after.argmax(1) == before.argmax(1)).all()


@pytest.mark.parametrize(
    ("before", "labels"),
    [
        (probabilities(8.0, right=20), LABELS),  # surer than right
        (probabilities(0.1, right=10), LABELS),  # guessing, and as sure as that
        (probabilities(0.1), np.full(40, -1)),  # nobody knows
        (probabilities(np.log(34.5)), LABELS),  # always right, and 0.92 sure
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
