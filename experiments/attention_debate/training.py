"""MiniLM's first three blocks, trained once per corpus and seed."""

import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from experiments.attention_debate.corpora import batches, splits
from experiments.minilm import network

RUNS = Path(__file__).resolve().parent / "runs"
BATCH = 16
STEPS = {"tweets": 150, "movies": 120}
LR = {"tweets": 3e-4, "movies": 1e-4}


def trained(corpus: str, seed: int) -> nn.Module:
    """A model of a seed, trained when it is asked for first; the one for movies starts as the one for tweets."""
    path = RUNS / f"{corpus}_{seed}.pt"
    if path.exists():
        net = network(seed).eval()
        net.load_state_dict(torch.load(path, weights_only=True))
        return net
    net = network(seed).eval() if corpus == "tweets" else trained("tweets", seed)
    fit(net, corpus, seed)
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    torch.save(net.state_dict(), part)
    part.replace(path)  # several processes may want it
    return net


def fit(net: nn.Module, corpus: str, seed: int) -> None:
    """Cross-entropy with AdamW and a one-cycle schedule."""
    generator = torch.Generator().manual_seed(seed)
    texts = splits(corpus)[0]
    weights = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=LR[corpus], weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR[corpus], STEPS[corpus])
    for _ in range(STEPS[corpus]):
        rows = torch.randint(len(texts), (BATCH,), generator=generator).tolist()
        (batch,) = batches([texts[i] for i in rows], corpus)
        label = batch.pop("label")
        loss = F.cross_entropy(net(**batch).logits, label)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
