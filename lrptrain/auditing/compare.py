"""Methods on a model and a loader, in one table: what `lrptrain compare` does, as a function."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from torch import nn

from lrptrain.auditing.brought import device_of, logits_model, trainable_in_evaluation
from lrptrain.auditing.comparison import (
    Row,
    compare_methods,
    comparison_table,
    expected_seconds,
    prepare_cases,
    try_out,
)
from lrptrain.auditing.context import AuditBatch
from lrptrain.auditing.markup import markdown_html
from lrptrain.auditing.predict import Fill
from lrptrain.auditing.samples import draw_samples
from lrptrain.batch import BatchAdapter, Sample, batched
from lrptrain.batch.task import CLASSES, Task, TaskName, find_task
from lrptrain.files import write_json
from lrptrain.relevance.registry import get_method
from lrptrain.relevance.registry import methods as all_methods
from lrptrain.trainers.checks import check_counts

LONG = 30.0  # seconds that a method may go on for without a word
SPLIT_NAMES = {"val": "validation", "test": "test"}


@dataclass(repr=False)
class Comparison:
    """What a comparison measured so far.

    Attributes:
        about: What was compared: the number of samples, the seed, the class that is explained, the accuracy (nan
            without labels), the seconds of a forward and backward pass per sample, and what the caller added.
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
        source = f" of the {SPLIT_NAMES[about['split']]} set of {about['data']}" if "split" in about else ""
        return f"{about['samples']} samples{source} (seed {about['seed']}){accuracy}; explained is the {explained}."

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
        (folder / "table.md").write_text(f"{self}\n", encoding="utf-8")
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

    `print(lrptrain.compare(model, loader))` shows the table of `lrptrain compare`. The model is run in evaluation mode
    on the device it is on, and left as it was.

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
    names = checked_names(methods)
    network = logits_model(model)
    chosen = find_task(task, network)
    samples = draw_samples(loader, max_samples, seed, batch_adapter, chosen)
    return compare_samples(
        network,
        samples,
        names,
        {"seed": seed, "target": target},
        batch_size,
        faithfulness,
        fill,
        output,
        verbose,
        chosen,
    )


def checked_names(methods: Sequence[str] | None) -> tuple[str, ...]:
    """Return names of methods, each once; all methods without any.

    Raises:
        UnsupportedMethodError: If one is unknown: now, and not after minutes of work.
    """
    names = tuple(all_methods() if methods is None else dict.fromkeys(methods))
    for name in names:
        get_method(name, {})
    return names


def compare_samples(
    model: nn.Module,
    samples: Sequence[Sample],
    methods: Sequence[str],
    about: Mapping[str, Any],
    batch_size: int = 16,
    faithfulness: bool = True,
    fill: Fill = 0.0,
    output: Path | str | None = None,
    verbose: bool = False,
    task: Task = CLASSES,
) -> Comparison:
    """Compare methods on samples that were drawn; see `compare`.

    Args:
        model: A model of which the forward returns logits.
        samples: The samples.
        methods: Names of methods.
        about: What stands in results.json beside what is measured here: `seed`, `target`, and where the samples are of
            (`split` and `data`).
        batch_size: Samples per forward pass.
        faithfulness: As for `compare`.
        fill: As for `compare`.
        output: As for `compare`.
        verbose: As for `compare`.
        task: What the model's output means.
    """
    with task.reading(), trainable_in_evaluation(model):
        cases = prepare_cases(model, batched(samples, batch_size, device_of(model)), about["target"])
        right = [x for case in cases for x in (case.logits.argmax(1) == case.label)[case.label >= 0].tolist()]
        measured = {
            "samples": len(samples),
            "accuracy": fmean(right) if right else math.nan,
            "seconds_per_forward_backward": sum(case.seconds for case in cases) / len(samples),
        }
        result = Comparison({**about, **measured}, tuple(methods))
        if verbose:
            print(f"{result.heading}\n", flush=True)
        try:
            for row in _rows(model, cases, methods, fill, faithfulness, verbose):
                result.rows.append(row)
                if output is not None:
                    result.write(output)
        except KeyboardInterrupt:
            if verbose:
                print(f"\nstopped: {len(result.rows)} of {len(methods)} methods are done", flush=True)
            raise
        finally:
            _conclude(result, output, verbose)
    return result


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
