"""Run as a script by test_guidance_processes.py: `python guidance_ddp_script.py FOLDER DEVICES`."""

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from guided import annotated_data, guidance, sgd_module
from setting import loader, trainer

from lrptrain.guidance.objective import Objective

FOLDER, DEVICES = Path(sys.argv[1]), int(sys.argv[2])
RANK = int(os.environ.get("LOCAL_RANK", 0))
OPTIONS = {"devices": DEVICES, "strategy": "ddp" if DEVICES > 1 else "auto", "use_distributed_sampler": False}


def run(
    name: str, loss: Any = "energy+rrr", rows: tuple | None = None, fails: int | None = None, **options: Any
) -> None:
    """Two epochs of two batches; in process `fails` the guidance fails in the second step."""
    columns = {name: x[RANK::DEVICES] for name, x in annotated_data(24, rows).items()}
    pl_module = sgd_module()
    guided = guidance(loss, **{"compare_every_n_batches": 2, "sparse": True, **options})
    runner = trainer(FOLDER, guided, max_epochs=2, **OPTIONS)
    seen = []

    class Failing(Objective):
        def losses(self, *arguments: Any, **options: Any) -> Any:
            seen.append(arguments)
            if runner.global_rank == fails and len(seen) == 2:
                raise RuntimeError("only here")
            return super().losses(*arguments, **options)

    guided.guidance.state.objective = Failing(**vars(guided.guidance.state.objective))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runner.fit(pl_module, loader(columns, 12 // DEVICES))
    scalars = {key: value.item() for key, value in runner.callback_metrics.items()}
    told = [str(each.message) for each in caught if "only here" in str(each.message)]
    result = {
        "scalars": scalars,
        "factor": guided.guidance.state.strength.factor,
        "told": told,
        "counts": [guided.failures, guided.skipped],
    }
    (FOLDER / f"{name}-{runner.global_rank}.json").write_text(json.dumps(result))
    torch.save(pl_module.state_dict(), FOLDER / f"{name}-{runner.global_rank}.pt")


ODD = tuple(range(1, 24, 2))  # those of the second of two processes
run("all")
run("some", rows=(0, 1, 3, 5, 7, 8, 20, 21))
run("one side", rows=ODD)
run("default", rows=(1, 3, 4, 13, 14, 15), weight=None)
run("consistency", loss="consistency+energy", rows=ODD)
if DEVICES > 1:
    run("failing", fails=1, on_error="warn")
