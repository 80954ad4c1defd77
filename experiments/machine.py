"""What a result was measured with, so that others can tell whether theirs may differ."""

import platform
import subprocess
from functools import cache
from pathlib import Path

import torch


@cache
def measured_with() -> dict[str, str]:
    """Return the processor, the version of torch, and the commit of the code."""
    return {"cpu": processor(), "torch": torch.__version__, "commit": commit()}


def processor() -> str:
    """Return the name of the processor, as the kernel tells it where there is one that does."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """Return the commit that is measured; it ends with "-dirty" where files were changed after it."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True)
    return done.stdout.strip()
