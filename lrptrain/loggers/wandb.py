"""Weights & Biases as the sink."""

import html
from typing import Any
from weakref import WeakSet

from lrptrain.extras import require
from lrptrain.findings import Finding
from lrptrain.loggers.record import EpochRecord, Picture

# W&B shows at most 108 images under a key and 10 000 rows of a table.
MOST_IMAGES = 64
MOST_ROWS = 10_000
_LONGEST_TITLE = 63
_MASK_LABELS = {0: "elsewhere", 1: "annotation", 255: "ignored"}

_defined: WeakSet = WeakSet()


def log_to_wandb(experiment: Any, record: EpochRecord) -> None:
    """Log one epoch's media as one history row, and alert of each new finding.

    Logged keys, as far as the record has them:
        `relevance/overlays`: Images with the annotation as a mask; the first 64.
        `relevance/highlights`: The texts as HTML.
        `relevance/samples`: A table with one row per sample and its overlay or highlight; the first 10 000.

    The scalars are not logged here but through Lightning.

    Args:
        experiment: A `wandb.Run`, as `WandbLogger.experiment` gives it.
        record: What to log.

    Raises:
        ImportError: If wandb is not installed.
    """
    wandb = require("wandb", "wandb")
    _define_metric(experiment)
    media: dict[str, Any] = {}
    pictures = record.pictures[:MOST_IMAGES]
    if pictures:
        media[f"{record.prefix}/overlays"] = [_image(wandb, picture) for picture in pictures]
    if record.texts:
        blocks = (f"<h4>{html.escape(text.caption)}</h4>\n{text.html}" for text in record.texts)
        media[f"{record.prefix}/highlights"] = wandb.Html("\n".join(blocks), inject=False)
    if record.samples:
        media[f"{record.prefix}/samples"] = _table(wandb, record)
    if media:
        experiment.log({**media, "trainer/global_step": record.step})
    for finding in record.new_findings:
        _alert(wandb, experiment, finding)


def logged_in() -> bool:
    """Whether W&B has a key to sync runs with; nobody is asked for one.

    Raises:
        ImportError: If wandb is not installed.
    """
    wandb = require("wandb", "wandb")
    if wandb.login(prompt=False):
        return True
    wandb.teardown()  # a login without a key leaves settings behind that refuse offline runs
    return False


def _define_metric(experiment: Any) -> None:
    """Plot everything against Lightning's step; once per run."""
    if experiment not in _defined:
        experiment.define_metric("relevance/*", step_metric="trainer/global_step")
        _defined.add(experiment)


def _image(wandb: Any, picture: Picture) -> Any:
    masks = None
    if picture.mask is not None:
        masks = {"annotation": {"mask_data": picture.mask, "class_labels": _MASK_LABELS}}
    return wandb.Image(picture.image, caption=picture.caption, masks=masks)


def _table(wandb: Any, record: EpochRecord) -> Any:
    columns = {name: values[:MOST_ROWS] for name, values in record.samples.items()}
    ids = columns.get("sample_id", [])
    images = {picture.sample_id: wandb.Image(picture.image) for picture in record.pictures[:MOST_IMAGES]}
    pages = {text.sample_id: wandb.Html(text.html, inject=False) for text in record.texts}
    for name, media in (("overlay", images), ("highlight", pages)):
        if media:
            columns[name] = [media.get(sample_id) for sample_id in ids]
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return wandb.Table(columns=list(columns), data=rows)


def _alert(wandb: Any, experiment: Any, finding: Finding) -> None:
    title = f"{finding.state}: {finding.scope}, {finding.kind.replace('_', ' ')} ({finding.target})"
    level = {"confirmed": "ERROR", "suspected": "WARN", "refuted": "INFO"}[finding.state]
    # W&B drops an alert of the same title within the wait: a finding that comes back is told again.
    title = title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 3]}..."
    experiment.alert(title, text=str(finding), level=wandb.AlertLevel[level], wait_duration=1)
