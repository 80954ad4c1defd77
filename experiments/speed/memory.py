"""How do memory and time grow with the number of tokens, over those of a training pass? See README.md.

    .venv/bin/python -m experiments.speed.memory

Each cell is a process of its own, saved in `results/`; a run that was cut off goes on with what is missing.
"""

import argparse
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.records import made_on
from experiments.speed.cells import Inputs, apart, time_and_memory, training_pass
from experiments.speed.works import TRAINING, work_of
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "memory_cpu.json"
START, END = "<!-- memory -->", "<!-- end of memory -->"

METHODS = ("attnlrp", "rollout", "generic_attention", "transformer_attribution", "input_x_gradient", "epsilon_lrp")
TOKENS = (128, 512, 1024, 2048, 4096)
WIDTH = {"blocks": 4, "heads": 4, "width": 256}


def bert(tokens: int) -> tuple[nn.Module, Inputs]:
    """A BERT of 4 blocks, 4 heads and width 256, and one text without padding."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        num_hidden_layers=WIDTH["blocks"],
        num_attention_heads=WIDTH["heads"],
        hidden_size=WIDTH["width"],
        intermediate_size=4 * WIDTH["width"],
        max_position_embeddings=tokens,
    )
    ids = torch.randint(1000, 20000, (1, tokens))
    return BertForSequenceClassification(config).eval(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def vit(tokens: int) -> tuple[nn.Module, Inputs]:
    """A ViT of the same size, and one image of about as many patches, besides the class token."""
    from timm.models.vision_transformer import VisionTransformer

    side = 16 * round(math.sqrt(tokens))
    model = VisionTransformer(
        img_size=side,
        embed_dim=WIDTH["width"],
        depth=WIDTH["blocks"],
        num_heads=WIDTH["heads"],
        num_classes=1000,
    )
    return model.eval(), torch.randn(1, 3, side, side)


MODELS: dict[str, Callable[[int], tuple[nn.Module, Inputs]]] = {"BERT": bert, "ViT": vit}


def cell(title: str, tokens: int, name: str, rounds: int) -> dict[str, Any]:
    """Ratio of time to a training pass, and bytes at the peak."""

    def measured() -> dict[str, float]:
        torch.manual_seed(0)
        model, inputs = MODELS[title](tokens)
        return time_and_memory(work_of(name, model, inputs), partial(training_pass, model, inputs), rounds, "cpu")

    return apart(measured, "cpu", threads=1)


def measure(arguments: argparse.Namespace, found: dict[str, Any]) -> None:
    """Every missing cell, the longest sequences last."""
    cells = found.setdefault("cells", {})
    for tokens in arguments.tokens:
        for title in MODELS:
            for name in (TRAINING, *arguments.methods):
                key = f"{title} | {tokens} | {name}"
                if key not in cells:
                    cells[key] = cell(title, tokens, name, arguments.rounds)
                    RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
                    print(key, cells[key], flush=True)


def table(found: dict[str, Any]) -> str:
    """Memory and time of each method and length, over those of a training pass."""
    cells = found["cells"]
    lengths = sorted({int(key.split(" | ")[1]) for key in cells})
    texts = [f"{found['cpu']}, one thread, torch {found['torch']}, batch 1.\n"]
    for title in MODELS:
        rows = []
        for name in METHODS:
            row = {"method": f"`{name}`"}
            for what in ("memory", "time"):
                for tokens in lengths:
                    row[f"{what}, {tokens}"] = _ratio(cells, title, tokens, name, what)
            if any(entry != "-" for column, entry in row.items() if column != "method"):
                rows.append(row)
        texts.append(f"**{title}**, 4 blocks, 4 heads, width 256\n\n{markdown(rows)}")
    return "\n".join((texts[0], *("\n\n".join(texts[1:]).splitlines())))


def _ratio(cells: dict[str, Any], title: str, tokens: int, name: str, what: str) -> str:
    one = cells.get(f"{title} | {tokens} | {name}", {})
    base = cells.get(f"{title} | {tokens} | {TRAINING}", {})
    if "bytes" not in one or "bytes" not in base:
        return "-"
    return f"{one['bytes'] / base['bytes'] if what == 'memory' else one['time']:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--tables-only", action="store_true", help="write the table of what is saved already")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # until the processes of the cells
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"cells": {}}
    if not arguments.tables_only:
        found |= {"cpu": made_on()["cpu"], "torch": torch.__version__}
        measure(arguments, found)
    text = table(found)
    write_between(HERE / "README.md", text, START, END)
    print(text)


if __name__ == "__main__":
    main()
