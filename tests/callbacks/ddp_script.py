"""Run as a script by test_processes.py: `python ddp_script.py FOLDER DEVICES`, in one process or in two."""

import json
import os
import sys
import warnings
from pathlib import Path

import torch
from examples import Everything
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from setting import balanced, data, loader, module, monitor, trainer

from lrptrain.cues.measure import Measure

FOLDER, DEVICES = Path(sys.argv[1]), int(sys.argv[2])
OPTIONS = {"devices": DEVICES, "strategy": "ddp" if DEVICES > 1 else "auto"}


class Scores(Callback):
    """Logs a score by which the first epoch is the best."""

    def on_validation_epoch_end(self, trainer, pl_module):
        pl_module.log("score", float(trainer.current_epoch), sync_dist=True)


def run(name: str, dtype: torch.dtype, fails: int | None = None, kept: tuple = ()) -> None:
    """Two epochs; in process `fails` the relevance of the second one cannot be computed."""
    columns = data(23)
    columns["image"] = columns["image"].to(dtype)
    train = {key: torch.cat([value, value[:1]]) for key, value in columns.items()}
    pl_module = module(net=balanced().to(dtype))
    pl_module.configure_optimizers = lambda: torch.optim.SGD(pl_module.parameters(), lr=1e-6)
    watching = monitor(
        max_samples=15,
        max_pictures=5,
        run_name=name,
        targets=["label", "predicted"],
        cues=[Everything()],
        min_effect=1e-6,
    )
    runner = trainer(FOLDER, watching, *kept, logger=False, enable_checkpointing=bool(kept), **OPTIONS)
    evaluator = watching.core.explainer.evaluator

    def evaluator_or_error(*arguments):
        if runner.global_rank == fails and runner.current_epoch == 1:
            raise RuntimeError("only here")
        return evaluator(*arguments)

    watching.core.explainer.evaluator = evaluator_or_error
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", r"It is recommended to use `self.log\('relevance/")
        runner.fit(pl_module, loader(train, batch_size=24 // DEVICES), loader(columns))
    told = [str(each.message) for each in caught if "elevance" in str(each.message)]
    scalars = {key: value.item() for key, value in runner.callback_metrics.items()}
    result = {
        "scalars": scalars,
        "failures": watching.failures,
        "told": told,
        "mine": len(watching.core.reader.sample.samples),
    }
    (FOLDER / f"{name}-{runner.global_rank}.json").write_text(json.dumps(result))


def failing_effects(*arguments):
    raise RuntimeError("only here")


run("float64", torch.float64)
run("kept", torch.float64, kept=(Scores(), ModelCheckpoint(FOLDER / "checkpoints", monitor="score")))
run("float32", torch.float32)
if DEVICES > 1:
    run("failing", torch.float64, fails=1)
    if os.environ.get("LOCAL_RANK") == "1":  # the process that Lightning starts
        Measure._measured = failing_effects  # type: ignore[method-assign]
    run("unproved", torch.float64)
