"""What does each method cost on a GPU, in float32 and bfloat16? Called by `run.py --device cuda`; see README.md.

Models have random weights and are built from their configurations; nothing is downloaded.
"""

import argparse
import gc
import json
import math
import warnings
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import lrptrain
from experiments.records import stamped
from experiments.speed.cells import OUT_OF_MEMORY, Inputs, apart, time_and_memory, training_pass
from experiments.speed.peers import PEERS
from experiments.speed.works import TRAINING, placed, work_of
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
START, END = "<!-- gpu -->", "<!-- end of gpu -->"
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
PASSES: dict[str, float] = {"integrated_gradients": 22, "smoothgrad": 11, "kernel_shap": 76, "lime": 66}
"""Training passes that a map takes at least, where that is many: a call that would take too long is left out."""
PATCHING = frozenset({"LXT AttnLRP"})
"""Libraries that write into the classes of a model: they come last, and are set over the training pass of before."""


class Case(NamedTuple):
    """A model and a batch of inputs, with the number of patches or words of a sample, and of samples."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    tokens: int
    batch: int


def vit_base() -> nn.Module:
    """ViT-B/16 at 224 pixels."""
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(num_classes=1000, embed_dim=768)


def dinov3_large() -> nn.Module:
    """DINOv3 ViT-L/16 at 518 pixels, of which its 32 x 32 patches leave six at two edges unread."""
    import timm

    options = {"num_classes": 1000, "global_pool": "token", "dynamic_img_size": False, "img_size": 518}
    model: nn.Module = timm.create_model("vit_large_patch16_dinov3", **options)
    return model


def bert_base() -> nn.Module:
    """BERT of base size."""
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig())


def modernbert_base() -> nn.Module:
    """ModernBERT of base size."""
    from transformers import ModernBertConfig, ModernBertForSequenceClassification

    return ModernBertForSequenceClassification(ModernBertConfig())


def texts(batch: int, tokens: int) -> Inputs:
    """Words at random, without padding."""
    ids = torch.randint(1000, 20000, (batch, tokens))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


CASES = {
    "ViT-B/16, 224 px": Case(vit_base, lambda: torch.randn(32, 3, 224, 224), 196, 32),
    "DINOv3 ViT-L/16, 518 px": Case(dinov3_large, lambda: torch.randn(4, 3, 518, 518), 1024, 4),
    "BERT-base, 128 tokens": Case(bert_base, lambda: texts(32, 128), 128, 32),
    "ModernBERT-base, 8,192 tokens": Case(modernbert_base, lambda: texts(1, 8192), 8192, 1),
}


def run(arguments: argparse.Namespace) -> None:
    """Measure what is missing and write the tables.

    Raises:
        SystemExit: If the results that are there are another device's, or the device does not answer any more.
    """
    path = HERE / "results" / "gpu.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"cells": {}}
    if not arguments.tables_only:
        if not torch.cuda.is_available():
            raise SystemExit("there is no GPU here")
        name = torch.cuda.get_device_name(arguments.device)
        if found["cells"] and found["device"] != name:
            raise SystemExit(f"{path} was measured on {found['device']}: move it away to measure {name}")
        found |= {"device": name, "torch": torch.__version__}
        measure(arguments, arguments.device, found, path)
    text = tables(found)
    write_between(HERE / "README.md", text, START, END)
    print(text)


def measure(arguments: argparse.Namespace, device: str, found: dict[str, Any], path: Path) -> None:
    """Every missing cell. One that fails, or runs out of memory, says so, and the others go on."""
    cells: dict[str, dict[str, Any]] = found["cells"]
    path.parent.mkdir(exist_ok=True)
    for (title, precision), keys in groupby(planned(arguments, cells), key=lambda key: key[:2]):
        torch.manual_seed(0)
        dtype = PRECISIONS[precision]
        model = CASES[title].make().eval().to(device, dtype)
        inputs = in_precision(placed(CASES[title].inputs(), device), dtype)
        for *_, name in keys:
            foreseen = passes(name, CASES[title].tokens) * of_training(cells, title, precision, "seconds")
            if foreseen > arguments.limit:
                cell = {"error": f"would take {foreseen / 60:.0f} minutes or more"}
            else:
                work = work_of(name, model, inputs, arguments.limit)
                base = work if name in PATCHING else partial(training_pass, model, inputs)
                measured = partial(time_and_memory, work, base, arguments.rounds, device)
                cell = apart(measured, device, arguments.threads)
                if device != "cpu" and "error" not in cell:
                    cell["waits"] = waits(work)
            if name in PATCHING and "seconds" in cell:
                cell["time"] = cell["seconds"] / of_training(cells, title, precision, "seconds")
            cells[f"{title} | {precision} | {name}"] = stamped(cell)
            path.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")
            print(title, precision, name, cell, sep=" | ", flush=True)
            check_device(device)
        del model, inputs
        gc.collect()
        if device != "cpu":
            torch.cuda.empty_cache()


def waits(work: Callable[[], object]) -> int:
    """How often Python waits for the GPU in one call."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            work()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(each.message) for each in found)


