"""TensorBoard as the sink: of Lightning's TensorBoardLogger, and of a `SummaryWriter` by itself."""

from typing import Any

from lrptrain.loggers.proofs import captioned_pictures, words_of
from lrptrain.loggers.record import EpochRecord
from lrptrain.loggers.record_tables import findings_markdown, scores_markdown
from lrptrain.loggers.sink import Sink, is_named, scalars_to_lightning


def log_to_tensorboard(experiment: Any, record: EpochRecord) -> None:
    """Log one epoch's pictures, texts and findings.

    Logged tags:
        `relevance/overlays/<sample_id>`: The picture over its caption.
        `relevance/highlights/<sample_id>`: The caption and the text, in Markdown.
        `relevance/proofs/<kind>`: Samples with the cue of others, and what the model answers.
        `relevance/findings`: One item for each finding that is new.
        `relevance/findings_table`: All that stand, as a Markdown table.
        `relevance/scores_table`: Scores of more than some tens of classes, as a Markdown table.

    The scalars are not logged here but through Lightning.

    Args:
        experiment: A `SummaryWriter`, as `TensorBoardLogger.experiment` gives it.
        record: What to log.
    """
    for folder, name, picture in captioned_pictures(record):
        experiment.add_image(f"{record.prefix}/{folder}/{name}", picture, record.step, dataformats="HWC")
    for text in record.texts:
        experiment.add_text(
            f"{record.prefix}/highlights/{text.sample_id}", f"{text.caption}\n\n{text.text}", global_step=record.step
        )
    for finding in record.findings:
        if words_of(finding):
            experiment.add_text(f"{record.prefix}/proofs/{finding.kind}", words_of(finding), global_step=record.step)
    if record.new_findings:
        items = "\n".join(f"- {finding!s}" for finding in record.new_findings)
        experiment.add_text(f"{record.prefix}/findings", items, global_step=record.step)
    if record.findings or record.samples:
        experiment.add_text(
            f"{record.prefix}/findings_table", findings_markdown(record.findings), global_step=record.step
        )
    scores = scores_markdown(record)
    if scores:
        experiment.add_text(f"{record.prefix}/scores_table", scores, global_step=record.step)


def _is_writer(experiment: Any) -> bool:
    """Return whether this is a `SummaryWriter`, of torch or of tensorboardX."""
    return all(callable(getattr(experiment, name, None)) for name in ("add_scalar", "add_image", "add_text"))


def _scalars_to_writer(writer: Any, record: EpochRecord) -> None:
    """Log a record's scalars to a `SummaryWriter`."""
    for key, value in record.scalars.items():
        writer.add_scalar(key, value, global_step=record.step)
    writer.flush()


def _media_to_writer(writer: Any, record: EpochRecord) -> None:
    """Log all but a record's scalars to a `SummaryWriter`."""
    log_to_tensorboard(writer, record)
    writer.flush()


TENSORBOARD_LOGGER = Sink(
    serves=lambda logger: is_named(logger, "TensorBoardLogger"),
    log_scalars=scalars_to_lightning,
    log_media=lambda logger, record: log_to_tensorboard(logger.experiment, record),
)
SUMMARY_WRITER = Sink(serves=_is_writer, log_scalars=_scalars_to_writer, log_media=_media_to_writer)
