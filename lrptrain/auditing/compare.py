"""Methods on a model and a loader, in one table."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from lrptrain.auditing.brought import (
    UNSUPPORTED,
    Fill,
    image_prediction,
    predict_logits,
    synchronize,
    trainable_in_evaluation,
)
from lrptrain.auditing.context import AuditBatch, content_of_map, predict_batches
from lrptrain.auditing.samples import draw_samples
from lrptrain.auditing.score import Score, is_known, markdown_html, markdown_table, table_cell
from lrptrain.batch import BatchAdapter, batched, token_annotations
from lrptrain.batch.task import Task, TaskName, find_task
from lrptrain.files import write_json, write_text
from lrptrain.metrics import (
    Comprehensiveness,
    EnergyPointingGame,
    LocalizationAUPRC,
    PerturbationArea,
    PointingGame,
    Sufficiency,
    text_probability,
)
from lrptrain.relevance import Relevance, attribute
from lrptrain.relevance.registry import Method, get_method
from lrptrain.relevance.registry import methods as all_methods
from lrptrain.trainers.checks import check_counts
from lrptrain.trainers.discover import device_of, logits_model

PERTURBATION_FORWARDS = 18
"""Forward passes of the perturbation tests per image; a third of the time of as many forward and backward passes."""


@dataclass(frozen=True)
class Row:
    """The scores of one method.

    Attributes:
        method: Name of the method.
        class_specific: Whether its map depends on the class.
        scores: Scores by the name of the metric; see `COMPARED_METRICS`.
        cost: Time of a map in units of one forward and backward pass of the same batch (median over batches).
        seconds: Seconds of a map per sample.
        problem: Why there are no scores; empty if there are.
    """

    method: str
    class_specific: bool = True
    scores: dict[str, Score] = field(default_factory=dict)
    cost: float = float("nan")
    seconds: float = float("nan")
    problem: str = ""


COMPARED_METRICS: dict[str, bool] = {
    "EPG": True,
    "AUPRC": True,
    "pointing game": True,
    "positive AUC": False,
    "negative AUC": True,
    "comprehensiveness": True,
    "sufficiency": False,
}
"""All metrics, and whether more of them is better."""

# The table is sorted by the first of these that is known. What the model does tells more about whether a map is
# faithful than where people look, so those come first.
SORTED_BY = ("positive AUC", "comprehensiveness", *COMPARED_METRICS)


def prepare_cases(
    model: nn.Module, batches: Iterable[Mapping[str, Tensor]], target: Literal["predicted", "label"] = "predicted"
) -> list[AuditBatch]:
    """Run the model on batches: its predictions, and what a forward and backward pass costs.

    Args:
        model: A model in evaluation mode, of which the output is logits or has `.logits`.
        batches: Batches in the contract of `lrptrain.batch`, on the model's device.
        target: The class to explain; for samples without a label it is the predicted one.

    Raises:
        UnsupportedModelError: If the model does not return logits.
    """
    cases = []
    for batch in predict_batches(model, batches):
        labelled = batch.label >= 0 if target == "label" else torch.zeros_like(batch.label, dtype=torch.bool)
        explained = torch.where(labelled, batch.label, batch.target)
        training_pass = partial(_forward_backward, model, batch.inputs, explained)
        # The faster of two runs: the first one may include what is done only once.
        runs = [_timed(training_pass, explained.device)[1] for _ in range(2)]
        cases.append(replace(batch, explained=explained, seconds=min(runs)))
    return cases


def try_out(model: nn.Module, case: AuditBatch, methods: Sequence[str]) -> list[Row]:
    """Run each method on the first sample of a batch: what it costs, or why it is not possible; the cheapest first.

    Raises:
        UnsupportedMethodError: If a method is unknown; before any is run.
    """
    resolved = [get_method(name, {}) for name in methods]
    # One sample: an expensive method must not take minutes before its cost is known.
    first = case.first(1)
    rows = [_caught(method, lambda: _trial(model, first, method.name)) for method in resolved]  # noqa: B023
    return sorted(rows, key=lambda row: (bool(row.problem), row.seconds))


def expected_seconds(trial: Row, cases: Sequence[AuditBatch], faithfulness: bool) -> float:
    """Return about how long a method takes on all cases at most: a batch costs less than its samples one by one."""
    passes = PERTURBATION_FORWARDS / 3 * sum(case.seconds for case in cases) if faithfulness else 0.0
    return trial.seconds * sum(len(case.target) for case in cases) + passes


def compare_methods(
    model: nn.Module, cases: Sequence[AuditBatch], methods: Sequence[str], fill: Fill = 0.0, faithfulness: bool = True
) -> Iterator[Row]:
    """Yield a row per method, as soon as it is done.

    A method that is not possible for the model, or that fails, has a row that says why.

    Args:
        model: As for `prepare_cases`.
        cases: From `prepare_cases`.
        methods: Names of methods.
        fill: What pixels become that the perturbation test removes; see `perturbation_curve`.
        faithfulness: Whether to run the perturbation tests too: 18 forward passes per image, 12 mostly shorter ones per
            text.

    Raises:
        UnsupportedMethodError: If a method is unknown; before any is run.
    """
    for method in [get_method(name, {}) for name in methods]:
        yield _caught(method, lambda: _row(model, cases, method.name, fill, faithfulness))  # noqa: B023


def _caught(method: Method, scored: Callable[[], Row]) -> Row:
    """Return the row, or one that says what went wrong: a method's failure must not cost the others."""
    try:
        return replace(scored(), class_specific=method.class_specific)
    except UNSUPPORTED as error:
        return Row(method.name, method.class_specific, problem=str(error))
    except Exception as error:
        return Row(method.name, method.class_specific, problem=f"failed: {type(error).__name__}: {error}")


