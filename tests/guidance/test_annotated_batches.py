"""Which samples of a batch are guided."""

import pytest
import torch

from lrptrain.guidance.annotated_batches import AnnotatedBatches
from lrptrain.guidance.objective import Objective
from lrptrain.trainers.failures import Failures


def batches(sparse):
    return AnnotatedBatches(
        Objective({"energy": 1.0}),
        sparse=sparse,
        annotated_fraction=1.0,
        max_samples=None,
        batch_adapter=None,
        seed=0,
        failed=Failures("raise", "RelevanceGuidance"),
    )


def test_a_batch_without_annotations_guides_nothing_and_keeps_its_labels():
    """Another process may guide some, and then asks all of them what guesses would do."""
    batch = {"image": torch.rand(4, 3, 8, 8), "label": torch.arange(4)}
    columns, rows = batches(sparse=True).read(batch, worked=False)
    assert len(rows) == 0
    assert columns["label"].tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="mask"):
        batches(sparse=False).read(batch, worked=False)
