"""Run as a script by test_guidance_loops_processes.py: `python guidance_loops_ddp_script.py FOLDER PROCESSES`."""

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from guided import annotated_data
from guided_loops import LOOPS
from setting import vit

FOLDER, PROCESSES = Path(sys.argv[1]), int(sys.argv[2])
RANK = int(os.environ.get("LOCAL_RANK", 0))
if PROCESSES > 1:
    os.environ.update(RANK=str(RANK), WORLD_SIZE=str(PROCESSES))
    dist.init_process_group("gloo")


def run(name: str, loop: str, rows: tuple[int, ...], **options: Any) -> None:
    """An epoch of two batches of twelve."""
    columns = annotated_data(24, rows)
    # The Trainer of transformers shares the samples out by itself.
    shard = columns if loop == "transformers" else {key: x[RANK::PROCESSES] for key, x in columns.items()}
    given = {"loss": "energy+rrr", "sparse": True, "compare_every_n_batches": 1, "on_error": "raise", **options}
    with warnings.catch_warnings(record=True):
        weights, guidance = LOOPS[loop](vit().double(), shard, given, 12 // PROCESSES, 1, FOLDER / name)
    torch.save(weights, FOLDER / f"{name}-{RANK}.pt")
    values = {key: value for key, value in guidance.values.items() if not key.endswith("swap_distance")}
    (FOLDER / f"{name}-{RANK}.json").write_text(json.dumps(values))


for each in (name for name in LOOPS if name != "Lightning"):
    run(each, each, (0, 1, 3, 5, 7, 8, 20, 21), weight=0.5)
run("one side", "a step", tuple(range(1, 24, 2)), weight=0.5)  # those of the second of two processes
run("bounded", "transformers", (1, 3, 4, 13, 14, 15))
