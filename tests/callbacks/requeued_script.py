"""Run as a script by test_cluster.py: `python requeued_script.py PAGE STEP`, as one of two tasks of a job.

It runs the page's script; its second process gets the signal in that step.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

PAGE, STEP = Path(sys.argv[1]), int(sys.argv[2])


class Signals(pl.Callback):
    def on_train_batch_end(self, trainer: pl.Trainer, *arguments: Any) -> None:
        if trainer.global_rank == 1 and trainer.global_step == STEP:
            os.kill(os.getpid(), signal.SIGUSR1)


class Signalled(pl.Trainer):
    def __init__(self, *, callbacks: list[Any], **options: Any) -> None:
        super().__init__(callbacks=[Signals(), *callbacks], enable_progress_bar=False, **options)


pl.Trainer = Signalled  # type: ignore[assignment,misc]
Path(f"pid-{os.environ['SLURM_PROCID']}").write_text(str(os.getpid()))
block = next(each for each in PAGE.read_text().split("```python\n") if "class Requeue" in each).split("```")[0]
exec(compile(block, "<page>", "exec"), {"__name__": "__main__"})
print("fitted")
