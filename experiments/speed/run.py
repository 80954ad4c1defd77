"""What does each method cost over one forward and backward pass, in time and memory? See README.md.

    .venv/bin/python -m experiments.speed.run
    .venv/bin/python -m experiments.speed.run --device cuda

Every cell is saved in `results/`; a run that was cut off goes on with what is missing. On a CPU each is a process of
its own. `--device cuda` measures other, larger models (`gpu.py`).
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import lrptrain
from experiments.speed import gpu
from experiments.speed.cells import Inputs, apart, time_and_memory, training_pass
from experiments.speed.peers import PEERS
from experiments.speed.works import TRAINING, work_of
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent

BATCHES = (1, 8, 32)
OF_DEPTHS = 4  # batch at which models of several depths are compared
HEADLINES = ("rollout", "generic_attention", "attnlrp", "transformer_attribution")
DEPTHS = (6, 12, 24)
LIMIT = 20.0  # seconds of one call, foreseen from batch 1, above which a larger batch is left out
Model = tuple[nn.Module, Callable[[int], Inputs]]


def vit_small(depth: int = 12) -> Model:
    """ViT-S/16 at 224."""
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(patch_size=16, embed_dim=384, depth=depth, num_heads=6, num_classes=1000)
    return model.eval(), lambda batch: torch.randn(batch, 3, 224, 224)


def bert_base(depth: int = 12) -> Model:
    """BERT of base width, 128 tokens."""
    from transformers import BertConfig, BertForSequenceClassification

    def texts(batch: int) -> Inputs:
        ids = torch.randint(1000, 20000, (batch, 128))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    return BertForSequenceClassification(BertConfig(num_hidden_layers=depth)).eval(), texts


MODELS = {"ViT-S/16, 224 px": vit_small, "BERT-base, 128 tokens": bert_base}


def cell(name: str, model: nn.Module, inputs: Inputs, rounds: int, threads: int) -> dict[str, Any]:
    """Ratio of time, and bytes at the peak."""
    work, base = work_of(name, model, inputs), partial(training_pass, model, inputs)
    return apart(lambda: time_and_memory(work, base, rounds, "cpu"), "cpu", threads)


def measure(arguments: argparse.Namespace, path: Path) -> None:
    """Every missing cell, batch 1 first, which says what a larger batch would take."""
    cells: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    names = [TRAINING, *lrptrain.methods(), *PEERS]
    for title, make in MODELS.items():
        for depth in DEPTHS:
            if depth != 12 and arguments.quick:
                continue
            model, inputs_of = make(depth)
            for batch in (*BATCHES, OF_DEPTHS) if depth == 12 else (OF_DEPTHS,):
                torch.manual_seed(0)
                inputs = inputs_of(batch)
                for name in names if batch in BATCHES[:2] else (TRAINING, *HEADLINES):
                    key = f"{title} | {depth} | {batch} | {name}"
                    foreseen = batch * cells.get(f"{title} | {depth} | 1 | {name}", {}).get("seconds", 0.0)
                    if key in cells or foreseen > LIMIT or "error" in cells.get(f"{title} | {depth} | 1 | {name}", {}):
                        continue
                    rounds = arguments.rounds * (2 if name in (TRAINING, *HEADLINES) else 1)
                    cells[key] = cell(name, model, inputs, rounds, arguments.threads)
                    path.write_text(json.dumps(cells, indent=0, sort_keys=True) + "\n", encoding="utf-8")
                    print(key, cells[key], flush=True)


def measured_as(cells: dict[str, dict[str, Any]], title: str, name: str) -> str:
    """The method's name, or what its record says it was: a default may be another one since."""
    return cells.get(f"{title} | 12 | 1 | {name}", {}).get("measured as", name)


def shown(cells: dict[str, dict[str, Any]], title: str, batch: int, name: str) -> tuple[str, str]:
    """Time and memory of a cell over those of a training pass."""
    found = cells.get(f"{title} | 12 | {batch} | {name}")
    base = cells.get(f"{title} | 12 | {batch} | {TRAINING}")
    if found is None or base is None or "error" in found:
        return "-", "-"
    return f"{found['time']:.2f}" if found[
        "time"
    ] < 10 else f"{found['time']:.0f}", f"{found['bytes'] / base['bytes']:.2f}"


def tables(cells: dict[str, dict[str, Any]]) -> str:
    """Time, memory, growth with depth, and what did not run."""
    texts = []
    for title in MODELS:
        rows = []
        for name in (TRAINING, *lrptrain.methods(), *PEERS):
            pairs = [shown(cells, title, batch, name) for batch in BATCHES]
            times = {f"time, batch {batch}": pair[0] for batch, pair in zip(BATCHES, pairs, strict=True)}
            peaks = {f"memory, batch {batch}": pair[1] for batch, pair in zip(BATCHES, pairs, strict=True)}
            if any(time != "-" for time in times.values()):
                row = f"`{measured_as(cells, title, name)}`" if name in lrptrain.methods() else name
                rows.append({"method": f"{row} (itself)" if name == TRAINING else row, **times, **peaks})
        texts.append(f"**{title}**, over one forward + backward of the same batch:\n\n{markdown(rows)}")
    depths = [
        {"model": title, "method": f"`{name}`"}
        | {f"{depth} blocks": f"{cells[f'{title} | {depth} | {OF_DEPTHS} | {name}']['time']:.2f}" for depth in DEPTHS}
        for title in MODELS
        for name in HEADLINES
        if all(f"{title} | {depth} | {OF_DEPTHS} | {name}" in cells for depth in DEPTHS)
    ]
    if depths:
        texts.append(
            f"**Blocks**: time over a forward + backward of the same model, batch {OF_DEPTHS}. A cost linear in the "
            f"blocks keeps its ratio.\n\n{markdown(depths)}"
        )
    failed = {
        key.split(" | ")[-1]: f"{key.split(' | ')[0]}: {found['error']}"
        for key, found in cells.items()
        if "error" in found and "does not exist for this model" not in found["error"]
    }
    if failed:
        texts.append("**Did not run:**\n\n" + "\n".join(f"- {name} on {why}" for name, why in failed.items()))
    return "\n\n".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="cuda: the models of gpu.py")
    parser.add_argument("--quick", action="store_true", help="leave out other depths")
    parser.add_argument("--limit", type=float, default=120.0, help="on a GPU: seconds of a call that is left out")
    parser.add_argument("--models", nargs="+", choices=tuple(gpu.CASES), help="on a GPU: only these")
    parser.add_argument("--methods", nargs="+", help="on a GPU: only these, and other libraries by their names")
    parser.add_argument("--tables-only", action="store_true", help="write the tables of what is saved already")
    arguments = parser.parse_args()
    if arguments.device != "cpu":
        gpu.run(arguments)
        return
    torch.set_num_threads(1)  # until the processes of the cells
    path = HERE / "results" / "cpu.json"
    path.parent.mkdir(exist_ok=True)
    if not arguments.tables_only:
        measure(arguments, path)
    text = tables(json.loads(path.read_text(encoding="utf-8")))
    write_between(HERE / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
