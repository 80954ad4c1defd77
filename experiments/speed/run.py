"""What does each method cost over one forward and backward pass? Ratios within one run; see README.md."""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import lrptrain

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from table import markdown, write_between  # noqa: E402


def vit_small() -> tuple[nn.Module, torch.Tensor]:
    """ViT-S/16 at 224, batch 8."""
    from timm import create_model

    return create_model("vit_small_patch16_224", num_classes=1000).eval(), torch.randn(8, 3, 224, 224)


def bert_base() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """BERT of base width and depth, 128 tokens, batch 8."""
    from transformers import BertConfig, BertForSequenceClassification

    ids = torch.randint(1000, 20000, (8, 128))
    return BertForSequenceClassification(BertConfig()).eval(), {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
    }


def training_pass(model: nn.Module, inputs: torch.Tensor | dict[str, torch.Tensor]) -> None:
    """One forward and one backward pass to all parameters, with the model's own (fused) attention."""
    output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    logits = getattr(output, "logits", output)
    logits[:, 0].sum().backward()
    model.zero_grad(set_to_none=True)


def seconds(work: Callable[[], object]) -> float:
    """Time of one call."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def ratios(model: nn.Module, inputs: torch.Tensor | dict[str, torch.Tensor], repeats: int) -> dict[str, float]:
    """Median over rounds of each method's time over the training pass of the same round."""
    found: dict[str, list[float]] = {method: [] for method in lrptrain.methods()}
    training_pass(model, inputs)
    for method in found:
        lrptrain.attribute(model, inputs, method=method)
    for _ in range(repeats):
        for method, values in found.items():
            base = seconds(lambda: training_pass(model, inputs))
            values.append(seconds(lambda m=method: lrptrain.attribute(model, inputs, method=m)) / base)
    return {method: statistics.median(values) for method, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    columns = {}
    for name, make in (("ViT-S/16, 224 px, batch 8", vit_small), ("BERT-base, 128 tokens, batch 8", bert_base)):
        model, inputs = make()
        inputs = (
            {k: v.to(arguments.device) for k, v in inputs.items()}
            if isinstance(inputs, dict)
            else inputs.to(arguments.device)
        )
        columns[name] = ratios(model.to(arguments.device), inputs, arguments.repeats)
    rows = [
        {"method": f"`{method}`", **{name: f"{values[method]:.2f}" for name, values in columns.items()}}
        for method in lrptrain.methods()
    ]
    if arguments.device == "cpu":
        write_between(HERE / "README.md", markdown(rows))
    print(markdown(rows))


if __name__ == "__main__":
    main()
