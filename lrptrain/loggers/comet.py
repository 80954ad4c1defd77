"""Comet as the sink: of Lightning's CometLogger, of an experiment, and of the `CometCallback` of transformers."""

from typing import Any

from lrptrain.loggers.local import evaluation_name
from lrptrain.loggers.proofs import captioned_pictures, highlights_page, proofs_page
from lrptrain.loggers.record import EpochRecord
from lrptrain.loggers.record_tables import record_tables, rows_of
from lrptrain.loggers.sink import Sink, is_named, scalars_to_lightning


def log_to_comet(experiment: Any, record: EpochRecord) -> None:
    """Log one epoch's pictures, texts and tables to a Comet experiment, online or offline.

    Logged, as far as the record has them:
        `relevance/overlays/<sample_id>`: The picture over its caption, among the graphics.
        `relevance/highlights/<evaluation>.html`: The texts as a page, among the assets.
        `relevance/proofs/<kind>`, `relevance/proofs/<evaluation>.html`: Samples with the cues of others: images
            among the graphics, and texts among the assets.
        `relevance/<table>/<evaluation>.csv`: `samples`, `findings_table` and `scores_table`, among the assets.

    Args:
        experiment: A `comet_ml.Experiment` or `OfflineExperiment`.
        record: What to log.
    """
    evaluation = evaluation_name(record.epoch, record.step)
    for folder, name, picture in captioned_pictures(record):
        experiment.log_image(picture, name=f"{record.prefix}/{folder}/{name}", step=record.step)
    if record.texts:
        page = f"{record.prefix}/highlights/{evaluation}.html"
        experiment.log_asset_data(highlights_page(record), name=page, step=record.step)
    if proofs_page(record.findings):
        page = f"{record.prefix}/proofs/{evaluation}.html"
        experiment.log_asset_data(proofs_page(record.findings), name=page, step=record.step)
    for name, columns in record_tables(record).items():
        path = f"{record.prefix}/{name}/{evaluation}.csv"
        # Comet writes rows as CSV without pandas, and shows that as a table.
        experiment.log_table(path, tabular_data=rows_of(columns), headers=list(columns))


def _is_experiment(logger: Any) -> bool:
    return all(callable(getattr(logger, name, None)) for name in ("log_metrics", "log_asset_data", "log_image"))


COMET_LOGGER = Sink(
    serves=lambda logger: is_named(logger, "CometLogger"),
    log_scalars=scalars_to_lightning,
    log_media=lambda logger, record: log_to_comet(logger.experiment, record),
)
COMET_EXPERIMENT = Sink(
    serves=_is_experiment,
    log_scalars=lambda experiment, record: experiment.log_metrics(record.scalars, step=record.step, epoch=record.epoch),
    log_media=log_to_comet,
)
