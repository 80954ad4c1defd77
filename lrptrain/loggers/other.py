"""Any other Lightning logger as the sink: whatever its interface takes."""

import inspect
from collections.abc import Callable
from typing import Any

from lrptrain.loggers.record import EpochRecord
from lrptrain.loggers.record_tables import findings_markdown, findings_table, rows_of
from lrptrain.loggers.sink import Sink, has_methods, register, scalars_to_lightning


def log_to_other(logger: Any, record: EpochRecord) -> None:
    """Log one epoch's pictures, texts and findings by the methods that a logger has, named as `WandbLogger`'s are.

    Called, if they are there, with those of the keyword arguments that they take:
        `log_image(key, images, step, caption)`: Under `relevance/overlays`, lists of arrays `[height, width, 3]` and
            of their captions.
        `log_table(key, columns, data, step)`: The findings under `relevance/findings_table`.
        `log_text(key, text, step)`: Each text under `relevance/highlights/<sample_id>`, and the findings under
            `relevance/findings_table` where there is no `log_table`, both in Markdown. A `log_text` that takes
            `columns` and `data` is given the texts as one table under `relevance/highlights`.

    The scalars are not logged here.
    """
    log_image, log_table, log_text = (_method(logger, name) for name in ("log_image", "log_table", "log_text"))
    if log_image is not None and record.pictures:
        # Pairs become one tuple of images and one of captions.
        images, captions = zip(*((picture.image, picture.caption) for picture in record.pictures), strict=True)
        log_image(f"{record.prefix}/overlays", list(images), step=record.step, caption=list(captions))
    if log_text is not None and record.texts:
        _log_texts(log_text, _takes(logger.log_text, "data"), record)
    if log_table is not None and record.samples:
        columns = findings_table(record.findings)
        log_table(f"{record.prefix}/findings_table", columns=list(columns), data=rows_of(columns), step=record.step)
    elif log_text is not None and record.samples and not _takes(logger.log_text, "data"):
        log_text(f"{record.prefix}/findings_table", findings_markdown(record.findings), step=record.step)


def _log_texts(log_text: Callable[..., Any], as_table: bool, record: EpochRecord) -> None:
    key = f"{record.prefix}/highlights"
    if as_table:
        rows = [[str(text.sample_id), text.caption, text.text] for text in record.texts]
        log_text(key, columns=["sample_id", "caption", "text"], data=rows, step=record.step)
        return
    for text in record.texts:
        log_text(f"{key}/{text.sample_id}", f"{text.caption}\n\n{text.text}", step=record.step)


def _method(logger: Any, name: str) -> Callable[..., Any] | None:
    """A method that passes over keyword arguments it does not take; None if there is none."""
    method = getattr(logger, name, None)
    if not callable(method):
        return None

    def call(*arguments: Any, **options: Any) -> Any:
        return method(*arguments, **{key: value for key, value in options.items() if _takes(method, key)})

    return call


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function takes an argument of that name, which is assumed where its signature is not known."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    # A method with **kwargs passes them on: small options may go along, a table only to a method that names `data`.
    any_name = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return name in parameters or (any_name and name != "data")


def _lacks(logger: Any) -> str:
    """Return what `log_to_other` has no method for."""
    has_text = _method(logger, "log_text") is not None
    has_table = _method(logger, "log_table") is not None or (has_text and not _takes(logger.log_text, "data"))
    kinds = {"pictures": _method(logger, "log_image") is not None, "texts": has_text, "tables": has_table}
    return ", ".join(name for name, has_place in kinds.items() if not has_place)


register(
    Sink(
        serves=lambda logger: has_methods(logger, "log_metrics"),
        log_scalars=scalars_to_lightning,
        log_media=log_to_other,
        has_tables=False,
        lacks=_lacks,
        is_last=True,
    )
)
