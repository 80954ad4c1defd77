"""Aim as the sink: of Aim's own logger for Lightning, and of a run."""

from typing import Any

from lrptrain.extras import require
from lrptrain.loggers.findings_table import findings_markdown
from lrptrain.loggers.many_scores import scores_markdown
from lrptrain.loggers.record import EpochRecord
from lrptrain.loggers.sink import Sink, is_named, scalars_to_lightning


def log_to_aim(run: Any, record: EpochRecord) -> None:
    """Log one epoch's pictures, texts and tables to an `aim.Run`.

    Logged sequences, as far as the record has them:
        `relevance/overlays`: Images with their captions.
        `relevance/highlights`: Texts in Markdown, each below its caption.
        `relevance/findings_table`, `relevance/scores_table`: Tables in Markdown, as texts.

    Args:
        run: The run.
        record: What to log.

    Raises:
        ImportError: If aim is not installed.
    """
    aim = require("aim", "aim")

    def track(values: Any, name: str) -> None:
        run.track(values, name=f"{record.prefix}/{name}", step=record.step, epoch=record.epoch)

    if record.pictures:
        track([aim.Image(picture.image, caption=picture.caption) for picture in record.pictures], "overlays")
    if record.texts:
        track([aim.Text(f"{text.caption}\n\n{text.text}") for text in record.texts], "highlights")
    if record.samples or record.findings:
        track(aim.Text(findings_markdown(record.findings)), "findings_table")
    scores = scores_markdown(record)
    if scores:
        track(aim.Text(scores), "scores_table")


def _is_run(logger: Any) -> bool:
    return callable(getattr(logger, "track", None)) and isinstance(getattr(logger, "hash", None), str)


def _scalars_to_run(run: Any, record: EpochRecord) -> None:
    for key, value in record.scalars.items():
        run.track(value, name=key, step=record.step, epoch=record.epoch)


AIM_LOGGER = Sink(
    serves=lambda logger: is_named(logger, "AimLogger"),
    log_scalars=scalars_to_lightning,
    log_media=lambda logger, record: log_to_aim(logger.experiment, record),
)
AIM_RUN = Sink(serves=_is_run, log_scalars=_scalars_to_run, log_media=log_to_aim)
