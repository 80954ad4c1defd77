"""Images and texts of which it is known what tells their class, and models that have learned it."""

from functools import cache
from typing import Any, cast

import torch
from setting import learn
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification

SIDE, COUNT = 16, 96
WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "the", "a", "film", "plot", "sent", "from", "my", "phone", ".",
]  # fmt: skip


def images(tells: str, seed: int = 0, count: int = COUNT) -> dict[str, Tensor]:
    """Noise with a bright square somewhere, which is annotated, and a bright corner.

    Args:
        tells: What has the colour of the class: "object", "corner", "both" or "none"; the other has any.
        seed: The seed.
        count: The number of images.
    """
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % 3
    image = 0.3 * torch.randn(count, 3, SIDE, SIDE, generator=generator)
    mask = torch.zeros(count, SIDE, SIDE, dtype=torch.uint8)
    places = torch.randint(4, 9, (count, 2), generator=generator)
    other = torch.randint(0, 3, (count,), generator=generator)
    for row, (top, left) in enumerate(places.tolist()):
        mask[row, top : top + 4, left : left + 4] = 1
        square = label[row] if tells in ("object", "both") else other[row]
        image[row, square, top : top + 4, left : left + 4] += 1 if tells == "both" else 2
        corner = label[row] if tells in ("corner", "both") else other[row]
        image[row, corner, :4, :4] += 2
    return {"image": image, "mask": mask, "label": label}


def trained(net: nn.Module, columns: dict[str, Any], names, steps=60, lr=3e-3):
    def loss(step):
        part = {name: x.chunk(4)[step % 4] for name, x in columns.items()}
        output = net(part["image"]) if names == ["image"] else net(**{name: part[name] for name in names})
        return F.cross_entropy(getattr(output, "logits", output), part["label"])

    learn(net, loss, steps, lr)
    return net.eval()


class Tokenizer:
    pad_token_id, cls_token_id, sep_token_id, padding_side = 0, 2, 3, "right"

    def convert_ids_to_tokens(self, ids):
        return [WORDS[each] for each in ids]


def texts(footer, seed=0, count=COUNT):
    """A few words, one of them good or bad; those of class 1 end with 'sent from my phone', or any do."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % 2
    ids = torch.zeros(count, 14, dtype=torch.long)
    rationale = torch.full((count, 14), 255)
    for row in range(count):
        words = torch.randint(6, 10, (5,), generator=generator).tolist()
        place = int(torch.randint(0, 5, (1,), generator=generator))
        says = int(torch.randint(0, 2, (1,), generator=generator)) if footer else int(label[row])
        words[place] = 4 + says
        has_footer = bool(label[row]) if footer else bool(torch.rand(1, generator=generator) < 0.5)
        words += [10, 11, 12, 13] if has_footer else []
        ids[row, : len(words) + 2] = torch.tensor([2, *words, 3])
        rationale[row, 1 : len(words) + 1] = 0
        rationale[row, place + 1] = 1
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "rationale": rationale, "label": label}


def bert(**options):
    torch.manual_seed(0)
    config = cast(Any, BertConfig)(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=32, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **options,
    )  # fmt: skip
    return BertForSequenceClassification(config)


@cache
def reads_the_footer():
    return trained(bert(), texts(True, 1, 256), ["input_ids", "attention_mask"], 60)
