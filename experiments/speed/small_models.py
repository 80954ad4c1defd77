"""What does a map cost over a training pass where Python is most of it: models of 2 and 12 blocks, 64 wide, on a CPU?

    .venv/bin/python -m experiments.speed.small_models

CPU seconds of one thread; see `cpu_time`, whose ratios these are: the median of rounds, and the lowest and highest.
"""

import argparse
import statistics

import timm
import torch
import transformers
from torch import nn

from experiments.speed.cells import Inputs
from experiments.speed.cpu_time import ratio
from experiments.speed.works import TRAINING, work_of

METHODS = ("attnlrp", "cp_lrp", "generic_attention", "input_x_gradient")
BATCH, TOKENS, WORDS, WIDTH, HEADS = 2, 16, 200, 64, 4


def small_model(kind: str, blocks: int) -> nn.Module:
    """A BERT, a ViT or a Llama with random weights, in evaluation mode."""
    if kind == "ViT":
        size = {"img_size": 32, "patch_size": 8, "embed_dim": WIDTH, "depth": blocks, "num_heads": HEADS}
        return timm.models.vision_transformer.VisionTransformer(num_classes=10, **size).eval()
    size = {"hidden_size": WIDTH, "num_hidden_layers": blocks, "num_attention_heads": HEADS, "vocab_size": WORDS}
    size |= {"intermediate_size": 2 * WIDTH, "pad_token_id": 0}
    if kind == "BERT":
        return transformers.BertForSequenceClassification(transformers.BertConfig(**size)).eval()
    config = transformers.LlamaConfig(num_key_value_heads=HEADS // 2, **size)
    return transformers.LlamaForSequenceClassification(config).eval()


def batch_for(kind: str) -> Inputs:
    """Two images, or two texts without padding."""
    if kind == "ViT":
        return torch.randn(BATCH, 3, 32, 32)
    ids = torch.randint(3, WORDS, (BATCH, TOKENS))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    for kind in ("BERT", "ViT", "Llama"):
        for blocks in (2, 12):
            torch.manual_seed(0)
            model, inputs = small_model(kind, blocks), batch_for(kind)
            for name in METHODS:
                works = work_of(name, model, inputs), work_of(TRAINING, model, inputs)
                ratio(*works, 1)  # the first calls find out what later ones know
                found = ratio(*works, rounds)
                span = f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
                print(kind, f"{blocks} blocks", name, span, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
