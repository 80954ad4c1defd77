"""Real runs to show: a ViT that was audited, and a BERT whose texts hold markup."""

from typing import Any

import torch
from setting import data, loader, module, monitor, trainer, vit

from lrptrain.auditing import AuditSettings
from lrptrain.callbacks import ExplanationAudit
from lrptrain.models import TextClassifier

MARKUP = "<script>alert(1)</script>"


class Tokenizer:
    def convert_ids_to_tokens(self, ids):
        return [MARKUP if i % 7 == 0 else f"word{i}" for i in ids]


def images(folder):
    settings = AuditSettings(
        random_maps=1, stages=1, shuffles=4, search_copies=1, search_steps=2, frozen_steps=2, strengths=()
    )
    options: dict[str, Any] = {
        "methods": ["raw_attention"],
        "max_samples": 8,
        "settings": settings,
        "on_error": "raise",
    }
    torch.manual_seed(0)
    columns = {**data(), "group": torch.arange(24) % 2}
    names = ["cat", "<b>dog</b>", "ünït"]
    watching = monitor(on_error="raise", max_samples=24, class_names=names, bound=0.9)
    # Few steps: with more, what the maps point at is refuted, and the verdict of the run has no finding to lead to.
    runner = trainer(folder, watching, ExplanationAudit(**options), max_epochs=3, limit_train_batches=1)
    runner.fit(module(net=vit()), loader(columns), loader(columns))


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
