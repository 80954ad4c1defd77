"""Findings for a terminal: first what is wrong, then the evidence, then where to look and what to do."""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lrptrain.findings.proof import Proof, views
from lrptrain.findings.sentences import sentences
from lrptrain.terminal import WIDTH, fitted

if TYPE_CHECKING:
    from lrptrain.findings.finding import Finding

MOST_SAMPLES = 3
"""So many samples of a finding are named, quoted, and shown in its proof."""


def announce(findings: Iterable["Finding"], run: Path | None = None) -> list[str]:
    """Return one paragraph per finding; where to look, and what to do, is said once.

    Returns:
        Paragraphs of several lines without an end of line, at most 80 columns wide but for a path that is longer.
    """
    said: set[str] = set()
    paragraphs = []
    for each in findings:
        text = sentences(each)
        history = f"{text.effect} {text.history}".rstrip()
        evidence = (history, text.share, text.also_relies_on, text.relevance, text.excerpt, _example(each.proof))
        told = [text.verdict, *(f"  {line}" for line in (*evidence, *({text.doubt} - said)) if line)]
        # A command is never broken: it is there to be copied.
        commands = [f"  {line}" for line in (*_where_next(each, run), *({text.remedy} - said)) if line]
        paragraphs.append("\n".join([*map(fitted, told), *commands]))
        said |= {text.doubt, text.remedy}
        run = None
    return paragraphs


def look_at(run: Path) -> str:
    """Return the command that shows a run, with the shortest path to its folder."""
    try:
        paths = [str(run), os.path.relpath(run)]
    except (ValueError, OSError):  # another drive; a working folder that is gone
        paths = [str(run)]
    return f"lrptrain dashboard {shlex.quote(min(paths, key=len))}"


def _example(proof: Proof | None) -> str:
    """Return what the swap does to the first sample that is shown."""
    if proof is None or not proof.samples:
        return ""
    return " ".join(f"{view.title}." for view in views(proof.samples[0], proof))


def _where_next(finding: "Finding", run: Path | None) -> list[str]:
    """Return where the samples are seen."""
    if run is None:
        return []
    ids = ", ".join(map(str, finding.worst_samples[:MOST_SAMPLES]))
    see = f"See samples {ids}: {look_at(run)}"
    return [see if ids and len(see) + 2 <= WIDTH else f"See: {look_at(run)}"]