def _trial(model: nn.Module, case: AuditBatch, name: str) -> Row:
    _, seconds = _timed(lambda: attribute(model, case.inputs, case.target, name), case.target.device)
    return Row(name, seconds=seconds)


def _row(model: nn.Module, cases: Sequence[AuditBatch], name: str, fill: Fill, faithfulness: bool) -> Row:
    metrics: dict[str, Metric] = {}
    costs = []  # per batch, in units of a forward and backward pass
    seconds = 0.0
    for case in cases:
        relevance, map_seconds = _timed(
            lambda: attribute(model, case.inputs, case.target, name),  # noqa: B023
            case.target.device,
        )
        # Relative to training on the same batch, a number that says more than seconds on one machine.
        costs.append(map_seconds / case.seconds)
        seconds += map_seconds
        _update_localization(metrics, case, relevance)
        if faithfulness:
            _update_faithfulness(metrics, model, case, relevance, fill)
    samples = sum(len(case.target) for case in cases)
    scores = {metric: _score(instance.compute()) for metric, instance in metrics.items()}
    return Row(name, scores=scores, cost=median(costs), seconds=seconds / samples)


def _update_localization(metrics: dict[str, Metric], case: AuditBatch, relevance: Relevance) -> None:
    mask = case.batch.get("mask")
    # Several regions `[batch, regions, height, width]` count as one evidence; their names do not matter here.
    regions = tuple(map(str, range(mask.shape[1]))) if mask is not None and mask.ndim == 4 else ()
    evidence, _ = token_annotations(case.batch, relevance.image_grid, regions)
    if evidence is None:
        return
    for name, kind in (("EPG", EnergyPointingGame), ("AUPRC", LocalizationAUPRC), ("pointing game", PointingGame)):
        metric = metrics.setdefault(name, kind().to(case.target.device))
        metric.update(relevance.scores.detach(), evidence)


def _update_faithfulness(
    metrics: dict[str, Metric], model: nn.Module, case: AuditBatch, relevance: Relevance, fill: Fill
) -> None:
    scores = relevance.scores.detach()
    device = case.target.device
    if relevance.grid is not None:
        predict, images = image_prediction(model, case.inputs)
        for name, first in (("positive AUC", True), ("negative AUC", False)):
            metric = metrics.setdefault(name, PerturbationArea(first, fill=fill).to(device))
            metric.update(predict, images, scores, relevance.grid, case.target)
    elif isinstance(case.inputs, dict) and "attention_mask" in case.inputs:
        usable = content_of_map(case.inputs, scores.shape[1])
        probability = text_probability(lambda **inputs: predict_logits(model, inputs), case.inputs, case.target)
        for name, kind in (("comprehensiveness", Comprehensiveness), ("sufficiency", Sufficiency)):
            metric = metrics.setdefault(name, kind().to(device))
            metric.update(probability, scores, usable)


def _forward_backward(model: nn.Module, inputs: Tensor | dict[str, Tensor], target: Tensor) -> None:
    """Run the passes of a training step; the gradients are thrown away."""
    with torch.enable_grad():
        explained = predict_logits(model, inputs).gather(1, target[:, None]).sum()
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        torch.autograd.grad(explained, parameters, allow_unused=True)


def _timed(function: Callable[[], Any], device: torch.device) -> tuple[Any, float]:
    """Return what a function returns, and the seconds it took on its device."""
    synchronize(device)
    started = time.perf_counter()
    result = function()
    synchronize(device)
    return result, time.perf_counter() - started


def _score(computed: Mapping[str, Tensor]) -> Score:
    chance = float(computed["chance"]) if "chance" in computed else None
    value, low, high = (float(computed[name]) for name in ("value", "low", "high"))
    return Score(value, low, high, int(computed["samples"]), chance)


