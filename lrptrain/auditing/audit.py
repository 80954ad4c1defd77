"""Whether maps are faithful on a model and a loader: what `lrptrain audit` does, as a function."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from lrptrain.auditing.base import select_tests
from lrptrain.auditing.brought import device_of, logits_model
from lrptrain.auditing.context import AuditSettings
from lrptrain.auditing.predict import Fill
from lrptrain.auditing.report import markdown, write_audit_report
from lrptrain.auditing.result import AuditResult, UnitResult
from lrptrain.auditing.run import run_audit
from lrptrain.auditing.samples import draw_samples
from lrptrain.batch import BatchAdapter, Sample, batched
from lrptrain.batch.task import Task, TaskName, find_task
from lrptrain.relevance.registry import get_method
from lrptrain.trainers.checks import check_counts

AUDITED_METHODS = (
    "raw_attention",
    "rollout",
    "generic_attention",
    "transformer_attribution",
    "attnlrp",
    "input_x_gradient",
    "random",
)
"""The methods that are audited where none are named."""


def audit(
    model: nn.Module,
    loader: Iterable[Any],
    methods: Sequence[str] = AUDITED_METHODS,
    *,
    budget: float = 900.0,
    tests: Sequence[str] | None = None,
    max_samples: int = 64,
    batch_size: int = 16,
    seed: int = 0,
    settings: AuditSettings | None = None,
    fill: Fill = 0.0,
    batch_adapter: BatchAdapter | None = None,
    task: TaskName | Task | None = None,
    output: Path | str | None = None,
    verbose: bool = False,
) -> AuditResult:
    """Test on a model and a loader whether methods are faithful, with a verdict: yes, weakly, no, or why not judged.

    `print(lrptrain.audit(model, loader))` shows what `lrptrain audit` does. The model is run in evaluation mode on the
    device it is on, and left as it was; the predicted class is explained.

    Args:
        model: A LightningModule, or any module of which the forward returns logits `[batch, classes]` or an object
            with `.logits`.
        loader: Batches as the callbacks read them: a dict with `image`, `pixel_values` or `input_ids`, and `label`
            where known, or a tuple (image, label).
        methods: Some of `lrptrain.methods()`.
        budget: Seconds, from now on; tests that do not fit are left out, and named. The result says how many methods
            could be judged, and what one more takes.
        tests: Names of those to run, of `lrptrain.auditing.registered_tests()`; None for all.
        max_samples: How many samples of the loader are taken, as evenly over the classes as they allow; a verdict needs
            8.
        batch_size: Samples per forward pass.
        seed: Seed of all that is drawn.
        settings: How much each test does.
        fill: What removed pixels become, one number or one per channel: black, in normalised units -mean / std.
        batch_adapter: Function that brings a batch of another form to the names of the contract.
        task: What output and labels mean, where they do not say so: "classes" (one-hot labels), "binary" (one logit,
            soft labels), `lrptrain.OneLabel(column)` of several labels per sample, or `lrptrain.Regression(mean, std)`.
            By default classes, of which one logit tells two apart.
        output: Folder for audit.md, results.json, plots and what is measured; an audit of the same model, samples and
            settings that is started again goes on there. None for none.
        verbose: Whether to print how far it is.

    Raises:
        KeyboardInterrupt: At Ctrl-C, after what is done has been written.
        UnsupportedMethodError: If a method is unknown.
        UnsupportedModelError: If the model does not return logits.
        ValueError: If the loader has no sample, a batch cannot be read, a test is unknown, or a number is not positive.
    """
    started = time.monotonic()
    check_counts(max_samples=max_samples, batch_size=batch_size)
    names = check_arguments(methods, tests, budget)
    network = logits_model(model)
    chosen = find_task(task, network)
    samples = draw_samples(loader, max_samples, seed, batch_adapter, chosen)
    return audit_samples(
        network,
        samples,
        names,
        budget=budget,
        batch_size=batch_size,
        output=output,
        verbose=verbose,
        started=started,
        tests=tests,
        settings=settings,
        fill=fill,
        seed=seed,
        task=chosen,
    )


def check_arguments(methods: Sequence[str], tests: Sequence[str] | None, budget: float) -> tuple[str, ...]:
    """Reject wrong arguments now, and not after minutes of work; return the names of the methods.

    Raises:
        UnsupportedMethodError: If a method is unknown.
        ValueError: If a test is unknown, or the budget is not positive.
    """
    if not budget > 0:
        raise ValueError(f"budget must be a positive number of seconds, not {budget}")
    select_tests(tests)
    return tuple(get_method(name, {}).name for name in methods)


def audit_samples(
    model: nn.Module,
    samples: Sequence[Sample],
    methods: Sequence[str],
    *,
    budget: float,
    batch_size: int,
    output: Path | str | None = None,
    verbose: bool = False,
    **options: Any,
) -> AuditResult:
    """Audit on samples that were drawn; see `audit`.

    Args:
        model: A model of which the forward returns logits.
        samples: The samples.
        methods: Names of methods.
        budget: Seconds.
        batch_size: Samples per forward pass.
        output: Folder of what is measured and written; None for none.
        verbose: Whether to print how far it is.
        **options: Passed to `run_audit`.

    Raises:
        KeyboardInterrupt: At Ctrl-C, after what is done has been written.
    """
    batches = batched(samples, batch_size, device_of(model))
    # The same options are used twice: for the audit, and after Ctrl-C to read what it has measured.
    options["folder"] = output
    try:
        result = run_audit(model, batches, methods, budget=budget, progress=_print_unit if verbose else None, **options)
    except KeyboardInterrupt:
        if output is not None:
            if verbose:
                print("\nstopped: what is done is kept\n", flush=True)
            # Every unit was saved when it was done: with no budget left, the result is read from the folder.
            _conclude(run_audit(model, batches, methods, budget=0, **options), output, verbose)
        raise
    _conclude(result, output, verbose)
    return result


def _conclude(result: AuditResult, output: Path | str | None, verbose: bool) -> None:
    """Write an audit and show it."""
    if output is not None:
        write_audit_report(result, Path(output))
    if verbose:
        files = "" if output is None else f"\n{Path(output) / 'audit.md'}\n{Path(output) / 'results.json'}"
        print(f"\n{markdown(result)}{files}", flush=True)


def _print_unit(unit: UnitResult) -> None:
    print(f"{unit.title:44} {unit.problem or f'{unit.seconds:.1f} s'}", flush=True)
