"""Texts without special tokens: the first and the last word are words, tested, swapped and judged as any other."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertForMultipleChoice

import lrptrain

COUNT, LENGTH = 64, 9
LABEL = torch.arange(COUNT) % 2


class LastWord(nn.Module):
    """It answers by the last word, or the first one, alone."""

    def __init__(self, first: bool = False) -> None:
        super().__init__()
        self.words, self.first = nn.Embedding(50, 2), first
        self.seen: list[Tensor] = []
        nn.init.zeros_(self.words.weight)
        with torch.no_grad():
            self.words.weight[1], self.words.weight[2] = torch.tensor([[4.0, -4.0], [-4.0, 4.0]])

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> Any:
        self.seen.append(input_ids.detach().clone())
        there = attention_mask != 0
        ends = there.int().argmax(1), there.shape[1] - 1 - there.flip(1).int().argmax(1)
        logits = self.words(input_ids)[torch.arange(len(input_ids)), ends[not self.first]]
        return logits if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}


def texts(left: bool = False, first: bool = False, ends: bool = False) -> dict[str, Tensor]:
    """Texts of several lengths, whose end is the shortcut; the word in their middle is marked."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 50, (COUNT, LENGTH), generator=generator)
    shorter = torch.arange(COUNT) // 2 % 3
    mask = torch.arange(LENGTH) >= shorter[:, None] if left else torch.arange(LENGTH) < LENGTH - shorter[:, None]
    rows = torch.arange(COUNT)
    stop = torch.full((COUNT,), LENGTH - 1) if left else LENGTH - 1 - shorter
    start = shorter if left else torch.zeros(COUNT, dtype=torch.long)
    ids[rows, start if first else stop] = 1 + LABEL
    rationale = torch.zeros(COUNT, LENGTH, dtype=torch.long)
    rationale[:, 4] = 1
    columns = {"input_ids": ids * mask, "attention_mask": mask.long(), "rationale": rationale}
    if ends:  # as a tokenizer puts them
        begin, end = torch.full((COUNT, 1), 3), torch.full((COUNT, 1), 4)
        columns = {name: torch.cat([F.pad(x, (1, 1)), x[:, :0]], 1) for name, x in columns.items()}
        columns["input_ids"][rows, start], columns["input_ids"][rows, stop + 2] = begin[:, 0], end[:, 0]
        columns["attention_mask"][rows, start] = columns["attention_mask"][rows, stop + 2] = 1
    return {**columns, "label": LABEL}


class Names:
    """A tokenizer whose texts end with a token that none of them holds, as GPT-2's."""

    bos_token_id = eos_token_id = 49
    pad_token_id = 0

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f" w{number}" for number in ids]


def given(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x for name, x in columns.items() if name in ("input_ids", "attention_mask")}


@pytest.mark.parametrize(
    ("first", "left", "tokenizer"),
    [(True, True, None), (False, True, Names()), (True, False, Names()), (False, False, None)],
)
def test_a_shortcut_at_an_end_is_one(first, left, tokenizer):
    columns = texts(left, first)
    columns["input_ids"][columns["input_ids"] == 49] = 48
    report = lrptrain.inspect(LastWord(first), [columns], tokenizer=tokenizer)
    assert report.faults
    assert max(each.interval[0] for each in report.faults) > 0.9


@pytest.mark.parametrize("tokenizer", [None, Names()])
def test_every_word_that_is_not_marked_is_swapped(tokenizer):
    """Sample i holds the token 10 + i alone."""
    ids = torch.arange(16)[:, None].expand(16, LENGTH) + 10
    rationale = torch.zeros(16, LENGTH, dtype=torch.long)
    rationale[:, 3] = 1
    net, batch = LastWord(), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "label": LABEL[:16]}
    guidance = lrptrain.Guidance("swap", tokenizer=tokenizer, on_error="raise")
    with guidance.step(net, {**batch, "rationale": rationale}) as step:
        step.guided(F.cross_entropy(net(ids, batch["attention_mask"]), batch["label"])).backward()
    assert (net.seen[0] != ids).float().mean(0).tolist() == [float(place != 3) for place in range(LENGTH)]


def test_what_all_texts_have_at_their_ends_stays_there():
    columns = texts(ends=True)
    net = LastWord()
    guidance = lrptrain.Guidance("swap", on_error="raise")
    with guidance.step(net, columns) as step:
        step.guided(F.cross_entropy(net(**given(columns)), LABEL)).backward()
    ids = net.seen[0]
    assert (ids[:, 0] == 3).all()
    assert ((ids == 3).sum(1) == 1).all()
    assert ((ids == 4).sum(1) == 1).all()


def test_a_loss_on_maps_judges_the_ends_also_one_text_at_a_time():
    columns, net = texts(), LastWord()
    guidance = lrptrain.Guidance("energy", weight=1.0, method="input_x_gradient", on_error="raise")
    energies = []
    for i in range(6):
        batch = {name: x[i : i + 1] for name, x in columns.items()}
        with guidance.step(net, batch) as step:
            step.guided(F.cross_entropy(net(**given(batch)), batch["label"]))
        energies.append(guidance.values["guidance/energy"])
    # Of the first text alone nobody knows: its ends may be special. All that is read lies outside of the annotation.
    assert energies[3:] == pytest.approx([1.0] * 3)


