"""The last evaluation of a monitor, as it is shown in a notebook or printed."""

import html
from collections.abc import Sequence

from lrptrain.findings import Finding, announce
from lrptrain.findings.announcement import gravity
from lrptrain.findings.sentences import counted
from lrptrain.loggers.record import Highlight, Picture
from lrptrain.render.png import png_address

_STYLE = "font:14px/1.45 system-ui,sans-serif;color:#111;background:#fff;padding:8px"


def heading(epoch: int | None, findings: Sequence[Finding]) -> str:
    """Return what the last evaluation came to, in a line.

    Args:
        epoch: Its epoch; None before it.
        findings: What it found.
    """
    if epoch is None:
        return "No evaluation yet."
    faults = counted(sum(each.is_fault for each in findings), "shortcut")
    return f"Epoch {epoch}: {faults}, {counted(sum(each.is_open for each in findings), 'other cue')}."


def evaluation_text(epoch: int | None, findings: Sequence[Finding], drawn: Sequence[Picture | Highlight]) -> str:
    """Return the last evaluation in words: what was found, and a line for each sample.

    Args:
        epoch: Its epoch; None before it.
        findings: What it found.
        drawn: Samples to show.
    """
    return "\n\n".join([heading(epoch, findings), *announce(findings), *(each.caption for each in drawn)])


def evaluation_html(epoch: int | None, findings: Sequence[Finding], drawn: Sequence[Picture | Highlight]) -> str:
    """Return the last evaluation as a block of HTML: what was found, the gravest first, and samples with their maps.

    Args:
        epoch: Its epoch; None before it.
        findings: What it found.
        drawn: Samples to show.
    """
    parts = [
        f'<div style="{_STYLE};font-weight:600">{html.escape(heading(epoch, findings))}</div>',
        *(finding._repr_html_() for finding in sorted(findings, key=gravity)),
        f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(map(_sample, drawn))}</div>',
    ]
    return "".join(parts)


def _sample(drawn: Picture | Highlight) -> str:
    caption = f'<figcaption style="max-width:480px">{html.escape(drawn.caption)}</figcaption>'
    if isinstance(drawn, Highlight):
        return f'<figure style="margin:0;{_STYLE}">{drawn.html}{caption}</figure>'
    picture = f'<img src="{png_address(drawn.image)}" alt="{html.escape(drawn.caption)}" style="max-width:100%">'
    return f'<figure style="margin:0;{_STYLE}">{picture}{caption}</figure>'
