"""MLflow as the sink: of Lightning's MLFlowLogger, of a run, and of the `MLflowCallback` of transformers."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lrptrain.extras import require
from lrptrain.files import plain
from lrptrain.loggers.local import evaluation_name
from lrptrain.loggers.proofs import captioned_pictures, new_findings, pages
from lrptrain.loggers.record import EpochRecord
from lrptrain.loggers.record_tables import record_tables, rows_of
from lrptrain.loggers.sink import Sink, is_named, register

# MLflow refuses a whole batch of metrics for one key with another character. It takes colons, but not on Windows.
_REFUSED = re.compile(r"[^/\w.\- ]")
_REFUSED_IN_IMAGE_KEYS = re.compile(r"[^a-zA-Z0-9_.\- ]")
_LONGEST_KEY = 250
_MOST_METRICS = 1000
"""MLflow's own bounds on the length of a key, and on the metrics of one request."""
# By this tag of a run, MLflow's page finds the tables among its files.
_TABLES = "mlflow.loggedArtifacts"


@dataclass(frozen=True)
class MLflowRun:
    """A run of MLflow, and the client that writes to it.

    Attributes:
        client: An `mlflow.MlflowClient`.
        run_id: The id of the run.
        prefix: What the keys of all metrics begin with; "" for nothing.
    """

    client: Any
    run_id: str
    prefix: str = ""


def log_scalars_to_mlflow(run: MLflowRun, record: EpochRecord) -> None:
    """Make one point of a record's scalars, in few requests.

    Characters of class names that MLflow refuses become `_`, with a hash behind the key that tells it from others.
    """
    metric = require("mlflow.entities", "mlflow").Metric
    now = require("mlflow.utils.time", "mlflow").get_current_time_millis()
    scalars = {**record.scalars, "epoch": record.epoch}
    metrics = [
        metric(_shortened(f"{run.prefix}{key}", _REFUSED, _LONGEST_KEY), float(value), now, record.step)
        for key, value in scalars.items()
    ]
    for start in range(0, len(metrics), _MOST_METRICS):
        run.client.log_batch(run.run_id, metrics=metrics[start : start + _MOST_METRICS])


def log_media_to_mlflow(run: MLflowRun, record: EpochRecord) -> None:
    """Log one epoch's pictures, texts and tables.

    Logged, as far as the record has them:
        `relevance/overlays/<sample_id>`: The picture over its caption, as an image with a step.
        `relevance/highlights/<evaluation>.html`: The texts as a page.
        `relevance/proofs/<kind>`, `relevance/proofs/<evaluation>.html`: Samples with the cues of others: images
            with a step, and texts.
        `relevance/findings/<evaluation>.md`: The findings that are new.
        `relevance/samples.json`, `relevance/findings_table.json`, `relevance/scores_table.json`: Tables of the last
            evaluation, which MLflow's page compares between runs.
    """
    client = run.client
    evaluation = evaluation_name(record.epoch, record.step)
    for folder, name, picture in captioned_pictures(record):
        key = f"{_path(record.prefix)}/{folder}/{_shortened(name, _REFUSED_IN_IMAGE_KEYS, 100)}"
        client.log_image(run.run_id, picture, key=key, step=record.step)
    files = {f"{folder}/{evaluation}.html": page for folder, page in pages(record)}
    files[f"findings/{evaluation}.md"] = new_findings(record)
    for path, text in files.items():
        if text:
            client.log_text(run.run_id, text, f"{_path(record.prefix)}/{path}")
    for name, columns in record_tables(record).items():
        _log_table(run, f"{_path(record.prefix)}/{name}.json", columns)


def _log_table(run: MLflowRun, path: str, columns: Mapping[str, list[Any]]) -> None:
    """Write a table as MLflow's own `log_table` does, which needs pandas and appends to the table that is there."""
    table = {"columns": list(columns), "data": rows_of(dict(columns))}
    run.client.log_text(run.run_id, json.dumps(plain(table), ensure_ascii=False), path)
    tables = json.loads(run.client.get_run(run.run_id).data.tags.get(_TABLES, "[]"))
    entry = {"path": path, "type": "table"}
    if entry not in tables:
        run.client.set_tag(run.run_id, _TABLES, json.dumps([*tables, entry]))


def _path(prefix: str) -> str:
    """Return what files begin with: the name of a monitor may have characters that MLflow refuses."""
    return "/".join(_shortened(part, _REFUSED_IN_IMAGE_KEYS, 100) for part in prefix.split("/"))


def _shortened(name: str, refused: re.Pattern[str], longest: int) -> str:
    """Return a name without the characters that are refused, and with a hash behind it where it was changed."""
    if len(name) <= longest and not refused.search(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    # Without it "a/b:c" and "a/b;c" would be one curve; a hyphen and 8 digits are 9 characters.
    return f"{refused.sub('_', name)[: longest - 9]}-{digest}"


def _is_mlflow(logger: Any) -> bool:
    is_run = hasattr(getattr(logger, "info", None), "run_id")  # what `mlflow.start_run()` returns
    return is_run or isinstance(logger, MLflowRun) or is_named(logger, "MLFlowLogger")


def _run_of(logger: Any) -> MLflowRun:
    if isinstance(logger, MLflowRun):
        return logger
    if is_named(logger, "MLFlowLogger"):
        prefix = f"{logger._prefix}{logger.LOGGER_JOIN_CHAR}" if logger._prefix else ""
        return MLflowRun(logger.experiment, logger.run_id, prefix)
    return MLflowRun(require("mlflow", "mlflow").MlflowClient(), logger.info.run_id)


register(
    Sink(
        serves=_is_mlflow,
        log_scalars=lambda logger, record: log_scalars_to_mlflow(_run_of(logger), record),
        log_media=lambda logger, record: log_media_to_mlflow(_run_of(logger), record),
    )
)