def comparison_table(rows: Sequence[Row]) -> str:
    """Return the rows as aligned Markdown, the most faithful first; below it the methods without scores, and why."""
    columns = [name for name in COMPARED_METRICS if any(is_known(row.scores.get(name)) for row in rows)]
    scored = [row for row in rows if not row.problem]
    samples = max((score.samples for row in scored for score in row.scores.values()), default=0)
    sorted_by = next((name for name in SORTED_BY if name in columns), None)
    if sorted_by is not None:
        scored.sort(key=lambda row: _badness(sorted_by, row))
    head = ["method", "class", *(f"{name} {'↑' if COMPARED_METRICS[name] else '↓'}" for name in columns), "cost"]
    lines = [
        [
            row.method,
            "yes" if row.class_specific else "no",
            *(table_cell(row.scores.get(name), samples) for name in columns),
            f"{row.cost:.2f}",
        ]
        for row in scored
    ]
    parts = [markdown_table([head, *lines]), _legend(scored, columns)] if scored else []
    problems = [[row.method, " ".join(row.problem.split()).replace("|", "\\|")] for row in rows if row.problem]
    if problems:
        parts.append("Not possible here:\n\n" + "\n".join(f"- `{name}`: {problem}" for name, problem in problems))
    return "\n\n".join(parts)


def _legend(rows: Sequence[Row], columns: Sequence[str]) -> str:
    sentences = [
        "Mean [95 % interval over samples]; ↑ more is better, ↓ less is. class: whether the map depends on the class. "
        "cost: time of a map in units of one forward and backward pass of the same batch."
    ]
    if "EPG" in columns:
        chance = [row.scores["EPG"].chance for row in rows if is_known(row.scores.get("EPG"))]
        sentences.append(f"Chance level of EPG, the annotated share of the area: {chance[0]:.3f}.")
        # With localisation alone (EPG, AUPRC, pointing game) nothing says where the model itself looks.
        if len(columns) > 3:
            sentences.append("Where the model itself looks beside the annotation, a faithful map scores low on it.")
    return " ".join(sentences)


def _badness(name: str, row: Row) -> float:
    score = row.scores.get(name)
    if score is None or not is_known(score):
        return math.inf
    return -score.value if COMPARED_METRICS[name] else score.value


LONG = 30.0  # seconds that a method may go on for without a word