def planned(arguments: argparse.Namespace, cells: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Model, precision and method of every missing cell, what patches the model's code at the very end."""
    titles = arguments.models or CASES
    names = [TRAINING, *(arguments.methods or (*lrptrain.methods(), *PEERS))]
    keys = [(title, precision, name) for title in titles for precision in PRECISIONS for name in names]
    missing = [key for key in keys if " | ".join(key) not in cells]
    return sorted(missing, key=lambda key: key[2] in PATCHING)


def of_training(cells: dict[str, Any], title: str, precision: str, what: str) -> float:
    """A number of the training pass that the others are set over; not a number where it did not run."""
    number: float = cells.get(f"{title} | {precision} | {TRAINING}", {}).get(what, math.nan)
    return number


def passes(name: str, tokens: int) -> float:
    """Training passes that a map takes at least, where that is many."""
    return tokens / 3 if name == "leave_one_out" else PASSES.get(name, 0)


def in_precision(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Images in a precision; token ids as they are."""
    return inputs.to(dtype) if isinstance(inputs, torch.Tensor) else inputs


def check_device(device: str) -> None:
    """Stop where the GPU has failed for good: whatever is asked of it afterwards fails, too.

    Raises:
        SystemExit: If it has.
    """
    if device == "cpu":
        return
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        raise SystemExit(f"the GPU does not answer any more ({error}): run the command again, it goes on") from error


def tables(found: dict[str, Any]) -> str:
    """Time and memory of each method and model over those of a training pass, and what did not run."""
    cells = found["cells"]
    if not cells:
        return "Nothing is measured yet."
    texts = [f"{found['device']}, torch {found['torch']}."]
    for title, case in CASES.items():
        rows = []
        for name in (TRAINING, *lrptrain.methods(), *PEERS):
            found_in = {precision: cells.get(f"{title} | {precision} | {name}") for precision in PRECISIONS}
            if all(cell is None or ("error" in cell and cell["error"] != OUT_OF_MEMORY) for cell in found_in.values()):
                continue
            row = {"method": f"`{name}`" if name in lrptrain.methods() else name}
            for what in ("time", "memory"):
                for precision in PRECISIONS:
                    row[f"{what}, {precision}"] = entry(cells, title, precision, name, what)
            rows.append(row)
        if rows:
            texts.append(f"**{title}** (batch {case.batch}). {absolute(cells, title)}\n\n{markdown(rows)}")
    failures = failed(cells)
    return "\n\n".join((*texts, *((f"**Did not run:**\n\n{failures}",) if failures else ())))


def failed(cells: dict[str, Any]) -> str:
    """A line for each reason why something did not run; what a model has nothing for is left out."""
    where: dict[tuple[str, str], list[str]] = {}
    for key, cell in sorted(cells.items()):
        title, precision, name = key.split(" | ")
        error = cell.get("error", OUT_OF_MEMORY)
        if error != OUT_OF_MEMORY and "does not exist for this model" not in error:
            reason = "is not installed" if error.startswith("ModuleNotFoundError") else error
            where.setdefault((name, reason), []).append(f"{title} in {precision}")
    lines = []
    for (name, reason), places in sorted(where.items()):
        everywhere = len(places) == len(CASES) * len(PRECISIONS)
        lines.append(f"- {name}: {reason}" + ("" if everywhere else f" ({'; '.join(places)})"))
    return "\n".join(lines)


def absolute(cells: dict[str, Any], title: str) -> str:
    """What a training pass takes itself."""
    parts = [
        f"{1000 * seconds:.1f} ms and {of_training(cells, title, precision, 'bytes') / 1e6:.0f} MB in {precision}"
        for precision in PRECISIONS
        if not math.isnan(seconds := of_training(cells, title, precision, "seconds"))
    ]
    return f"A training pass takes {' and '.join(parts)}." if parts else "The training pass itself did not run."


def entry(cells: dict[str, Any], title: str, precision: str, name: str, what: str) -> str:
    """One number of the table, or that the memory did not suffice."""
    cell = cells.get(f"{title} | {precision} | {name}", {})
    if cell.get("error") == OUT_OF_MEMORY:
        return OUT_OF_MEMORY
    # A pass so small that the memory did not grow has none to compare with.
    memory = cell.get("bytes", math.nan) / (of_training(cells, title, precision, "bytes") or math.nan)
    ratio = cell.get("time", math.nan) if what == "time" else memory
    if math.isnan(ratio):
        return "-"
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
