"""TensorBoard as the sink: of Lightning's TensorBoardLogger, and of a `SummaryWriter` by itself."""

from typing import Any

from lrptrain.loggers.proofs import captioned_pictures, new_findings, words_of
from lrptrain.loggers.record import EpochRecord
from lrptrain.loggers.record_tables import findings_markdown, scores_markdown
from lrptrain.loggers.sink import Sink, has_methods, lightning_sink, register


def log_to_tensorboard(experiment: Any, record: EpochRecord) -> None:
    """Log one epoch's pictures, texts and findings.

    Logged tags:
        `relevance/overlays/<sample_id>`: The picture over its caption.
        `relevance/highlights/<sample_id>`: The caption and the text, in Markdown.
        `relevance/proofs/<kind>`: Samples with the cue of others, and what the model answers.
        `relevance/findings`: One item for each finding that is new.
        `relevance/findings_table`: All that stand, as a Markdown table.
        `relevance/scores_table`: Scores of more than some tens of classes, as a Markdown table.
    """
    for folder, name, picture in captioned_pictures(record):
        experiment.add_image(f"{record.prefix}/{folder}/{name}", picture, record.step, dataformats="HWC")
    texts = {f"highlights/{text.sample_id}": f"{text.caption}\n\n{text.text}" for text in record.texts}
    texts |= {f"proofs/{finding.kind}": words_of(finding) for finding in record.findings}
    texts["findings"] = new_findings(record)
    if record.findings or record.samples:
        texts["findings_table"] = findings_markdown(record.findings)
    texts["scores_table"] = scores_markdown(record)
    for name, text in texts.items():
        if text:
            experiment.add_text(f"{record.prefix}/{name}", text, global_step=record.step)


def _scalars_to_writer(writer: Any, record: EpochRecord) -> None:
    for key, value in record.scalars.items():
        writer.add_scalar(key, value, global_step=record.step)
    writer.flush()


def _media_to_writer(writer: Any, record: EpochRecord) -> None:
    log_to_tensorboard(writer, record)
    writer.flush()


register(lightning_sink("TensorBoardLogger", log_to_tensorboard, has_all=False))
# A `SummaryWriter`, of torch or of tensorboardX.
register(
    Sink(
        serves=lambda writer: has_methods(writer, "add_scalar", "add_image", "add_text"),
        log_scalars=_scalars_to_writer,
        log_media=_media_to_writer,
        has_all=False,
    )
)
