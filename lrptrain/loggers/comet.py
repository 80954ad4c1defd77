"""Comet as the sink: of Lightning's CometLogger, of an experiment, and of the `CometCallback` of transformers."""

from typing import Any

from lrptrain.loggers.local import evaluation_name
from lrptrain.loggers.proofs import captioned_pictures, pages
from lrptrain.loggers.record import EpochRecord
from lrptrain.loggers.record_tables import record_tables, rows_of
from lrptrain.loggers.sink import Sink, has_methods, lightning_sink, register


def log_to_comet(experiment: Any, record: EpochRecord) -> None:
    """Log one epoch's pictures, texts and tables to a Comet experiment, online or offline.

    Logged, as far as the record has them:
        `relevance/overlays/<sample_id>`: The picture over its caption, among the graphics.
        `relevance/highlights/<evaluation>.html`: The texts as a page, among the assets.
        `relevance/proofs/<kind>`, `relevance/proofs/<evaluation>.html`: Samples with the cues of others: images
            among the graphics, and texts among the assets.
        `relevance/<table>/<evaluation>.csv`: `samples`, `findings_table` and `scores_table`, among the assets.
    """
    evaluation = evaluation_name(record.epoch, record.step)
    for folder, name, picture in captioned_pictures(record):
        experiment.log_image(picture, name=f"{record.prefix}/{folder}/{name}", step=record.step)
    for folder, page in pages(record):
        experiment.log_asset_data(page, name=f"{record.prefix}/{folder}/{evaluation}.html", step=record.step)
    for name, columns in record_tables(record).items():
        path = f"{record.prefix}/{name}/{evaluation}.csv"
        # Comet writes rows as CSV without pandas, and shows that as a table.
        experiment.log_table(path, tabular_data=rows_of(columns), headers=list(columns))


register(lightning_sink("CometLogger", log_to_comet))
register(
    Sink(
        serves=lambda logger: has_methods(logger, "log_metrics", "log_asset_data", "log_image"),
        log_scalars=lambda experiment, record: experiment.log_metrics(
            record.scalars, step=record.step, epoch=record.epoch
        ),
        log_media=log_to_comet,
    )
)
