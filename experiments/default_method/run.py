"""Which method should make the maps where none is named? See README.md.

    .venv/bin/python -m experiments.default_method.run

A line in `results/` per model, and one for the costs, saved as soon as it is there; what was cut
off goes on with what is missing. The tables are written into this folder's README.md.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

import lrptrain
from experiments.default_method import report
from experiments.default_method.models import BLACK, Samples, accuracy, logits, trained
from experiments.minilm import network
from experiments.parallel import load
from experiments.records import append
from experiments.table import write_between
from experiments.vision import vit
from lrptrain.auditing.checks.perturbation import order_score

HERE = Path(__file__).resolve().parent

METHODS = (
    "transformer_attribution", "attnlrp", "gamma_lrp", "input_x_gradient", "generic_attention", "rollout",
)  # fmt: skip
REFERENCES = ("leave_one_out", "random")
"""What removing a token does to the class, and chance."""
SEEDS = range(8)
PERTURBED = 24
"""Samples that are perturbed."""
ROUNDS = 7


def measured(task: str, seed: int) -> dict[str, Any]:
    """Train a model, and measure every method on it."""
    started = time.monotonic()
    made = trained(task, seed)
    head = {"task": task, "seed": seed, "accuracy": accuracy(made.model, made.shown)}
    head |= {"accuracy without": accuracy(made.model, made.clean)}
    rows = {}
    for method in (*METHODS, *REFERENCES):
        scores = maps(made.model, made.shown, method)
        rows[method] = detection(scores, made.shown)
        # Without the tag these few steps leave the image model guessing; without the word the tweets are understood.
        perturbed = made.shown if task == "images" else made.clean
        rows[method]["order"] = order(made.model, first(perturbed, PERTURBED), method)
    return {**head, "seconds": time.monotonic() - started, "methods": rows}


def first(samples: Samples, count: int) -> Samples:
    """The first of the samples."""
    inputs = samples.inputs
    cut = {name: x[:count] for name, x in inputs.items()} if isinstance(inputs, dict) else inputs[:count]
    return Samples(cut, samples.label[:count], samples.usable[:count], samples.place[:count])


def maps(model: nn.Module, samples: Samples, method: str) -> Float[Tensor, "n tokens"]:
    """Relevance for the label."""
    return lrptrain.attribute(model, samples.inputs, samples.label, method).scores.double()


def detection(scores: Float[Tensor, "n tokens"], samples: Samples) -> dict[str, float]:
    """How much of the positive relevance lies on the planted place, and which rank it has; means over the samples.

    `share`: of the positive relevance on patches or words; 0 for a map without any. `share of all`: of all tokens.
    `first`: whether the most relevant patch or word is the planted one. `rank`: its rank, 1 is the first.
    """
    planted = samples.place.any(1)
    scores, usable, place = scores[planted], samples.usable[planted], samples.place[planted]
    positive = scores.clamp(min=0)
    on_place = (positive * place).sum(1)
    words = scores.masked_fill(~usable, -torch.inf)
    best = words.masked_fill(~place, -torch.inf).amax(1, keepdim=True)
    rank = 1 + (words > best).sum(1)
    return {
        "share": _ratio(on_place, (positive * usable).sum(1)),
        "share of all": _ratio(on_place, positive.sum(1)),
        "first": (rank == 1).double().mean().item(),
        "rank": rank.double().mean().item(),
    }


def _ratio(part: Tensor, whole: Tensor) -> float:
    return torch.where(whole > 0, part / whole.clamp(min=1e-300), 0.0).mean().item()


def order(model: nn.Module, samples: Samples, method: str) -> float:
    """How much sooner the predicted class goes if the relevant goes first than if it goes last.

    Images: area between the curves of Chefer et al. 2021; texts: comprehensiveness less sufficiency.
    """
    with torch.no_grad():
        target = logits(model, samples.inputs).argmax(1)
    relevance = lrptrain.attribute(model, samples.inputs, target, method)
    return order_score(model, samples.inputs, target, relevance.scores, relevance.grid, BLACK).nanmean().item()


def costs() -> dict[str, Any]:
    """Time over that of one forward and backward pass, the least of a few rounds in turn; random weights."""
    torch.manual_seed(0)
    text = {"input_ids": torch.randint(1000, 20000, (8, 64)), "attention_mask": torch.ones(8, 64, dtype=torch.long)}
    cells = {"images": (vit(10, 64, width=192).eval(), torch.randn(4, 3, 64, 64)), "texts": (network(0).eval(), text)}
    return {task: _times(model, inputs) for task, (model, inputs) in cells.items()}


def _times(model: nn.Module, inputs: Any) -> dict[str, float]:
    def training_pass() -> None:
        logits(model, inputs)[:, 0].sum().backward()
        model.zero_grad(set_to_none=True)

    work: dict[str, Callable[[], object]] = {"pass": training_pass}
    work |= {name: lambda name=name: lrptrain.attribute(model, inputs, 0, name) for name in METHODS}  # type: ignore[misc]
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, call in work.items():
            started = time.process_time()  # others share the machine: what counts is this process' own time
            call()
            seconds[name].append(time.process_time() - started)
    return {name: min(times) / min(seconds["pass"]) for name, times in seconds.items() if name != "pass"}


def save(path: Path, key: str, work: Callable[[], dict[str, Any]]) -> None:
    """Do what is missing, a line of the file."""
    if key in load(path):
        return
    append(path, {"key": key, **work()})
    print(key, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="*", default=["images", "texts"], choices=["images", "texts"])
    parser.add_argument("--trial", action="store_true", help="one model with a seed of its own, which no table has")
    tasks, trial = parser.parse_args().tasks, parser.parse_args().trial
    torch.set_num_threads(1)
    for task in tasks:
        for seed in [1000] if trial else SEEDS:
            path = HERE / "results" / ("trial.jsonl" if trial else f"{task}.jsonl")
            save(path, f"{task} | seed {seed}", lambda task=task, seed=seed: measured(task, seed))  # type: ignore[misc]
    if trial:
        return
    save(HERE / "results" / "costs.jsonl", "costs", costs)
    text = saved_tables()
    write_between(HERE / "README.md", text)
    print(text)


def saved_tables() -> str:
    """The tables of what there is."""
    runs = {task: list(load(HERE / "results" / f"{task}.jsonl").values()) for task in ("images", "texts")}
    costs_by_task = load(HERE / "results" / "costs.jsonl").get("costs", {})
    return report.tables(runs, costs_by_task, METHODS, REFERENCES)


if __name__ == "__main__":
    main()
