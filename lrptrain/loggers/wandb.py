"""Weights & Biases as the sink: of Lightning's WandbLogger, and of a run by itself."""

import html
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from lrptrain.extras import require
from lrptrain.findings import Finding
from lrptrain.findings.sentences import sentences
from lrptrain.loggers.metrics import find_metric
from lrptrain.loggers.proofs import proof_picture, proofs_blocks
from lrptrain.loggers.record import EpochRecord, Picture
from lrptrain.loggers.record_tables import record_tables, rows_of, with_few_scores
from lrptrain.loggers.sink import Sink, has_methods, lightning_sink, register, scalars_to_lightning

MOST_IMAGES = 64
"""So many images are under a key: a choice, below the 108 that W&B shows."""
_LONGEST_TITLE = 63
"""W&B's own bound on the title of an alert."""
_MASK_LABELS = {0: "elsewhere", 1: "annotation", 255: "ignored"}

# Lightning's WandbLogger logs this key with every point: charts of the monitor share the x axis of the training.
_STEP = "trainer/global_step"
# The metrics that each run has been told of; a run that ends takes its entry along.
_defined: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
# The row of a W&B run, and the step of the record, that values were last added to.
_open_rows: WeakKeyDictionary[Any, tuple[int, int]] = WeakKeyDictionary()


def log_to_wandb(experiment: Any, record: EpochRecord) -> None:
    """Log one epoch's media and tables as one history row, and alert of each new finding.

    Logged keys, as far as the record has them:
        `relevance/overlays`: Images with the annotation as a mask; the first 64.
        `relevance/highlights`: The texts as HTML.
        `relevance/proofs`: Samples with the cues of others, and what the model answers, as images.
        `relevance/proof_texts`: The same of texts, as HTML.
        `relevance/samples`: A table with one row per sample and its overlay or highlight, to be filtered by `label`,
            `predicted`, `correct` and every score; the first 10 000. Maps as numbers are in the local record alone.
        `relevance/findings_table`: All findings that stand; see `findings_table` for the columns.
        `relevance/scores_table`: Scores of more than some tens of classes; see `scores_table`.

    The scalars are not logged here; see `define_metrics`.
    """
    wandb = require("wandb", "wandb")
    define_metrics(experiment, record)
    media: dict[str, Any] = {}
    pictures = _of_one_size(record.pictures[:MOST_IMAGES])
    if pictures:
        media[f"{record.prefix}/overlays"] = [_image(wandb, picture, picture.caption) for picture in pictures]
    if record.texts:
        blocks = (f"<h4>{html.escape(text.caption)}</h4>\n{text.html}" for text in record.texts)
        media[f"{record.prefix}/highlights"] = wandb.Html("\n".join(blocks), inject=False)
    for name, columns in record_tables(record).items():
        columns = _with_media(wandb, columns, record) if name == "samples" else columns
        media[f"{record.prefix}/{name}"] = wandb.Table(columns=list(columns), data=rows_of(columns))
    media |= _proofs(wandb, record)
    # One call for all of it: every call makes a new row in the history of the run.
    if media:
        experiment.log({**media, _STEP: record.step})
    for finding in record.new_findings:
        _alert(wandb, experiment, finding)


def _proofs(wandb: Any, record: EpochRecord) -> dict[str, Any]:
    images = [
        wandb.Image(picture, caption=sentences(finding).verdict)
        for finding in record.findings
        if (picture := proof_picture(finding)) is not None
    ]
    texts = proofs_blocks(record.findings)
    media: dict[str, Any] = {f"{record.prefix}/proofs": images} if images else {}
    return media | ({f"{record.prefix}/proof_texts": wandb.Html(texts, inject=False)} if texts else {})


def define_metrics(experiment: Any, record: EpochRecord) -> None:
    """Plot everything against Lightning's step, and say what the run's summary keeps of each scalar.

    Best before the first value is logged: what came before it is not summarised.
    """
    defined = _defined.setdefault(experiment, set())
    if "relevance/*" not in defined:
        defined.add("relevance/*")
        experiment.define_metric("relevance/*", step_metric=_STEP)
    # What comes as rows of a table has no key: a thousand classes would be as many metrics of the run.
    for key in with_few_scores(record).scalars.keys() - defined:
        defined.add(key)
        # The run's key "relevance/label/auprc" is "label/auprc" where it is declared.
        metric = find_metric(record.metrics, key.removeprefix(f"{record.prefix}/"))
        if metric is not None and metric.summary is not None:
            experiment.define_metric(key, step_metric=_STEP, summary=metric.summary)


