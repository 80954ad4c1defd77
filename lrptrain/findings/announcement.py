"""Findings for a terminal: first what is wrong, then the evidence, then where to look and what to do."""

import os
import shlex
import textwrap
from collections.abc import Iterable
from pathlib import Path

from lrptrain.findings.facts import fold, gravity
from lrptrain.findings.finding import Finding
from lrptrain.findings.sentences import sentences
from lrptrain.terminal import WIDTH

MOST_SAMPLES = 3
"""So many samples are named."""
SAME_REASON = "Not tested, for the same reason."


def announce(findings: Iterable[Finding], run: Path | None = None) -> list[str]:
    """Return one paragraph per fact, the confirmed ones first and the gravest of them at the top.

    Args:
        findings: Findings, folded or not.
        run: The folder of the run, in which they can be looked at.

    Returns:
        Paragraphs of several lines without an end of line, at most 80 columns wide but for a path that is longer. Why
        several were not tested is said once.
    """
    reasons: set[str] = set()
    paragraphs = []
    for fact in sorted(fold(list(findings)), key=gravity):
        reason = fact.note if fact.intervention is None else ""
        paragraphs.append(_paragraph(fact, run, SAME_REASON if reason in reasons else ""))
        if reason:
            reasons.add(reason)
    return paragraphs


def look_at(run: Path) -> str:
    """Return the command that shows a run, with the shortest path to its folder."""
    try:
        paths = [str(run), os.path.relpath(run)]
    except (ValueError, OSError):  # another drive; a working folder that is gone
        paths = [str(run)]
    return f"lrptrain dashboard {shlex.quote(min(paths, key=len))}"


def _paragraph(finding: Finding, run: Path | None, untested: str) -> str:
    """Return the text of a fact; `untested`, if it is not "", stands for what the intervention says."""
    text = sentences(finding)
    relevance = " ".join(part for part in (text.relevance, text.samples) if part)
    evidence = (untested or text.intervention, relevance, text.likewise, text.excerpt)
    lines = [
        textwrap.fill(text.verdict, WIDTH, subsequent_indent="  "),
        *(textwrap.fill(f"  {line}", WIDTH, subsequent_indent="  ") for line in evidence if line),
        *_where_next(finding, run, text.remedy),
    ]
    return "\n".join(lines)


def _where_next(finding: Finding, run: Path | None, remedy: str) -> list[str]:
    """Return where the samples are seen, and what to do; on one line where that is not too long."""
    see = ""
    if run is not None:
        ids = ", ".join(map(str, finding.worst_samples[:MOST_SAMPLES]))
        see = f"  See{f' samples {ids}' if ids else ''}: {look_at(run)}"
        if len(see) > WIDTH:
            see = f"  See: {look_at(run)}"
    mend = f"  Mend: {remedy}" if remedy else ""
    joint = f"{see} {mend}"
    # A command is never broken: it is there to be copied.
    return [joint] if see and mend and len(joint) <= WIDTH else [line for line in (see, mend) if line]
