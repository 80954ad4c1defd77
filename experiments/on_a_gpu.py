"""Everything of this project that needs a GPU, each part under its own time limit, results written as they come.

    .venv/bin/python -m experiments.on_a_gpu --output folder --minutes 9
    .venv/bin/python -m experiments.on_a_gpu --parts tests --output folder

The parts, in this order: `tests` (`pytest -m gpu`), `speed` (time and memory of the methods, beside LXT and captum
where they are installed), `monitor` (what a monitored sample costs), `budget` (the share of a real run), `pretrain`
(the ViT-S, for what is left). What has run out of time is ended, and the next part begins. Without a GPU the same parts
run small, on the CPU: that shows that the commands work.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
RESULTS = (
    "experiments/speed/results/gpu.json",
    "experiments/speed/results/gpu_on_cpu.json",
    "experiments/speed/results/monitor_cuda.json",
    "experiments/speed/results/budget_cuda.json",
    "experiments/pretrain/results/runs.jsonl",
)
METHODS = ("attnlrp", "generic_attention", "transformer_attribution", "input_x_gradient")
RIVALS = ("captum InputXGradient", "LXT AttnLRP")
MONITORED = ("ViT-S/16, 224 px", "BERT-base, 128 tokens", "ViT-Ti/16, on scenes")
BUDGETED = ("ViT-S/16, 32 px, 1,000 images", "ViT-S/16, 224 px, 1,000 images")


def tests(_: float, output: Path) -> list[str]:
    """The selection of pytest; warnings of other versions than those of constraints.txt are no errors."""
    report = f"--junitxml={output / 'tests.xml'}"
    return ["pytest", "-m", "gpu", "tests/gpu", "-o", "filterwarnings=ignore", "-n", "4", "-rfs", "--tb=short", report]


def speed(_: float, __: Path) -> list[str]:
    """Both precisions of four models."""
    return ["experiments.speed.run", "--device", "cuda", "--rounds", "5", "--methods", *METHODS, *RIVALS]


def monitor(_: float, __: Path) -> list[str]:
    """Part by part; on a CPU a few samples."""
    if torch.cuda.is_available():
        return ["experiments.speed.monitor", "--device", "cuda", "--models", *MONITORED]
    return ["experiments.speed.monitor", "--models", "ViT-Ti/16, 224 px", "--samples", "8", "--rounds", "1"]


def budget(seconds: float, _: Path) -> list[str]:
    """By its defaults."""
    if torch.cuda.is_available():
        minutes = str(seconds / 60 / (len(BUDGETED) + 1))
        return ["experiments.speed.budget", "--device", "cuda", "--minutes", minutes, "--runs", *BUDGETED]
    return ["experiments.speed.budget", "--minutes", "0.1", "--runs", "ViT-S/16, 32 px, 300 images"]


def pretrain(seconds: float, output: Path) -> list[str]:
    """As far as it gets."""
    whole = ["--minutes", str((seconds - 20) / 60), "--output", str(output / "vit_s.safetensors")]
    return ["experiments.pretrain.run", "--model", "vit_s", *(whole if torch.cuda.is_available() else ["--smoke"])]


PARTS: dict[str, tuple[Callable[[float, Path], list[str]], float]] = {
    "tests": (tests, 180.0),
    "speed": (speed, 180.0),
    "monitor": (monitor, 90.0),
    "budget": (budget, 90.0),
    "pretrain": (pretrain, float("inf")),
}
"""What each runs, given its seconds and the folder for results; and seconds after which it is ended."""


def run(names: Sequence[str], seconds: float, output: Path) -> dict[str, str]:
    """Run the parts, and return how each ended."""
    output.mkdir(parents=True, exist_ok=True)
    end, outcomes = time.monotonic() + seconds, {}
    for name in names:
        make, limit = PARTS[name]
        limit = min(limit, end - time.monotonic())
        if limit < 5:
            outcomes[name] = "no time was left"
            continue
        started = time.monotonic()
        with (output / f"{name}.log").open("w", encoding="utf-8") as log:
            command = [sys.executable, "-m", *make(limit, output)]
            try:
                code = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, timeout=limit).returncode
                outcomes[name] = "done" if code == 0 else f"ended with {code}"
            except subprocess.TimeoutExpired:
                outcomes[name] = "ran out of time"
        outcomes[name] += f" after {time.monotonic() - started:.0f} s"
        print(f"{name}: {outcomes[name]}", flush=True)
        for path in map(ROOT.joinpath, RESULTS):
            if path.exists():
                shutil.copy(path, output)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "gpu")
    arguments = parser.parse_args()
    run(arguments.parts, 60 * arguments.minutes, arguments.output.resolve())


if __name__ == "__main__":
    main()
