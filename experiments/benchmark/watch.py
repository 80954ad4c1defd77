"""One training run under two monitors, with what the rivals say of it at the end."""

import io
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset

import lrptrain
from experiments.benchmark import images, texts
from experiments.benchmark.cases import Case
from experiments.benchmark.images import Columns
from experiments.benchmark.own_code import datalab, require_packages, spray
from experiments.benchmark.rivals import error_slice, image_properties, spectral_purity, spurious_correlation
from experiments.vision import MEAN, STD
from lrptrain.findings import Finding
from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.monitor.loop_monitor import Monitor

ANNOTATED, BARE = "with annotations", "without annotations"
HELD_OUT, SPARE = 200, 128
"""Samples that accuracies are of; without a shortcut that the accuracy's gap may see."""
MOMENTS = (10, 25, 60)
"""The steps after which all is evaluated."""
FOCUS = "label/energy_pointing_game"
Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What is trained, and on what.

    Attributes:
        net: The network.
        head: Its last layer.
        train: What it learns.
        shown: Held-out samples with marks as in training.
        unbiased: The same with marks of any class.
        spare: Others with marks of any class.
        look: What a monitor is told.
        lr: The learning rate.
        batch: Samples of a step.
    """

    net: nn.Module
    head: nn.Module
    train: Columns
    shown: Columns
    unbiased: Columns
    spare: Columns
    look: dict[str, Any]
    lr: float
    batch: int


def prepared(case: Case) -> Run:
    """Make the data and the network of a run."""
    torch.manual_seed(case.randomness)
    if case.task == "texts":
        net = texts.network(case.randomness)
        head, look, samples, task = texts.head(net), texts.look(), texts.samples, texts
    else:
        net = images.network()
        head, look, samples, task = images.head(net), images.look(case), images.samples, images
    held_out = samples(case, "test", HELD_OUT, 1)
    train, spare = samples(case, "train", task.TRAIN, 0)(True), samples(case, "test", SPARE, 2)(False)
    return Run(net, head, train, held_out(True), held_out(False), spare, look, task.LR, task.BATCH)


def watched(case: Case, own_code: bool = False) -> Row:
    """Train, and return what all detectors say; on one thread.

    Args:
        case: The run.
        own_code: Whether cleanlab's and corelay's own code is among the rivals.

    Raises:
        SystemExit: If it is to be, and is not installed.
    """
    if own_code:
        require_packages()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    started = time.monotonic()
    run = prepared(case)
    heard = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(heard), redirect_stderr(heard):
        monitors = {ANNOTATED: _monitor(run, folder, case, True), BARE: _monitor(run, folder, case, False)}
        evaluations = []
        step = trained(run, MOMENTS[-1], case.randomness)
        for moment in MOMENTS:
            step(moment)
            evaluations.append({"step": moment, **_evaluated(run, monitors, moment)})
        scored = monitors[BARE].scored
        rivals = {"spectral clustering": purity(scored), **of_rivals(run)}
        if own_code:
            rivals |= of_own_code(run, scored)
    row = {"task": case.task, "kind": case.kind, "correlation": case.correlation, "seed": case.seed}
    row |= {"number": case.number, "seconds": time.monotonic() - started}
    return rounded({**row, "evaluations": evaluations, "rivals": rivals})


def _monitor(run: Run, folder: str, case: Case, annotated: bool) -> Monitor:
    """A monitor with every default, to which the batches show what people marked or not."""
    name = ANNOTATED if annotated else BARE
    adapter = None if annotated else bare
    loader = DataLoader(StackDataset(**run.shown), run.batch)  # type: ignore[arg-type]
    quiet = lrptrain.Run(batch_size=64, progress_bar=False, on_error="raise", name=name.replace(" ", "_"))
    judge = lrptrain.Judge(seed=case.randomness)
    return Monitor(run.net, loader, folder, batch_adapter=adapter, judge=judge, run=quiet, **run.look)


def bare(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The batch without what people marked."""
    return {name: value for name, value in batch.items() if name not in ("mask", "rationale")}


def trained(run: Run, steps: int, seed: int) -> Callable[[int], None]:
    """Return what trains up to a step: AdamW with a one-cycle schedule, in an order by seed."""
    weights = [weight for weight in run.net.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=run.lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, run.lr, steps)
    generator = torch.Generator().manual_seed(seed)
    labels, done = run.train["label"], 0

    def up_to(moment: int) -> None:
        nonlocal done
        run.net.train()
        for _ in range(done, moment):
            rows = torch.randint(len(labels), (run.batch,), generator=generator)
            F.cross_entropy(logits(run.net, run.train, rows), labels[rows]).backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        done = moment
        run.net.eval()

    return up_to


