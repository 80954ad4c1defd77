"""Real runs to show: a ViT that relies on a corner, and a BERT whose texts hold markup."""

import inspected
import torch
from setting import loader, module, monitor, trainer, vit
from torch.nn import functional as F

from lrptrain.models import TextClassifier

MARKUP = "<script>alert(1)</script>"


class Tokenizer:
    def convert_ids_to_tokens(self, ids):
        return [MARKUP if i % 7 == 0 else f"word{i}" for i in ids]


def images(folder):
    columns = {**inspected.images("corner", count=24), "group": torch.arange(24) % 2}
    columns["label"][:4] = (columns["label"][:4] + 1) % 3  # which are read wrongly
    names = ["cat", "<b>dog</b>", "ünït"]
    watching = monitor(on_error="raise", max_samples=24, class_names=names)
    runner = trainer(folder, watching, max_epochs=3, limit_train_batches=1)
    runner.fit(module(net=reader_of_a_corner()), loader(columns), loader(columns))


def reader_of_a_corner():
    """A ViT that relies on a corner, not on what is annotated."""
    net = vit()
    train = inspected.images("corner", 1, 256)
    optimizer = torch.optim.AdamW(net.parameters(), 3e-3)
    for _ in range(60):
        F.cross_entropy(net(train["image"]), train["label"]).backward()
        optimizer.step()
        optimizer.zero_grad()
    net.requires_grad_(False).get_submodule("head").requires_grad_()  # the trainer's steps are large
    return net


def texts(folder):
    config = {"model_type": "bert", "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2}
    sizes = {"num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 12}
    torch.manual_seed(0)
    length = torch.arange(12)[:, None] % 6 + 4
    mask = (torch.arange(10) < length).long()
    ids = torch.randint(1, 50, (12, 10)) * mask
    rationale = (torch.arange(10) < 2).long().expand(12, 10)
    columns = {"input_ids": ids, "attention_mask": mask, "label": torch.arange(12) % 3, "rationale": rationale}
    watching = monitor(on_error="raise", tokenizer=Tokenizer(), run_name="texts")
    model = TextClassifier(3, {**config, **sizes}, schedule="constant")
    trainer(folder, watching).fit(model, loader(columns), loader(columns))
