"""What makes transformer attribution faster, and what does not: variants of the engine within one run. See README.md.

.venv/bin/python -m experiments.speed.tried
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F

import lrptrain
from experiments.speed.cells import apart, seconds, time_ratio, training_pass
from experiments.speed.run import MODELS
from experiments.table import markdown, write_between
from lrptrain.relevance.propagation import in_place_rules, rules

HERE = Path(__file__).resolve().parent

START, END = "<!-- tried -->", "<!-- end of tried -->"


def plain_zplus(relevance: Tensor, x: Tensor, weight: Tensor, z: Tensor, bias: Tensor | None) -> Tensor:
    z = z if bias is None else z - bias
    return rules.zplus(relevance, x, weight, z, F.linear, lambda s, w: s @ w)


def plain_sum(relevance: Tensor, z: Tensor, operands: tuple[Tensor, ...], total: Callable[[Tensor], Tensor]) -> Any:
    return rules.rescale(relevance, rules.proportional(relevance, operands), total)


def every_row(relevance: Tensor, x: Tensor, weight: Tensor, z: Tensor, bias: Tensor | None) -> Tensor:
    flat = (relevance.reshape(-1, z.shape[-1]), x.reshape(-1, x.shape[-1]), weight, z.reshape(-1, z.shape[-1]), bias)
    return in_place_rules._zplus_rows(*flat).view(x.shape)


@contextmanager
def flushed() -> Iterator[None]:
    torch.set_flush_denormal(True)
    yield
    torch.set_flush_denormal(False)


def variants() -> dict[str, Any]:
    """A context per variant."""
    return {
        "as it is": nullcontext,
        "rules with fresh tensors (`rules.py`)": partial(
            patch.multiple, in_place_rules, zplus=plain_zplus, halves=rules.halves, rescaled_sum=plain_sum
        ),
        "the same, z+ by torch.compile": partial(
            patch.multiple,
            in_place_rules,
            zplus=torch.compile(plain_zplus, dynamic=False),
            halves=rules.halves,
            rescaled_sum=plain_sum,
        ),
        "also rows without relevance": partial(patch.multiple, in_place_rules, zplus=every_row),
        "all rows of a layer at once": partial(patch.multiple, in_place_rules, _ROWS=1 << 30),
        "denormals flushed": flushed,
        "forward pass in bf16 (autocast)": partial(torch.autocast, "cpu", torch.bfloat16),
    }


def variant_time(model: Any, inputs: Any, context: Any, rounds: int) -> dict[str, float]:
    def work() -> None:
        with context():
            lrptrain.attribute(model, inputs, method="transformer_attribution")

    return time_ratio(work, partial(training_pass, model, inputs), rounds)


def combined_product(rounds: int) -> dict[str, float]:
    """Relevance and gradient through one weight in one product of twice the rows, over two products."""
    relevance, gradient, weight = torch.randn(8 * 197, 1536), torch.randn(8 * 197, 1536), torch.randn(1536, 384)
    both = torch.cat([relevance, gradient])

    def two() -> None:
        relevance @ weight
        gradient @ weight

    two()
    pairs = sorted((seconds(lambda: both @ weight), seconds(two)) for _ in range(10 * rounds))
    return {"time": sorted(one / other for one, other in pairs)[len(pairs) // 2]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path = HERE / "results" / "tried.json"
    found: dict[str, dict[str, Any]] = {}
    for title, make in list(MODELS.items())[:1]:
        model, inputs_of = make()
        inputs = inputs_of(8)
        for name, context in variants().items():
            measured = apart(partial(variant_time, model, inputs, context, arguments.rounds), "cpu", arguments.threads)
            found.setdefault(name, {})[title] = measured
            print(title, name, measured, flush=True)
    product = apart(partial(combined_product, arguments.rounds), "cpu", arguments.threads)
    path.write_text(json.dumps({"variants": found, "combined product": product}, indent=1) + "\n", encoding="utf-8")
    rows = [{"variant": name, **{title: shown(cell) for title, cell in cells.items()}} for name, cells in found.items()]
    text = (
        f"{markdown(rows)}\n\nOne product for relevance and gradient together over two products "
        f"(1,576 rows each, 1,536 to 384): {shown(product)} of the time."
    )
    write_between(HERE / "README.md", text, START, END)
    print(text)


def shown(cell: dict[str, Any]) -> str:
    return cell["error"] if "error" in cell else f"{cell['time']:.2f}"


if __name__ == "__main__":
    main()
