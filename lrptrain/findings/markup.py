"""Findings as HTML, for a notebook."""

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lrptrain.findings.proof import proof_html
from lrptrain.findings.sentences import sentences

if TYPE_CHECKING:
    from lrptrain.findings.finding import Finding

# On white, of a contrast of at least 4.5 (WCAG 2.2, AA).
_COLORS = {"confirmed": "#b3382c", "suspected": "#8a5a00", "unconfirmed": "#5c5c5c", "refuted": "#5c5c5c"}


def finding_html(finding: "Finding") -> str:
    """Return a finding as a block of HTML: the verdict in its colour, the evidence, the details folded away."""
    text = sentences(finding)
    # What a person has to judge is no fault for sure, and not shown as one.
    doubtful = finding.state == "confirmed" and not finding.is_fault
    color = _COLORS["suspected" if doubtful else finding.state]
    style = "font:14px/1.45 system-ui,sans-serif;color:#111;background:#fff;padding:6px 10px;margin:0 0 6px"
    return (
        f'<div style="{style};border-left:4px solid {color}">'
        f'<div style="color:{color};font-weight:600">{html.escape(text.verdict)}</div>'
        f"{_lines((text.intervention, text.relevance, text.likewise, text.samples, text.excerpt))}"
        f"{proof_html(finding)}"
        f"{_lines([f'Mend: {text.remedy}'] if text.remedy else [])}"
        f'<details style="color:#5c5c5c;font-size:12px"><summary>in numbers</summary>{html.escape(str(finding))}'
        "</details></div>"
    )


def _lines(texts: Sequence[str]) -> str:
    return "".join(f"<div>{html.escape(text)}</div>" for text in texts if text)
