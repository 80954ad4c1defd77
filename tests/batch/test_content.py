import pytest
import torch

from lrptrain.batch.call import CHUNK
from lrptrain.batch.content import attended_tokens, content_tokens, ends_of_texts, special_tokens

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
    assert content_tokens(batch).tolist() == [[False, *[True] * 5]] * 2  # texts end in 102 and in 0


def test_a_rationale_excludes_special_tokens_in_between_and_one_that_is_absent_nothing():
    rationale = torch.tensor([[255, 1, 0, 255, 0, 255], [255] * 6])
    found = content_tokens({"input_ids": IDS, "attention_mask": MASK, "rationale": rationale})
    assert found.tolist() == [[False, True, True, False, True, False], CONTENT[1]]


def test_ends_are_found_beside_padding_on_either_side():
    ids = torch.tensor([[0, 7, 5, 9], [7, 9, 0, 0], [0, 3, 0, 0], [0, 0, 0, 0]])
    mask = (ids > 0).long()
    assert ends_of_texts({"input_ids": ids, "attention_mask": mask})[:2] == [{7, 3}, {9, 3}]
    alike = {"input_ids": ids[:2], "attention_mask": mask[:2]}
    assert special_tokens(alike).tolist() == [[False, True, False, True], [True, True, False, False]]


def test_ends_that_differ_are_words():
    batch = {"input_ids": torch.tensor([[101, 5, 6], [101, 7, 8]])}
    assert content_tokens(batch).tolist() == [[False, True, True]] * 2
    assert content_tokens({"input_ids": IDS[:, 2:5]}).all()


def test_what_other_texts_begin_with_decides():
    batch = {"input_ids": torch.tensor([[5, 6, 7]])}
    assert special_tokens(batch).tolist() == [[True, False, True]]
    assert special_tokens(batch, seen=[{5}, {7, 8}, {5}, {7, 8}]).tolist() == [[True, False, False]]
    assert not special_tokens(batch, seen=[{9}, {9}, {9}, {9}]).any()


def test_a_tokenizer_decides_wherever_its_tokens_stand():
    assert special_tokens({"input_ids": IDS}, {6, 101}).tolist() == [
        [True, False, True, *[False] * 3],
        [True, *[False] * 3, True, True],
    ]
    masked = {"input_ids": IDS, "attention_mask": MASK}
    assert special_tokens(masked, {6, 101}).sum() == 3
    assert not special_tokens(masked, {50256}).any()  # the end of a text that no text holds


def test_chunks_have_their_ends_or_the_text_has():
    chunks = torch.tensor([[[1, 5, 2], [1, 6, 2]], [[1, 7, 2], [1, 8, 2]]])
    flat = {"input_ids": chunks.flatten(1), CHUNK: torch.tensor([3, 3])}
    assert content_tokens(flat).tolist() == [[False, True, False] * 2] * 2
    cut = torch.tensor([[1, 5, 6, 7, 8, 2], [1, 6, 9, 5, 7, 2]])
    assert content_tokens({"input_ids": cut, CHUNK: torch.tensor([3, 3])}).tolist() == [[False, *[True] * 4, False]] * 2


def test_what_was_found_out_already_holds():
    given = torch.tensor([[0, 1, 0, 0, 0, 0]] * 2)
    assert special_tokens({"input_ids": IDS, "special_tokens_mask": given}, {101}).tolist() == given.bool().tolist()
