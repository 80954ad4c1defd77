"""What several tests start from: a finding, and W&B without a network."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lrptrain.findings import Evidence, Finding, Scope


def finding(**changes: Any) -> Finding:
    """A finding on class dog, changed."""
    base = Finding(
        kind="focus_outside_annotation",
        title="The relevance lies outside the annotation",
        scope=Scope("class", "dog"),
        target="label",
        relevance=Evidence(0.12, (0.09, 0.15), 0.31, 0.001, 24),
        confidence=0.95,
        bound=0.5,
        worst_samples=(17, 4),
        epoch=0,
        step=7,
        first_epoch=0,
    )
    return replace(base, **changes)


def keep_wandb_offline(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let W&B write to `folder` alone, whoever is logged in."""
    patch.setenv("WANDB_MODE", "offline")
    patch.setenv("WANDB_SILENT", "true")
    for kind in ("DATA", "CACHE", "CONFIG"):
        patch.setenv(f"WANDB_{kind}_DIR", str(folder / kind.lower()))


def wandb_records(run: Path) -> list[dict[str, Any]]:
    """What W&B's own reader finds in the folder of an offline run."""
    command = [str(Path(sys.executable).with_name("wandb")), "leet", "inspect", "--json", str(run)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in lines.splitlines()]
