"""`lrptrain compare`: methods on a checkpoint and its data, in one table."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

import lrptrain
from lrptrain.auditing.comparison import (
    Case,
    Row,
    compare_methods,
    comparison_table,
    expected_seconds,
    prepare_cases,
    try_out,
)
from lrptrain.auditing.predict import Fill
from lrptrain.batch import batched
from lrptrain.cli.loading import are_images, black_of, default_device, draw_samples, load_data, load_model, names_in
from lrptrain.files import write_json
from lrptrain.relevance.registry import get_method
from lrptrain.trainers.checks import check_counts

SPLIT_NAMES = {"val": "validation", "test": "test"}
LONG = 30.0  # seconds that a method may go on for without a word


def compare(
    checkpoint: str,
    data: str | None = None,
    methods: str | None = None,
    split: Literal["val", "test"] = "val",
    target: Literal["predicted", "label"] = "predicted",
    max_samples: int = 64,
    batch_size: int = 16,
    seed: int = 0,
    faithfulness: bool = True,
    output: str = "comparison",
    module: str | None = None,
    model: str | None = None,
    device: str | None = None,
) -> None:
    """Compare methods on your model and data: by annotations, by what the model says without the relevant, by time.

    Writes table.md and results.json to a folder, anew after every method: the cheap ones come first, and Ctrl-C keeps
    those that are done.

    Args:
        checkpoint: Path of a checkpoint of `lrptrain fit`, or of any LightningModule named by --module.
        data: A config of `lrptrain fit`, of which the `data:` section is read; else the data that the checkpoint was
            trained with, where it says so.
        methods: Names of `lrptrain.methods()` separated by commas; else all.
        split: The samples are drawn from the validation or the test set.
        target: The class to explain.
        max_samples: How many samples, as evenly over the classes as they allow.
        batch_size: Samples per forward pass.
        seed: Seed of the draw.
        faithfulness: Also take away what the maps call relevant, and see what the model says: many forward passes.
        output: Folder to which the results are written.
        module: Dotted path of the LightningModule's class; else the checkpoint's own, or this project's for images and
            texts.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        device: "cpu", "cuda" ...; else the GPU if there is one.

    Raises:
        UnsupportedMethodError: If a method is unknown.
        ValueError: If the data are not known, hold no sample, or a number is not positive.
    """
    check_counts(max_samples=max_samples, batch_size=batch_size)
    names = names_in(methods) if methods else lrptrain.methods()
    # A wrong name ends the command here, not after minutes of work.
    for name in names:
        get_method(name, {})
    datamodule = load_data(checkpoint, data)
    samples = draw_samples(datamodule, split, max_samples, seed)
    where = default_device(device)
    network = load_model(checkpoint, are_images(samples), module, model).to(where).requires_grad_(True)
    cases = prepare_cases(network, batched(samples, batch_size, where), target)
    about = {
        "checkpoint": checkpoint,
        "data": type(datamodule).__name__,
        "split": split,
        "samples": len(samples),
        "seed": seed,
        "target": target,
        "accuracy": _accuracy(cases),
        "seconds_per_forward_backward": sum(case.seconds for case in cases) / len(samples),
    }
    print(f"{heading(about)}\n", flush=True)
    folder = Path(output)
    # The rows so far are in a list, and not in a result, so that Ctrl-C leaves those that are done.
    done: list[Row] = []
    try:
        for row in _measure(network, cases, names, black_of(datamodule), faithfulness):
            done.append(row)
            write_results(folder, about, done)
    except KeyboardInterrupt:
        print(f"\nstopped: {len(done)} of {len(names)} methods are done", flush=True)
    if done:
        write_results(folder, about, done)  # once more: Ctrl-C may have hit the last time
        print(f"\n{comparison_table(done)}\n\n{folder / 'table.md'}\n{folder / 'results.json'}")


def _measure(
    network: torch.nn.Module,
    cases: Sequence[Case],
    names: Sequence[str],
    fill: Fill,
    faithfulness: bool,
) -> Iterator[Row]:
    """Compare methods one after another, the cheapest first, and say how far it is.

    Args:
        network: The model.
        cases: Batches of samples; see `prepare_cases`.
        names: Names of the methods.
        fill: Value of pixels that are taken away, in the units of the images.
        faithfulness: Also take away what the maps call relevant.

    Yields:
        A row for each method, first those of methods that are not possible on this model.
    """
    print(f"each of {len(names)} methods on one sample, to know what they cost ...", flush=True)
    trials = try_out(network, cases[0], names)
    impossible = [trial for trial in trials if trial.problem]
    # `try_out` sorts them: the cheapest come first.
    possible = [trial for trial in trials if not trial.problem]
    for number, trial in enumerate(impossible, start=1):
        print(f"{number:3} of {len(names)}  {trial.method:26}not possible here, see below", flush=True)
        yield trial
    rows = compare_methods(network, cases, [trial.method for trial in possible], fill, faithfulness)
    for number, trial in enumerate(possible, start=len(impossible) + 1):
        # The line is begun before the method runs, and ended with its time or its error.
        print(f"{number:3} of {len(names)}  {trial.method:26}", end="", flush=True)
        if (seconds := expected_seconds(trial, cases, faithfulness)) > LONG:
            print(f"up to {seconds:.0f} s (Ctrl-C keeps what is done) ... ", end="", flush=True)
        row = next(rows)
        # Below 10 ms with one decimal: 3.4 ms, but 120 ms.
        milliseconds = row.seconds * 1e3
        print(row.problem or f"{milliseconds:.{int(milliseconds < 10)}f} ms per sample", flush=True)
        yield row


def heading(about: Mapping[str, Any]) -> str:
    """Return a sentence about what was compared."""
    # The accuracy of samples without any label is nan.
    accuracy = "" if math.isnan(about["accuracy"]) else f", {about['accuracy']:.0%} of them read right"
    explained = "predicted class" if about["target"] == "predicted" else "label"
    return (
        f"{about['samples']} samples of the {SPLIT_NAMES[about['split']]} set of {about['data']} (seed {about['seed']})"
        f"{accuracy}; explained is the {explained}."
    )


def write_results(folder: Path, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write table.md and results.json; a number that is not known is null."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(f"{heading(about)}\n\n{comparison_table(rows)}\n", encoding="utf-8")
    write_json(folder / "results.json", {**about, "methods": [asdict(row) for row in rows]})


def _accuracy(cases: Sequence[Any]) -> float:
    """Share of the labelled samples whose label is the predicted class."""
    # A sample without a label has -1.
    label = torch.cat([case.batch["label"] for case in cases])
    right = torch.cat([case.logits.argmax(1) for case in cases]) == label
    return float(right[label >= 0].float().mean())
