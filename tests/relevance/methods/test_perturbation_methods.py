"""Leave-one-out: the answers of the model to inputs changed by hand."""

from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS
from small_models import Small, patches
from torch import Tensor, nn

import lrptrain

MODEL = Small(nn.GELU(), nn.Tanh())
TARGET = torch.tensor([0, 3, 1])


def fall_by_hand(blocks: list[tuple[slice, slice]], baseline: float, probability: bool) -> Tensor:
    def answer(images: Tensor) -> Tensor:
        with torch.no_grad():
            logits = MODEL(images)
        return (logits.softmax(1) if probability else logits).gather(1, TARGET[:, None])[:, 0]

    falls = []
    for block in blocks:
        changed = patches()
        changed[:, :, *block] = baseline
        falls.append(answer(patches()) - answer(changed))
    return torch.stack(falls, 1)


@pytest.mark.parametrize("of", ["logit", "probability"])
@pytest.mark.parametrize("at_once", [1, 7, 64])
def test_a_patch_left_out_is_pixels_set_to_the_baseline(of, at_once):
    squares = [(slice(4 * i, 4 * i + 4), slice(4 * j, 4 * j + 4)) for i in range(4) for j in range(4)]
    expected = fall_by_hand(squares, 0.5, of == "probability")
    found = lrptrain.attribute(MODEL, patches(), TARGET, "leave_one_out", of=of, baseline=0.5, at_once=at_once)
    assert relative_error(found.scores, expected).max() < 1e-10


def test_a_window_is_a_square_and_all_its_patches_get_the_fall():
    edges = [slice(0, 12), slice(12, 16)]  # the last window is what remains
    expected = fall_by_hand([(i, j) for i in edges for j in edges], 0.0, False).unflatten(1, (2, 2))
    found = lrptrain.attribute(MODEL, patches(), TARGET, "leave_one_out", window=3).scores.unflatten(1, (4, 4))
    which = torch.tensor([0, 0, 0, 1])
    assert relative_error(found, expected[:, which][:, :, which]).max() < 1e-10


@pytest.mark.parametrize("window", [1, 3])
def test_a_token_left_out_is_masked_and_its_embedding_zero(window):
    """The class token's embedding, too, but it goes on reading."""
    model: Any = KINDS["bert"].build(True)
    inputs = KINDS["bert"].inputs()
    words = model.bert.embeddings.word_embeddings(inputs["input_ids"]).detach()
    expected = torch.zeros(3, 10, dtype=torch.float64)
    with torch.no_grad():
        for row, length in enumerate([10, 7, 4]):
            whole, mask = words[row : row + 1, :length], torch.ones(1, length, dtype=torch.long)
            before = model(inputs_embeds=whole, attention_mask=mask).logits[0, 2]
            for start in range(0, length, window):
                left, kept = whole.clone(), mask.clone()
                left[:, start : start + window], kept[:, max(start, 1) : start + window] = 0.0, 0
                after = model(inputs_embeds=left, attention_mask=kept).logits[0, 2]
                expected[row, start : min(start + window, length)] = before - after
    found = lrptrain.attribute(model, inputs, 2, "leave_one_out", window=window)
    assert relative_error(found.scores, expected).max() < 1e-10


def test_without_a_mask_only_the_embedding_is_taken_away_and_a_single_token_can_be():
    model: Any = KINDS["bert"].build(True)
    ids = KINDS["bert"].inputs()["input_ids"][:1]
    words = model.bert.embeddings.word_embeddings(ids).detach()
    with torch.no_grad():
        before, words[0, 4] = model(inputs_embeds=words).logits[0, 2], 0.0
        after = model(inputs_embeds=words).logits[0, 2]
    found = lrptrain.attribute(model, ids, 2, "leave_one_out").scores
    assert abs(found[0, 4] - (before - after)) < 1e-12
    one = {"input_ids": ids[:, :1], "attention_mask": torch.ones(1, 1, dtype=torch.long)}
    without = lrptrain.attribute(model, one["input_ids"], 2, "leave_one_out").scores
    assert relative_error(lrptrain.attribute(model, one, 2, "leave_one_out").scores, without).max() < 1e-12


def test_a_contrast_is_the_difference_of_the_falls():
    target, other = (lrptrain.attribute(MODEL, patches(), i, "leave_one_out").scores for i in (0, 2))
    found = lrptrain.attribute(MODEL, patches(), 0, "leave_one_out", other=2).scores
    assert relative_error(found, target - other).max() < 1e-10


@pytest.mark.parametrize("options", [{"of": "loss"}, {"window": 0}, {"at_once": 0}])
def test_options_without_meaning_are_refused(options):
    with pytest.raises(ValueError, match="of must be 'logit' or 'probability', window and at_once 1 or more"):
        lrptrain.attribute(MODEL, patches(), 0, "leave_one_out", **options)
