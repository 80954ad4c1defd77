"""The samples of a record and the proofs of its findings, as loggers take pictures and texts."""

import html
import io
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import UInt8

from lrptrain.extras import require
from lrptrain.findings import Finding
from lrptrain.findings.proof import MarkedWord, proof_html, views
from lrptrain.findings.sentences import sentences
from lrptrain.loggers.record import EpochRecord
from lrptrain.render import contact_sheet

_STYLE = "body{font-family:system-ui,sans-serif;max-width:60em;margin:2em auto}h2{font-size:1em;margin:1.5em 0 .3em}"


def proof_picture(finding: Finding) -> UInt8[np.ndarray, "height width 3"] | None:
    """Return the picture of a finding's proof, in [0, 255]; None where there is none."""
    if finding.proof is None or not finding.proof.png:
        return None
    image = require("PIL.Image", "monitor").open(io.BytesIO(finding.proof.png))
    return np.asarray(image.convert("RGB"))


def captioned_pictures(record: EpochRecord) -> Iterator[tuple[str, str, UInt8[np.ndarray, "height width 3"]]]:
    """Yield folder, name and pixels of pictures, for loggers without captions: the caption is written below."""
    for picture in record.pictures:
        yield "overlays", str(picture.sample_id), contact_sheet([picture.image], [picture.caption])
    for finding in record.findings:
        if (proof := proof_picture(finding)) is not None:
            yield "proofs", finding.kind, proof


def pages(record: EpochRecord) -> Iterator[tuple[str, str]]:
    """Yield folder and content of pages of HTML, of what the record has."""
    if record.texts:
        yield "highlights", highlights_page(record)
    if proofs := proofs_page(record.findings):
        yield "proofs", proofs


def new_findings(record: EpochRecord) -> str:
    """Return the findings that are new as a list in Markdown; "" where there are none."""
    return "\n".join(f"- {finding!s}" for finding in record.new_findings)


def proofs_page(findings: Sequence[Finding]) -> str:
    """Return the proofs on texts as one page of HTML; "" where there are none."""
    blocks = proofs_blocks(findings)
    return f'<!DOCTYPE html><meta charset="utf-8">\n{blocks}' if blocks else ""


def proofs_blocks(findings: Sequence[Finding]) -> str:
    """Return the proofs on texts as a part of a page; "" where there are none."""
    proven = [finding for finding in findings if words_of(finding)]
    return "\n".join(f"<h4>{html.escape(sentences(each).verdict)}</h4>{proof_html(each)}" for each in proven)


def words_of(finding: Finding) -> str:
    """Return a proof on texts in Markdown, with what is taken away struck out; "" where there is none."""
    shown = () if finding.proof is None else finding.proof.samples
    lines = [
        f"**{_escaped(view.title)}**: {_marked(view.words)}"
        for sample in shown
        if finding.proof is not None
        for view in views(sample, finding.proof)
        if view.words
    ]
    return "\n\n".join(lines)


def _marked(words: tuple[MarkedWord, ...]) -> str:
    signs = {"": "", "gone": "~~", "new": "**"}
    return " ".join(f"{signs[mark]}{_escaped(text)}{signs[mark]}" for text, mark in words)


def _escaped(text: str) -> str:
    """Return a word without what Markdown or HTML would take for a mark."""
    for sign in ("&", "<", ">", "*", "~", "_", "`", "|", "[", "]"):
        text = text.replace(sign, f"&#{ord(sign)};") if sign != "&" else text.replace("&", "&amp;")
    return text


def highlights_page(record: EpochRecord) -> str:
    """Return an HTML page that needs no other file, with a heading and a text for each sample."""
    blocks = "\n".join(f"<h2>{html.escape(text.caption)}</h2>\n{text.html}" for text in record.texts)
    title = f"Relevance, epoch {record.epoch}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n{blocks}\n</body></html>\n"
    )
