"""The highlighted texts of an evaluation as one page."""

import html

from lrptrain.loggers.record import EpochRecord

_STYLE = "body{font-family:system-ui,sans-serif;max-width:60em;margin:2em auto}h2{font-size:1em;margin:1.5em 0 .3em}"


def highlights_page(record: EpochRecord) -> str:
    """Return an HTML page that needs no other file, with a heading and a text for each sample."""
    blocks = "\n".join(f"<h2>{html.escape(text.caption)}</h2>\n{text.html}" for text in record.texts)
    title = f"Relevance, epoch {record.epoch}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n{blocks}\n</body></html>\n"
    )
