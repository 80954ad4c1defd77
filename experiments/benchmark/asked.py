"""What a trained model is asked: two inspections, the same on random maps, and what rivals say."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, StackDataset

import lrptrain
from experiments.benchmark.cases import PRETRAINED, Case
from experiments.benchmark.images import Columns
from experiments.benchmark.own_code import datalab, has_packages, spray
from experiments.benchmark.rivals import error_slice, image_properties, spectral_purity, spurious_correlation
from experiments.benchmark.training import CLEAN, READS, Data, answers
from experiments.records import named
from lrptrain.cues.cue import Cue

ANNOTATED, BARE = "with annotations", "without annotations"
RANDOM = "random maps"
Row = dict[str, Any]


def inspected(net: nn.Module, columns: Columns, case: Case, look: Mapping[str, Any], name: str, **more: Any) -> Any:
    """What `lrptrain.inspect` says of a model, with every default.

    Args:
        net: The model.
        columns: The samples.
        case: What they are.
        look: What the inspection is told of them.
        name: `ANNOTATED`, or `BARE` for batches without annotations.
        **more: Further options.
    """
    loader: Any = DataLoader(StackDataset(**columns), 32)  # type: ignore[arg-type]
    adapter = None if name == ANNOTATED else bare
    judge = lrptrain.Judge(seed=case.randomness)
    return lrptrain.inspect(net, loader, batch_adapter=adapter, judge=judge, **{**look, **more})


def bare(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The batch without what people marked."""
    return {name: value for name, value in batch.items() if name not in ("mask", "rationale")}


def asked(net: nn.Module, head: nn.Module, columns: Columns, case: Case, data: Data, arm: str) -> Row:
    """All that is said of a model by some samples; of one that never saw a mark, the reports alone."""
    row: Row = {}
    ask = partial(inspected, net, columns, case, data.look)
    for name in (ANNOTATED, BARE):
        started = time.monotonic()
        report = ask(name)
        seconds = time.monotonic() - started
        row[name] = {"named": named(report.findings), "accuracy": report.accuracy, "seconds": seconds}
        if arm != CLEAN and case.task not in PRETRAINED:
            row[f"{name}, {RANDOM}"] = {"named": named(ask(name, method="random").findings)}
        first = next((each.cue for each in report.findings if each.is_fault or each.needs_review), None)
        if first is not None and arm == READS:
            # With the mark gone, is what was named first gone, too?
            bare_report = inspected(net, data.bare, case, data.look, name, cues=[first])
            row[name]["without the mark"] = effect_of(bare_report, first)
    return row if arm == CLEAN else row | rivals(net, head, columns, data.look)


def effect_of(report: Any, cue: Cue) -> float:
    """The effect of a cue in a report; 0 where no sample has it."""
    same = (each for each in report.judged if each.cue.declared("unreviewed") == cue.declared("unreviewed"))
    return max((float(each.effect.mean) for each in same), default=0.0)


def rivals(net: nn.Module, head: nn.Module, columns: Columns, look: Mapping[str, Any]) -> Row:
    """What looks at data, embeddings, maps and accuracies says; nan where it reads images alone."""
    kept: list[torch.Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    probabilities = answers(net, columns).softmax(1).numpy()
    handle.remove()
    labels = columns["label"].numpy()
    row = {"error slice": error_slice(torch.cat(kept).numpy(), labels, probabilities)}
    predicted = probabilities.argmax(1)
    row |= {"accuracy": float((predicted == labels).mean())}
    of_images = ("mass outside", "plain features", "cleanlab Datalab", "clusters of maps", "corelay SpRAy")
    row |= dict.fromkeys(of_images, float("nan"))
    if "image" not in columns:
        return row
    relevance = lrptrain.attribute(net, columns["image"], target=torch.from_numpy(predicted))
    maps = relevance.scores.clamp(min=0).double()
    side = round(maps.shape[1] ** 0.5)
    inside = nn.functional.adaptive_avg_pool2d((columns["mask"] == 1)[:, None].double(), side).flatten(1)
    row["mass outside"] = float(1 - ((maps * inside).sum(1) / maps.sum(1).clamp(min=1e-12)).mean())
    row["plain features"] = spurious_correlation(image_properties(pictures(columns, look["show"])), labels)
    row["clusters of maps"] = spectral_purity(maps.numpy(), predicted)
    if has_packages():
        row["cleanlab Datalab"] = datalab(pictures(columns, look["show"]), labels)
        row["corelay SpRAy"] = spray(maps.numpy(), predicted)
    return row


def pictures(columns: Columns, show: lrptrain.Show) -> np.ndarray:
    """The images of some samples as they were before they were normalised, RGB in 0..1."""
    return columns["image"].permute(0, 2, 3, 1).numpy() * np.array(show.std) + np.array(show.mean)


def rounded(value: Any, digits: int = 4) -> Any:
    """Plain numbers of so many significant digits, all the way down; None for nan."""
    if isinstance(value, dict):
        return {name: rounded(each, digits) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each, digits) for each in value]
    if isinstance(value, float | np.floating):
        return None if np.isnan(value) else float(f"{value:.{digits}g}")
    return value