def logged_in() -> bool:
    """Whether W&B has a key to sync runs with; nobody is asked for one."""
    wandb = require("wandb", "wandb")
    if wandb.login(prompt=False):
        return True
    wandb.teardown()  # a login without a key leaves settings behind that refuse offline runs
    return False


def _of_one_size(pictures: Sequence[Picture]) -> list[Picture]:
    """Return pictures, whose titles may have more lines, filled up to one size: W&B shows a list of one size alone."""
    size = np.max([each.image.shape[:2] for each in pictures], 0) if pictures else ()

    def filled(values: np.ndarray, ground: int) -> np.ndarray:
        missing = [(0, most - here) for most, here in zip(size, values.shape, strict=False)]
        return np.pad(values, missing + [(0, 0)] * (values.ndim - 2), constant_values=ground)

    return [
        replace(each, image=filled(each.image, 255), mask=None if each.mask is None else filled(each.mask, 0))
        for each in pictures
    ]


def _image(wandb: Any, picture: Picture, caption: str | None = None) -> Any:
    # The mask is data of its own, which W&B's viewer can show and hide over the picture.
    masks = None
    if picture.mask is not None:
        masks = {"annotation": {"mask_data": picture.mask, "class_labels": _MASK_LABELS}}
    return wandb.Image(picture.image, caption=caption, masks=masks)


def _with_media(wandb: Any, samples: dict[str, list[Any]], record: EpochRecord) -> dict[str, list[Any]]:
    columns = dict(samples)
    ids = columns.get("sample_id", [])
    # Samples without a picture or a text have an empty cell.
    images = {picture.sample_id: _image(wandb, picture) for picture in record.pictures[:MOST_IMAGES]}
    pages = {text.sample_id: wandb.Html(text.html, inject=False) for text in record.texts}
    for name, media in (("overlay", images), ("highlight", pages)):
        if media:
            columns[name] = [media.get(sample_id) for sample_id in ids]
    return columns


def _alert(wandb: Any, experiment: Any, finding: Finding) -> None:
    title = sentences(finding).verdict
    level = {"shortcut": "ERROR", "unreviewed": "WARN", "inconclusive": "WARN"}.get(finding.standing, "INFO")
    # W&B drops an alert of the same title within the wait: a finding that comes back is told again.
    title = title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 3]}..."
    experiment.alert(title, text=str(finding), level=wandb.AlertLevel[level], wait_duration=1)


def _scalars_to_logger(logger: Any, record: EpochRecord) -> None:
    define_metrics(logger.experiment, record)
    scalars_to_lightning(logger, record)


def _scalars_to_run(run: Any, record: EpochRecord) -> None:
    define_metrics(run, record)
    RunBeside(run, record.step).log({**record.scalars, "epoch": record.epoch, _STEP: record.step})


class RunBeside:
    """A W&B run whose rows are counted by the script alone.

    Each `run.log` begins a row, with a number of its own unless the script gives one; a script that does, by
    `run.log(..., step=...)`, loses what it logs at a number that has passed. So values are added to the row that is
    open, and a row is begun only where an earlier record's are in it.
    """

    def __init__(self, run: Any, step: int) -> None:
        self._run = run
        self._step = step

    def log(self, values: dict[str, Any]) -> None:
        """Add values to the run's open row."""
        row, step = _open_rows.get(self._run, (None, None))
        if row == self._run.step and step != self._step:
            self._run.log({}, commit=True)
        self._run.log(values, commit=False)
        _open_rows[self._run] = (self._run.step, self._step)

    def __getattr__(self, name: str) -> Any:
        """Return what the run has by that name."""
        return getattr(self._run, name)


register(lightning_sink("WandbLogger", log_to_wandb, _scalars_to_logger))
# What `wandb.init()` gives.
register(
    Sink(
        serves=lambda run: has_methods(run, "log", "define_metric", "alert"),
        log_scalars=_scalars_to_run,
        log_media=lambda run, record: log_to_wandb(RunBeside(run, record.step), record),
    )
)
