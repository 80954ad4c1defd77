"""Findings for a terminal: first what is wrong, then the evidence, then where to look and what to do."""

import os
import shlex
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lrptrain.findings.proof import Proof, views
from lrptrain.findings.sentences import sentences
from lrptrain.terminal import WIDTH

if TYPE_CHECKING:
    from lrptrain.findings.finding import Finding

MOST_SAMPLES = 3
"""So many samples of a finding are named, quoted, and shown in its proof."""


def announce(findings: Iterable["Finding"], run: Path | None = None) -> list[str]:
    """Return one paragraph per finding; where to look, and what to do, is said once.

    Args:
        findings: The findings.
        run: The folder of the run, in which they can be looked at.

    Returns:
        Paragraphs of several lines without an end of line, at most 80 columns wide but for a path that is longer.
    """
    said: set[str] = set()
    paragraphs = []
    for number, each in enumerate(findings):
        text = sentences(each)
        doubt, remedy = ("" if words in said else words for words in (text.doubt, text.remedy))
        paragraphs.append(_paragraph(each, None if number else run, doubt, remedy))
        said |= {text.doubt, text.remedy}
    return paragraphs


def look_at(run: Path) -> str:
    """Return the command that shows a run, with the shortest path to its folder."""
    try:
        paths = [str(run), os.path.relpath(run)]
    except (ValueError, OSError):  # another drive; a working folder that is gone
        paths = [str(run)]
    return f"lrptrain dashboard {shlex.quote(min(paths, key=len))}"


def _paragraph(finding: "Finding", run: Path | None, doubt: str, remedy: str) -> str:
    text = sentences(finding)
    evidence = (" ".join(part for part in (text.effect, text.history) if part), text.share, text.told_by)
    lines = [
        textwrap.fill(text.verdict, WIDTH, subsequent_indent="  "),
        *(
            textwrap.fill(f"  {line}", WIDTH, subsequent_indent="  ")
            for line in (*evidence, text.relevance, text.excerpt, _example(finding.proof), doubt)
            if line
        ),
        *_where_next(finding, run, remedy),
    ]
    return "\n".join(lines)


def _example(proof: Proof | None) -> str:
    """Return what the swap does to the first sample that is shown."""
    if proof is None or not proof.samples:
        return ""
    return " ".join(f"{view.title}." for view in views(proof.samples[0], proof))


def _where_next(finding: "Finding", run: Path | None, remedy: str) -> list[str]:
    """Return where the samples are seen, and what to do."""
    see = ""
    if run is not None:
        ids = ", ".join(map(str, finding.worst_samples[:MOST_SAMPLES]))
        see = f"  See{f' samples {ids}' if ids else ''}: {look_at(run)}"
        if len(see) > WIDTH:
            see = f"  See: {look_at(run)}"
    # A command is never broken: it is there to be copied.
    return [line for line in (see, f"  {remedy}" if remedy else "") if line]
