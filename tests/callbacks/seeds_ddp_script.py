"""Run as a script by test_seeds_processes.py: `python seeds_ddp_script.py FOLDER DEVICES`, in one process or in two."""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from setting import data, loader, module, trainer, vit

import lrptrain
from lrptrain.callbacks import RelevanceMonitor, SegmentationSeeds
from lrptrain.segmentation import export_files
from lrptrain.segmentation.config import PseudoMaskConfig

FOLDER, DEVICES = Path(sys.argv[1]), int(sys.argv[2])
CONFIG = PseudoMaskConfig("generic_attention", scales=(1, 0.5), refine_options={"dilations": (1, 2)})


def run(name: str, fails: int | None = None, monitored: bool = False) -> None:
    """One epoch with a learning rate of 0, so that the model is the same in any number of processes.

    Beside a monitor the export goes into the monitor's folder, which only the first process knows.
    """
    columns, held_out, net = data(23), data(11), vit().double()
    for each in (columns, held_out):
        each["image"] = each["image"].double()
    pl_module = module(net=net)
    pl_module.configure_optimizers = lambda: torch.optim.SGD(pl_module.parameters(), lr=0.0)
    exporting = SegmentationSeeds(CONFIG, folder=None if monitored else str(FOLDER / name))
    monitors = (
        [RelevanceMonitor(max_samples=4, run=lrptrain.Run(run_name=name, progress_bar=False))] if monitored else []
    )
    options: dict[str, Any] = {"max_epochs": 1, "devices": DEVICES, "strategy": "ddp" if DEVICES > 1 else "auto"}
    runner, write = trainer(FOLDER, *monitors, exporting, **options), export_files.write_image_files
    written: list[str] = []

    def counted(folder: Path, given: Any, *rest: Any) -> Any:
        if runner.global_rank == fails and len(written) == 3:
            raise RuntimeError("only here")
        written.append(given.name)
        return write(folder, given, *rest)

    export_files.write_image_files = counted  # type: ignore[assignment]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runner.fit(pl_module, loader(columns, shuffle=True), loader(held_out))
    export_files.write_image_files = write
    told = [str(each.message) for each in caught if "SegmentationSeeds" in str(each.message)]
    answer = {"written": written, "scores": exporting.scores, "told": told, "steps": runner.global_step}
    (FOLDER / f"{name}-{runner.global_rank}.json").write_text(json.dumps(answer))


run("whole")
run("cut", fails=DEVICES - 1)
run("cut")
run("monitored", monitored=True)
