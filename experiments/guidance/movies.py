"""Movie reviews from few documents: do rationales buy accuracy? Data, one run, the whole table."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from experiments.data import dataset
from experiments.guidance import texts, tweets
from experiments.guidance.arms import CONTROLS, PLAIN, SINGLE, Arm, Task
from experiments.guidance.costs import cost, read_costs, write_costs
from experiments.guidance.fitting import Trained, fit
from experiments.guidance.results import CHOOSING_SEED, SEEDS, complete
from experiments.guidance.texts import Texts
from experiments.minilm import network
from lrptrain.data import EraserDocuments
from lrptrain.data.texts import Example

HERE = Path(__file__).resolve().parent
RESULTS, START = HERE / "results", HERE.parent / "runs" / "minilm_tweets.pt"
LENGTH, FOCUSED = 128, 64
"""Tokens that a model sees, the last of a document, where reviewers conclude; documents whose maps are scored.

These are the first of the test file that have a rationale: all are negative.
"""
BUDGET, BATCH, LR, WARM_UP = 48, 8, 1e-4, 160
"""Plain steps on documents that every arm's compute is worth, and their rate; steps on tweets before."""
SIZES = ({"documents": 50}, {"documents": 200})
GUIDED = ("energy", "rationale_bce", "consistency")
CONTROLLED = (PLAIN, "swapped cross-entropy")
COLUMNS = ("accuracy", "reliance, fill", "accuracy, fill", "reliance, swap", "EPG, generic_attention", "EPG, attnlrp")
ARMS = {**{name: CONTROLS[name] for name in CONTROLLED}, **{name: SINGLE[name] for name in GUIDED}}


@cache
def documents() -> dict[str, list[Example]]:
    """The official splits, each document cut to its window."""
    source = EraserDocuments(str(dataset("movies")))
    source.setup()
    return {split: [window(example) for example in found] for split, found in source.splits.items()}


def window(example: Example) -> Example:
    """The last tokens of a document, with what of its rationale lies in them; None if nothing does."""
    places = texts.tokenizer()(example.text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    cut = places[-(LENGTH - 2) :][0][0]
    spans = tuple((max(start - cut, 0), end - cut) for start, end in example.spans or () if end > cut)
    return Example(example.text[cut:], example.label, spans or None)


def few(count: int, seed: int) -> Texts:
    """Training documents with a rationale, half of them of each class, drawn by a seed."""
    rng = np.random.default_rng(seed)
    annotated = [example for example in documents()["train"] if example.spans]
    drawn = [rng.permutation([i for i, each in enumerate(annotated) if each.label == label]) for label in (0, 1)]
    return texts.encoded([annotated[i] for own in drawn for i in own[: count // 2]], LENGTH)


def started() -> nn.Module:
    """The small MiniLM after a short training on tweets, made once: from its own weights it learns nothing here."""
    net = network(0)
    if not START.exists():
        module = texts.module(net, Arm(), tweets.LR)
        fit(module, texts.loader(tweets.tweets("train", None, 0), module.arm, tweets.BATCH, 0), WARM_UP, 0.0, 0)
        START.parent.mkdir(exist_ok=True)
        torch.save(net.state_dict(), START)
    net.load_state_dict(torch.load(START, weights_only=True))
    return net


def prepared(task: Task) -> tuple[Trained, DataLoader]:
    """The model of a run, and its batches."""
    torch.set_num_threads(1)
    module = texts.module(started(), ARMS[task.arm], LR)
    return module, texts.loader(few(task.setting["documents"], task.seed), module.arm, BATCH, task.seed)


def costs() -> None:
    """Measure what a step of every arm costs, on a machine that is idle."""
    found = {arm: round(cost(*prepared(Task(arm, CHOOSING_SEED, SIZES[1]))), 2) for arm in ARMS}
    write_costs(RESULTS / "costs_movies.json", found)


def train(task: Task) -> dict[str, float]:
    """One run: trained, then measured on the official validation or test documents."""
    found = read_costs(RESULTS / "costs_movies.json")
    module, batches = prepared(task)
    steps = round(BUDGET / found[task.arm])
    seconds = fit(module, batches, steps, task.weight, task.seed)
    return {"steps": steps, "seconds": seconds} | measured(module.net, task)


def measured(net: nn.Module, task: Task) -> dict[str, float]:
    """Accuracy; for the tables reliance, too (what has no rationale in its window does not move), and maps."""
    data = documents()["val" if task.choosing else "test"]
    seen = texts.encoded(data, LENGTH)
    if task.choosing:
        return {"accuracy": texts.right(net, seen)}
    annotated = texts.encoded([example for example in data if example.spans], LENGTH)
    return texts.reliance(net, seen) | texts.focus(net, annotated, FOCUSED)


def chosen(workers: int) -> dict[str, float]:
    """The weight of every guided arm, at the larger size: the highest validation accuracy, as no shortcut is known."""
    tasks = [Task(arm, CHOOSING_SEED, SIZES[-1], w, True) for arm in GUIDED for w in ARMS[arm].weights]
    runs = [run for run in complete(RESULTS / "movies.jsonl", tasks, train, workers).values() if run["choosing"]]
    return {run["arm"]: run["weight"] for run in sorted(runs, key=lambda run: (run["accuracy"], -run["weight"]))}


def grid(workers: int) -> None:
    """All arms with five seeds, what is missing of them."""
    started()  # once, before several processes want it
    weights = chosen(workers)
    tasks = [Task(arm, seed, size, weights.get(arm, 0.0)) for seed in SEEDS for size in SIZES for arm in ARMS]
    complete(RESULTS / "movies.jsonl", tasks, train, workers)