def choices(count: int = 64) -> dict[str, Tensor]:
    """Four choices each, of which that with the word 95 at its sixth place is right; the second one is shorter."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, 90, (count, 4, 10), generator=generator)
    label = torch.randint(0, 4, (count,), generator=generator)
    ids[:, :, 0] = 1
    ids[torch.arange(count), label, 6] = 95
    mask = torch.ones_like(ids)
    mask[:, 1, 8:] = ids[:, 1, 8:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": label}


class Choice(nn.Module):
    """It scores each choice by whether it holds the word 95."""

    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(100, 1)
        nn.init.zeros_(self.word.weight)
        with torch.no_grad():
            self.word.weight[95] = 8.0

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return (
            (self.word(input_ids.flatten(0, 1))[..., 0] * attention_mask.flatten(0, 1)).sum(1).view(len(input_ids), -1)
        )


class AtItsPlace(Choice):
    """It reads the sixth word of each choice alone."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.word(input_ids.flatten(0, 1))[:, 6, 0].view(len(input_ids), -1)


def test_what_lies_outside_of_the_right_choices_word_decides_nothing():
    """The words of a choice that another sample has marked in another choice must not move what is marked here."""
    columns = choices()
    columns["rationale"] = (columns["input_ids"] == 95).long()
    report = lrptrain.inspect(AtItsPlace(), [columns])
    assert not report.faults
    (outside,) = [each for each in report.judged if each.cue.name == "everything outside the annotation"]
    assert abs(outside.effect.mean) < 0.02


def test_the_marked_word_of_a_choice_stays_in_it():
    columns, net = choices(), Choice()
    rationale = (columns["input_ids"] == 95).long()
    guidance = lrptrain.Guidance("swap", on_error="raise")
    seen: list[Tensor] = []
    net.word.register_forward_pre_hook(lambda _, args: seen.append(args[0].view(-1, 4, 10)))
    with guidance.step(net, {**columns, "rationale": rationale}) as step:
        step.guided(F.cross_entropy(net(**given(columns)), columns["labels"])).backward()
    assert torch.equal((seen[0] == 95).any(2), (columns["input_ids"] == 95).any(2))
    assert (seen[0] != columns["input_ids"])[:, :, 1:6].float().mean() > 0.8


@pytest.mark.filterwarnings("ignore:.*the default method cannot serve")
def test_guidance_on_choices_reads_the_words_of_the_choice():
    torch.manual_seed(0)
    small: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    net, columns = BertForMultipleChoice(BertConfig(vocab_size=100, **small)).eval(), choices(8)
    rationale = (columns["input_ids"] == 95).long()
    guidance = lrptrain.Guidance("energy", weight=1.0, on_error="raise")
    with guidance.step(net, {**columns, "rationale": rationale}) as step:
        step.guided(F.cross_entropy(net(**given(columns)).logits, columns["labels"])).backward()
    by_default = guidance.values["guidance/energy"]
    maps = lrptrain.attribute(net, given(columns), columns["labels"], "attnlrp").scores.clamp(min=0)
    words = maps * (columns["input_ids"] > 1).flatten(1)
    inside = (words * rationale.flatten(1)).sum(1) / words.sum(1)
    assert by_default == pytest.approx(float(1 - inside.mean()), rel=1e-3)


class Unfolded(nn.Module):
    """It looks chunks up as they are, `[batch, chunks, tokens]`."""

    def __init__(self, is_flat: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head, self.is_flat = nn.Embedding(50, 8), nn.Linear(8, 2), is_flat

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        ids = input_ids.flatten(1) if self.is_flat else input_ids
        return self.head(torch.tanh(self.words(ids)).flatten(1, -2).mean(1))


def test_chunks_that_the_model_does_not_fold_have_a_map_of_every_word():
    ids = texts()["input_ids"][:, :8].reshape(COUNT, 2, 4)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    rationale = torch.zeros_like(ids).index_fill(2, torch.tensor([1]), 1)
    maps, energies = [], []
    for net in (Unfolded(), Unfolded(is_flat=True)):
        maps.append(lrptrain.attribute(net, batch, LABEL).scores)
        guidance = lrptrain.Guidance("energy", weight=1.0, method="attnlrp", on_error="raise")
        with guidance.step(net, {**batch, "label": LABEL, "rationale": rationale}) as step:
            step.guided(F.cross_entropy(net(**batch), LABEL))
        energies.append(guidance.values["guidance/energy"])
        report = lrptrain.inspect(net.eval(), [{**batch, "label": LABEL, "rationale": rationale}])
        assert report.samples == COUNT
    assert maps[0].shape == (COUNT, 8)
    torch.testing.assert_close(*maps)
    assert energies[0] == pytest.approx(energies[1], rel=1e-5)