@dataclass(repr=False)
class Comparison:
    """What a comparison measured so far.

    Attributes:
        about: What was compared: the number of samples, the seed, the class that is explained, the accuracy (nan
            without labels), and the seconds of a forward and backward pass per sample.
        methods: The names of the methods that were asked for.
        rows: The scores of those that are done.
    """

    about: dict[str, Any]
    methods: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)

    @property
    def heading(self) -> str:
        """A sentence about what was compared."""
        about = self.about
        # The accuracy of samples without any label is nan.
        accuracy = "" if math.isnan(about["accuracy"]) else f", {about['accuracy']:.0%} of them read right"
        explained = "predicted class" if about["target"] == "predicted" else "label"
        return f"{about['samples']} samples (seed {about['seed']}){accuracy}; explained is the {explained}."

    @property
    def table(self) -> str:
        """The scores as aligned Markdown, the most faithful method first."""
        return comparison_table(self.rows)

    def __str__(self) -> str:
        """Return the heading and the table, as in table.md."""
        return f"{self.heading}\n\n{self.table}"

    def __repr__(self) -> str:
        return f"Comparison({len(self.rows)} of {len(self.methods)} methods, {self.about['samples']} samples)"

    def _repr_html_(self) -> str:
        return markdown_html(str(self))

    def write(self, folder: Path | str) -> None:
        """Write table.md and results.json; a number that is not known is null."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "table.md", f"{self}\n")
        write_json(folder / "results.json", {**self.about, "methods": [asdict(row) for row in self.rows]})


def compare(
    model: nn.Module,
    loader: Iterable[Any],
    methods: Sequence[str] | None = None,
    *,
    target: Literal["predicted", "label"] = "predicted",
    max_samples: int = 64,
    batch_size: int = 16,
    seed: int = 0,
    faithfulness: bool = True,
    fill: Fill = 0.0,
    batch_adapter: BatchAdapter | None = None,
    task: TaskName | Task | None = None,
    output: Path | str | None = None,
    verbose: bool = False,
) -> Comparison:
    """Compare methods on a model and a loader: by annotations, by what the model says without the relevant, by time.

    `print(lrptrain.compare(model, loader))` shows the table. The model is run in evaluation mode on the device it is
    on, and left as it was.

    Args:
        model: A LightningModule, or any module of which the forward returns logits `[batch, classes]` or an object
            with `.logits`.
        loader: Batches as the callbacks read them: a dict with `image`, `pixel_values` or `input_ids`, and `label`,
            `mask`, `boxes` or `rationale` where known, or a tuple (image, label[, mask]).
        methods: Some of `lrptrain.methods()`; None for all.
        target: The class to explain; for samples without a label it is the predicted one.
        max_samples: How many samples of the loader are taken, as evenly over the classes as they allow.
        batch_size: Samples per forward pass.
        seed: Seed of the draw.
        faithfulness: Also take away what the maps call relevant, and see what the model says: many forward passes.
        fill: What removed pixels become, one number or one per channel: black, in normalised units -mean / std.
        batch_adapter: Function that brings a batch of another form to the names of the contract.
        task: What output and labels mean, where they do not say so: "classes" (one-hot labels), "binary" (one logit,
            soft labels), `lrptrain.OneLabel(column)` of several labels per sample, or `lrptrain.Regression(mean, std)`.
            By default classes, of which one logit tells two apart.
        output: Folder for table.md and results.json, written anew after every method; None for none.
        verbose: Whether to print how far it is.

    Raises:
        KeyboardInterrupt: At Ctrl-C, after what is done has been written.
        UnsupportedMethodError: If a method is unknown.
        UnsupportedModelError: If the model does not return logits.
        ValueError: If the loader has no sample, a batch cannot be read, or a number is not positive.
    """
    check_counts(max_samples=max_samples, batch_size=batch_size)
    names = tuple(all_methods() if methods is None else dict.fromkeys(methods))
    for name in names:
        get_method(name, {})  # an unknown one is refused now, and not after minutes of work
    network = logits_model(model)
    chosen = find_task(task, network)
    samples = draw_samples(loader, max_samples, seed, batch_adapter, chosen)
    with chosen.reading(), trainable_in_evaluation(network):
        cases = prepare_cases(network, batched(samples, batch_size, device_of(network)), target)
        right = [x for case in cases for x in (case.logits.argmax(1) == case.label)[case.label >= 0].tolist()]
        about = {
            "seed": seed,
            "target": target,
            "samples": len(samples),
            "accuracy": fmean(right) if right else math.nan,
            "seconds_per_forward_backward": sum(case.seconds for case in cases) / len(samples),
        }
        result = Comparison(about, names)
        _measure(result, _rows(network, cases, names, fill, faithfulness, verbose), output, verbose)
    return result


def _measure(result: Comparison, rows: Iterator[Row], output: Path | str | None, verbose: bool) -> None:
    """Add row after row to a comparison, which is written and shown as it is when Ctrl-C ends it."""
    if verbose:
        print(f"{result.heading}\n", flush=True)
    try:
        for row in rows:
            result.rows.append(row)
            if output is not None:
                result.write(output)
    except KeyboardInterrupt:
        if verbose:
            print(f"\nstopped: {len(result.rows)} of {len(result.methods)} methods are done", flush=True)
        raise
    finally:
        _conclude(result, output, verbose)


def _conclude(result: Comparison, output: Path | str | None, verbose: bool) -> None:
    """Write and show what is done, also after Ctrl-C, which may have hit the last time that it was written."""
    if not result.rows:
        return
    if output is not None:
        result.write(output)
    if verbose:
        files = "" if output is None else f"\n\n{Path(output) / 'table.md'}\n{Path(output) / 'results.json'}"
        print(f"\n{result.table}{files}", flush=True)


def _rows(
    model: nn.Module, cases: Sequence[AuditBatch], methods: Sequence[str], fill: Fill, faithfulness: bool, verbose: bool
) -> Iterator[Row]:
    """Compare methods one after another, the cheapest first, and say how far it is.

    Yields:
        A row for each method, first those of methods that are not possible on this model.
    """

    def say(text: str, end: str = "\n") -> None:
        if verbose:
            print(text, end=end, flush=True)

    say(f"each of {len(methods)} methods on one sample, to know what they cost ...")
    trials = try_out(model, cases[0], methods)
    impossible = [trial for trial in trials if trial.problem]
    # `try_out` sorts them: the cheapest come first.
    possible = [trial for trial in trials if not trial.problem]
    for number, trial in enumerate(impossible, start=1):
        say(f"{number:3} of {len(methods)}  {trial.method:26}not possible here, see below")
        yield trial
    rows = compare_methods(model, cases, [trial.method for trial in possible], fill, faithfulness)
    for number, trial in enumerate(possible, start=len(impossible) + 1):
        # The line is begun before the method runs, and ended with its time or its error.
        say(f"{number:3} of {len(methods)}  {trial.method:26}", end="")
        if (seconds := expected_seconds(trial, cases, faithfulness)) > LONG:
            say(f"up to {seconds:.0f} s (Ctrl-C keeps what is done) ... ", end="")
        row = next(rows)
        # Below 10 ms with one decimal: 3.4 ms, but 120 ms.
        milliseconds = row.seconds * 1e3
        say(row.problem or f"{milliseconds:.{int(milliseconds < 10)}f} ms per sample")
        yield row
