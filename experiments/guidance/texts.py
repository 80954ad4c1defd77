"""What both tables of texts share: the model, its batches, and what is measured."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset, WeightedRandomSampler, default_collate

from experiments.guidance.arms import Arm
from experiments.guidance.fitting import Trained, draw_weights, swapped
from experiments.guidance.measures import accuracy, focus_on, moved
from experiments.short_tweets import tokenizer
from lrptrain.batch.annotations import rationale_to_tokens
from lrptrain.data.texts import Example, collate_texts

Texts = dict[str, Tensor]
"""Columns of `lrptrain.data.texts.collate_texts`, and perhaps `group`."""
PRECISION = "bf16-mixed"


def module(net: nn.Module, arm: Arm, lr: float) -> Trained:
    """What trains it."""
    return Trained(net, inputs, arm, lr, precision=PRECISION)


def inputs(texts: Texts) -> Texts:
    """The model's."""
    return {name: texts[name] for name in ("input_ids", "attention_mask")}


def encoded(examples: Sequence[Example], max_length: int) -> Texts:
    """All of them, padded to the longest."""
    return collate_texts(list(enumerate(examples)), tokenizer(), max_length)


def trimmed(texts: Texts) -> Texts:
    """Without padding that no text needs."""
    longest = int(texts["attention_mask"].sum(1).max())
    return {name: x[:, :longest] if x.ndim == 2 else x for name, x in texts.items()}


def parts(texts: Texts, at_once: int = 32) -> Iterator[Texts]:
    """In the order they are in."""
    for start in range(0, len(texts["label"]), at_once):
        yield trimmed({name: x[start : start + at_once] for name, x in texts.items()})


def loader(texts: Texts, arm: Arm, batch: int, seed: int) -> DataLoader:
    """Random batches; of both groups alike for group DRO."""
    return batches(texts, draw_weights(texts, arm), batch, seed)


def batches(texts: Texts, weights: Tensor, batch: int, seed: int) -> DataLoader:
    """Random batches, drawn by weights."""
    sampler = WeightedRandomSampler(weights, 1000 * batch, generator=torch.Generator().manual_seed(seed))
    dataset: StackDataset = StackDataset(**texts)
    return DataLoader(dataset, batch, sampler=sampler, collate_fn=lambda samples: trimmed(default_collate(samples)))


@torch.no_grad()
def logits(net: nn.Module, texts: Texts, mixed: bool = True) -> Tensor:
    """Of all texts, in bfloat16 where that is safe (`mixed`), or in float32 throughout."""
    with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
        return torch.cat([net(**inputs(part)).logits.float() for part in parts(texts)])


def right(net: nn.Module, texts: Texts) -> float:
    """Accuracy."""
    return accuracy(logits(net, texts), texts["label"])


def fill_outside(texts: Texts) -> Texts:
    """[MASK] for every token outside of the rationale; special tokens stay."""
    ids = texts["input_ids"].masked_fill(texts["rationale"] == 0, tokenizer().mask_token_id)
    return {**texts, "input_ids": ids}


def swap_outside(texts: Texts) -> Texts:
    """Tokens of another text for every one outside of the rationale."""
    return swapped(texts, torch.Generator().manual_seed(0))


def reliance(net: nn.Module, texts: Texts, mixed: bool = True) -> dict[str, float]:
    """Accuracy, and what becomes of the prediction when what is no evidence is masked, or swapped with other texts'."""
    before = logits(net, texts, mixed)
    found = {"accuracy": accuracy(before, texts["label"])}
    for name, changed in {"fill": fill_outside, "swap": swap_outside}.items():
        after = logits(net, changed(texts), mixed)
        found |= {f"reliance, {name}": moved(before, after), f"accuracy, {name}": accuracy(after, texts["label"])}
    return found


def focus(net: nn.Module, texts: Texts, most: int) -> dict[str, float]:
    """Energy inside the rationale of the first texts, and what a uniform map has there."""
    chosen = {name: x[:most] for name, x in texts.items()}
    chance = rationale_to_tokens(chosen["rationale"]).chance.nanmean().item()
    batches = ((inputs(part), part["label"], part["rationale"]) for part in parts(chosen, 16))
    return focus_on(net, batches) | {"EPG, chance": chance}
