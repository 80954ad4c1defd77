"""Texts of small vocabularies that are made as they are named, and a model that adds up a weight for each word."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from lrptrain.batch import Sample
from lrptrain.cues.text_form import Padding, TextForm
from lrptrain.cues.texts import Language


@dataclass
class Writer:
    """Writes texts as a tokenizer does, and reads them back; every name of a token is in its vocabulary.

    A star behind a word marks it as evidence.
    """

    names: list[str]
    pad: int
    begin: int
    end: int
    separators: int = 1
    has_types: bool = True
    language: Language = field(init=False)

    def __post_init__(self):
        form = TextForm(padding=Padding(self.pad), ends=frozenset({self.begin, self.end}))
        self.language = Language(lambda ids: [self.names[each] for each in ids], form)

    def ids(self, text):
        for name in text.split():
            if name not in self.names:
                self.names.append(name)
        return [self.names.index(name) for name in text.split()]

    def row(self, text):
        """Return the tokens of a text or of a pair, the type of each, and its rationale."""
        ids, types, rationale = [self.begin], [0], [255]
        for number, part in enumerate([text] if isinstance(text, str) else text):
            ends = [self.end] * (self.separators if number == 0 and not isinstance(text, str) else 1)
            new = [*self.ids(part.replace("*", "")), *ends]
            ids += new
            types += [number] * len(new)
            rationale += [*(int(word.endswith("*")) for word in part.split()), *(255 for _ in ends)]
        return ids, types, rationale

    def batch(self, *texts, left=False, mask=True, **others):
        """Return a batch of texts, padded on the right or the left."""
        rows = [self.row(text) for text in texts]
        width = max(len(ids) for ids, _, _ in rows)

        def padded(lists, filler):
            fill = [[filler] * (width - len(each)) for each in lists]
            return torch.tensor([[*f, *each] if left else [*each, *f] for each, f in zip(lists, fill, strict=True)])

        batch = {"input_ids": padded([ids for ids, _, _ in rows], self.pad)}
        if mask:
            batch["attention_mask"] = padded([[1] * len(ids) for ids, _, _ in rows], 0)
        if self.has_types:
            batch["token_type_ids"] = padded([types for _, types, _ in rows], 0)
        if any("*" in part for text in texts for part in ([text] if isinstance(text, str) else text)):
            batch["rationale"] = padded([rationale for _, _, rationale in rows], 255)
        return {**batch, **others}

    def read(self, batch):
        """Return the texts of a batch, special tokens included and padding not."""
        masks = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
        return [
            " ".join(self.names[token] for token in ids[mask != 0].tolist())
            for ids, mask in zip(batch["input_ids"], masks, strict=True)
        ]

    def samples(self, texts):
        """Return samples, each as long as it is."""
        marked = any("*" in part for text in texts for part in ([text] if isinstance(text, str) else text))
        batches = [self.batch(text) for text in texts]
        if marked:
            for text, batch in zip(texts, batches, strict=True):
                batch["rationale"] = torch.tensor([self.row(text)[2]])
        return [
            Sample(number, -1, {name: rows[0] for name, rows in batch.items()}) for number, batch in enumerate(batches)
        ]


def bert():
    """Word pieces: `play ##ing`, `[CLS] first [SEP] second [SEP]`."""
    return Writer(["[PAD]", "[UNK]", "[CLS]", "[SEP]"], pad=0, begin=2, end=3)


def roberta():
    """Bytes: `Ġplay ing`, `<s> first </s> </s> second </s>`, and no token types."""
    return Writer(["<s>", "<pad>", "</s>"], pad=1, begin=0, end=2, separators=2, has_types=False)


class BagOfWords(nn.Module):
    """The logit of class 1 is a bias, and for each attended token the weight of its name."""

    def __init__(self, writer, weights, bias=0.0, of_any=0.0):
        super().__init__()
        self.weights = torch.full((1000,), float(of_any))
        self.weights[[writer.begin, writer.end]] = 0
        for word, weight in weights.items():
            self.weights[writer.ids(word)[0]] = weight
        self.bias = bias

    def forward(self, input_ids, attention_mask):
        logit = self.bias + (self.weights[input_ids] * attention_mask).sum(1)
        return torch.stack([torch.zeros_like(logit), logit], 1)

    def probabilities(self, batch):
        return self(batch["input_ids"], batch["attention_mask"]).softmax(1).numpy()


WORDS = [one + other for one in "bdfgkl" for other in "aeiou"]


def mixed(count, least=8, most=14, seed=0):
    """Return texts of random words."""
    rng = np.random.default_rng(seed)
    return [list(rng.choice(WORDS, rng.integers(least, most + 1))) for _ in range(count)]
