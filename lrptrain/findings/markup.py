"""Findings as HTML, for a notebook and a report."""

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lrptrain.findings.proof import proof_html
from lrptrain.findings.sentences import sentences

if TYPE_CHECKING:
    from lrptrain.findings.finding import Finding

# On white, of a contrast of at least 4.5 (WCAG 2.2, AA).
_COLORS = {"shortcut": "#b3382c", "unreviewed": "#1f5f8b", "annotation": "#5c5c5c"}
_QUIET = "#5c5c5c"


def finding_html(finding: "Finding") -> str:
    """Return a finding as a block of HTML: the verdict in its colour, the evidence, the proof."""
    verdict, *evidence, remedy = sentences(finding)
    color = _COLORS[finding.role] if finding.relies else _QUIET
    style = "font:14px/1.45 system-ui,sans-serif;color:#111;background:#fff;padding:6px 10px;margin:0 0 6px"
    return (
        f'<div style="{style};border-left:4px solid {color}">'
        f'<div style="color:{color};font-weight:600">{html.escape(verdict)}</div>'
        f"{_lines(evidence)}{proof_html(finding)}{_lines([remedy])}</div>"
    )


def _lines(texts: Sequence[str]) -> str:
    return "".join(f"<div>{html.escape(text)}</div>" for text in texts if text)