def logits(net: nn.Module, columns: Columns, rows: Tensor) -> Float[Tensor, "rows classes"]:
    """Of some samples."""
    if "image" in columns:
        return net(columns["image"][rows])
    width = int(columns["attention_mask"][rows].sum(1).max())
    return net(**{name: columns[name][rows, :width] for name in ("input_ids", "attention_mask")}).logits


@torch.no_grad()
def answers(net: nn.Module, columns: Columns) -> Float[Tensor, "n classes"]:
    """Logits of all samples."""
    return torch.cat([logits(net, columns, rows) for rows in torch.arange(len(columns["label"])).split(64)])


def right(net: nn.Module, columns: Columns) -> Bool[np.ndarray, " n"]:
    """Which samples are read rightly."""
    return (answers(net, columns).argmax(1) == columns["label"]).numpy()


def _evaluated(run: Run, monitors: Mapping[str, Monitor], step: int) -> Row:
    shown, unbiased = right(run.net, run.shown), right(run.net, run.unbiased)
    row: Row = {"accuracy": shown.mean(), "accuracy unbiased": unbiased.mean()}
    row |= {"lost": int((shown & ~unbiased).sum()), "won": int((unbiased & ~shown).sum())}
    for name, monitor in monitors.items():
        monitor.evaluate(step)
        row[name] = noted(monitor)
    return row


def noted(monitor: Monitor) -> Row:
    """What the model relies on and, with annotations, the relevance on them and that of a uniform map."""
    row: Row = {"named": named(monitor.findings)}
    shares = [(each.values[FOCUS], each.chance) for each in monitor.scored if FOCUS in each.values]
    if shares:
        row["on annotation"], row["chance"] = np.nanmean(shares, 0).tolist()
    return row


def named(findings: Iterable[Finding]) -> list[Row]:
    """The faults among findings, and what else the model reads."""
    return [
        {
            "cue": each.name,
            "kind": each.kind,
            "effect": each.effect,
            "low": each.interval[0],
            "is_fault": each.is_fault,
        }
        for each in findings
        if each.is_fault or each.is_open
    ]


def of_rivals(run: Run) -> Row:
    """What looks at data, embeddings and accuracies says of the trained model; nan where it reads images alone."""
    kept: list[Tensor] = []
    handle = run.head.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    probabilities = answers(run.net, run.shown).softmax(1).numpy()
    handle.remove()
    labels = run.shown["label"].numpy()
    row = {"error slice": error_slice(torch.cat(kept).numpy(), labels, probabilities)}
    correlation = float("nan")
    if "image" in run.train:
        correlation = spurious_correlation(image_properties(pictures(run.train)), run.train["label"].numpy())
    gap = (probabilities.argmax(1) == labels).mean() - right(run.net, run.spare).mean()
    return row | {"property correlation": correlation, "accuracy gap": float(gap)}


def of_own_code(run: Run, scored: list[ExplainedSample]) -> Row:
    """What cleanlab's and corelay's own code says of the data and the maps; nan where it reads images alone."""
    correlation = datalab(pictures(run.train), run.train["label"].numpy()) if "image" in run.train else float("nan")
    return {"cleanlab Datalab": correlation, "corelay SpRAy": spray(*maps_and_answers(scored))}


def pictures(columns: Columns) -> Float[np.ndarray, "n side side 3"]:
    """The images of some samples as they were before they were normalised, RGB in 0..1."""
    return columns["image"].permute(0, 2, 3, 1).numpy() * np.array(STD) + np.array(MEAN)


def purity(scored: list[ExplainedSample]) -> float:
    """Of the maps of the predicted class."""
    return spectral_purity(*maps_and_answers(scored))


def maps_and_answers(scored: list[ExplainedSample]) -> tuple[Float[np.ndarray, "n features"], Int[np.ndarray, " n"]]:
    """The maps of the predicted class and that class: of places of an image, of words of a text."""
    predicted = np.array([sample.predicted for sample in scored])
    maps = [sample.maps["predicted"].clamp(min=0).double().numpy() for sample in scored]
    if scored[0].content_ids is None:
        return np.stack(maps), predicted
    known = sorted({int(each) for sample in scored for each in _content(sample) if each >= 0})
    bags = np.zeros((len(maps), len(known)))
    for bag, row, sample in zip(bags, maps, scored, strict=True):
        content = _content(sample)
        np.add.at(bag, np.searchsorted(known, content[content >= 0]), row[content >= 0])
    return bags, predicted


def _content(sample: ExplainedSample) -> np.ndarray:
    assert sample.content_ids is not None
    return np.asarray(sample.content_ids)


def rounded(value: Any, digits: int = 4) -> Any:
    """Plain numbers of so many significant digits, all the way down; None for nan."""
    if isinstance(value, dict):
        return {name: rounded(each, digits) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each, digits) for each in value]
    if isinstance(value, float | np.floating):
        return None if np.isnan(value) else float(f"{value:.{digits}g}")
    return value
