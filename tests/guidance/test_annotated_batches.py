"""Which samples of a batch are guided."""

import pytest
import torch

from lrptrain.guidance.guided_training import GuidedTraining
from lrptrain.guidance.options import GuidanceOptions


def batches(sparse):
    return GuidedTraining(GuidanceOptions("energy", sparse=sparse, on_error="raise")).batches


def test_a_batch_without_annotations_guides_nothing_and_keeps_its_labels():
    """Another process may guide some, and then asks all of them what guesses would do."""
    batch = {"image": torch.rand(4, 3, 8, 8), "label": torch.arange(4)}
    found = batches(sparse=True).read(batch)
    assert len(found.guided) == 0
    assert found.columns["label"].tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="mask"):
        batches(sparse=False).read(batch)


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
        assert reader.read(batch).guided.tolist() == [0, 1, 2, 3]
        return
    with pytest.raises(ValueError, match="'rationale' of the first guided batch marks padding or special tokens alone"):
        reader.read(batch)
    batch["rationale"][0, 2] = 1  # one text is marked as it should be
    assert len(reader.read(batch).guided) == 4
