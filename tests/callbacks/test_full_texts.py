"""Texts without an attention mask: where all are full, they are taken as such."""

import copy
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from inspected import Tokenizer
from own_trainers import answers, in_lightning, in_transformers
from setting import learn
from test_guidance_gradients import EXACT, assert_close
from test_guidance_text_swaps import TOKENIZER, bert
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

import lrptrain

N, TOKENS, WORDS = 64, 10, 60


class Numbered(Tokenizer):
    def convert_ids_to_tokens(self, ids):
        return [f"w{chr(97 + each // 26)}{chr(97 + each % 26)}" for each in ids]


def full_texts(count=N, tokens=TOKENS, seed=0):
    """Words, of which the fifth says the class; no text is filled up, and none has special tokens."""
    ids = torch.randint(10, WORDS, (count, tokens), generator=torch.Generator().manual_seed(seed))
    label = torch.arange(count) % 2
    ids[:, 4] = 5 + label
    return {"input_ids": ids, "label": label}


@pytest.fixture(scope="module")
def reads_a_word():
    torch.manual_seed(0)
    config = cast(Any, BertConfig)(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    net = BertForSequenceClassification(config)

    def loss(step: int) -> Tensor:
        columns = full_texts(64, 8 + 2 * (step % 2), seed=step)
        return net(columns["input_ids"], labels=columns["label"]).loss

    learn(net, loss, 60)
    return net.eval()


def told(report):
    return [(each.name, round(each.effect, 3), round(each.area or 0, 3)) for each in report.to_review]


def test_an_inspection_is_that_of_texts_with_a_mask_of_ones(reads_a_word):
    columns = full_texts()
    masked = {**columns, "attention_mask": torch.ones_like(columns["input_ids"])}
    bare, other = (lrptrain.inspect(reads_a_word, [each], tokenizer=Numbered()) for each in (columns, masked))
    assert told(bare) == told(other)
    assert told(bare)[0][:1] in (("waf",), ("the word 'waf'",), ("the word 'wag'",))
    assert 0 < told(bare)[0][2] <= 1, "of texts without special tokens, too"


def test_batches_of_several_lengths_need_no_mask(reads_a_word):
    short, long = full_texts(N // 2, 8), full_texts(N // 2, 12)
    report = lrptrain.inspect(reads_a_word, [short, long], tokenizer=Numbered())
    assert report.accuracy == 1
    ids = torch.cat([F.pad(short["input_ids"], (0, 4)), long["input_ids"]])
    padded = {"input_ids": ids, "attention_mask": (ids != 0).long(), "label": torch.arange(N) % 2}
    assert told(report) == told(lrptrain.inspect(reads_a_word, [padded], tokenizer=Numbered()))

    class Bare(nn.Module):
        def forward(self, input_ids: Tensor) -> Tensor:
            return reads_a_word(input_ids).logits

    assert lrptrain.inspect(Bare(), [short], tokenizer=Numbered()).accuracy == 1
    with pytest.raises(ValueError, match="texts of different lengths need an attention_mask"):
        lrptrain.inspect(Bare(), [short, long], tokenizer=Numbered())


@pytest.mark.parametrize("train", [in_lightning, in_transformers])
def test_a_monitor_gives_the_mask_where_the_step_gives_none(train, reads_a_word, tmp_path):
    net, ids = copy.deepcopy(reads_a_word).train(), full_texts(24)["input_ids"]
    given: list[Tensor | None] = []
    net.register_forward_pre_hook(lambda _, args, kwargs: given.append(kwargs.get("attention_mask")), with_kwargs=True)
    watching = train(tmp_path, net, {"input_ids": ids}, {"tokenizer": Numbered()})
    assert any(x is None for x in given), "the trainer's own steps"
    assert any(isinstance(x, Tensor) and x.min() == 0 for x in given), "texts that became shorter"
    with torch.no_grad():
        own = net.eval()(ids).logits.argmax(1)
    assert answers(watching) == own.tolist()


def one_length():
    ids = torch.randint(5, len(TOKENIZER), (6, 8), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "rationale": (torch.arange(8) < 3).long().expand(6, 8), "label": torch.arange(6) % 2}


@pytest.mark.parametrize("loss", ["swap", "consistency", "energy"])
def test_guidance_is_that_of_texts_with_a_mask_of_ones(loss):
    weights = []
    for has_mask in (False, True):
        net, batch = bert(), one_length()
        mask = torch.ones_like(batch["input_ids"]) if has_mask else None
        guidance = lrptrain.Guidance(loss, weight=1.0, on_error="raise", tokenizer=TOKENIZER, compare_every_n_batches=1)
        given = {**batch, "attention_mask": mask} if has_mask else batch
        with guidance.step(net, given) as step:
            step.guided(F.cross_entropy(net(batch["input_ids"], mask).logits, batch["label"])).backward()
        assert guidance.values["guidance/failures"] == 0
        assert 0 <= guidance.values["guidance/swap_distance"] <= 1
        weights.append({name: x.grad for name, x in net.named_parameters() if x.grad is not None})
    assert_close(weights[0], weights[1], EXACT)


def test_a_model_that_takes_no_mask_is_guided_by_maps_without_a_failure():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = bert()

        def forward(self, input_ids: Tensor) -> Tensor:
            return self.net(input_ids).logits

    net, batch = Bare(), one_length()
    guidance = lrptrain.Guidance("energy", on_error="raise", compare_every_n_batches=1)
    with guidance.step(net, batch) as step:
        step.guided(F.cross_entropy(net(batch["input_ids"]), batch["label"])).backward()
    assert guidance.values["guidance/failures"] == 0
