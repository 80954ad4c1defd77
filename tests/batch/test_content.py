import pytest
import torch

from lrptrain.batch.content import attended_tokens, content_tokens, end_tokens

IDS = torch.tensor([[101, 5, 6, 5, 7, 102], [101, 5, 8, 102, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
CONTENT = [[False, True, True, True, True, False], [False, True, True, False, False, False]]


def test_content_is_a_text_without_its_ends_and_its_padding():
    assert content_tokens({"input_ids": IDS, "attention_mask": MASK}).tolist() == CONTENT
    left = content_tokens({"input_ids": IDS.flip(1), "attention_mask": MASK.flip(1)})
    assert left.tolist() == torch.tensor(CONTENT).flip(1).tolist()


@pytest.mark.parametrize("mask", [None, torch.zeros(2, 1, 6, 6)])
def test_without_a_mask_per_token_nothing_is_padding(mask):
    batch = {"input_ids": IDS} if mask is None else {"input_ids": IDS, "attention_mask": mask}
    assert attended_tokens(batch).all()
    assert content_tokens(batch).tolist() == [[False, *[True] * 4, False]] * 2


def test_a_rationale_excludes_special_tokens_in_between_and_one_that_is_absent_nothing():
    rationale = torch.tensor([[255, 1, 0, 255, 0, 255], [255] * 6])
    found = content_tokens({"input_ids": IDS, "attention_mask": MASK, "rationale": rationale})
    assert found.tolist() == [[False, True, True, False, True, False], CONTENT[1]]


def test_ends_are_found_beside_padding_on_either_side():
    attended = torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]).bool()
    assert end_tokens(attended).int().tolist() == [[0, 1, 0, 1], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
