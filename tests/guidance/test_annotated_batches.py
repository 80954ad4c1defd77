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


@pytest.mark.parametrize(("place", "is_refused"), [(0, True), (4, True), (5, True), (2, False)])
def test_texts_that_are_marked_where_no_words_are_are_refused(place, is_refused):
    """[CLS] a b c [SEP] [PAD]: special tokens and padding are no evidence of any class."""
    rationale = torch.zeros(4, 6, dtype=torch.long)
    rationale[:, place] = 1
    mask = torch.tensor([[1, 1, 1, 1, 1, 0]] * 4)
    batch = {
        "input_ids": torch.arange(6).repeat(4, 1), "attention_mask": mask, "label": torch.arange(4),
        "rationale": rationale,
    }  # fmt: skip
    reader = batches(sparse=False)
    if not is_refused:
        assert reader.read(batch, worked=False)[1].tolist() == [0, 1, 2, 3]
        return
    with pytest.raises(ValueError, match="'rationale' of the first guided batch marks padding or special tokens alone"):
        reader.read(batch, worked=False)
    batch["rationale"][0, 2] = 1  # one text is marked as it should be
    assert len(reader.read(batch, worked=False)[1]) == 4
