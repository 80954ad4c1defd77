"""Run as a script by test_group_dro.py: `python group_dro_ddp_script.py FOLDER DEVICES`."""

import json
import os
import sys
from pathlib import Path

import torch
from guided import sgd_module
from setting import data, loader, trainer

from lrptrain.callbacks import GroupDRO

FOLDER, DEVICES = Path(sys.argv[1]), int(sys.argv[2])
RANK = int(os.environ.get("LOCAL_RANK", 0))

columns = data(12)
columns["image"] = columns["image"].double()
columns["group"] = torch.tensor([0, 1] * 3 + [2, 0, 0, 0, 1, 2])  # in the first batch each of two processes has one
module = sgd_module()
callback = GroupDRO(4, step_size=0.5)
runner = trainer(
    FOLDER,
    callback,
    max_epochs=1,
    devices=DEVICES,
    strategy="ddp" if DEVICES > 1 else "auto",
    use_distributed_sampler=False,
)
runner.fit(module, loader({name: x[RANK::DEVICES] for name, x in columns.items()}, 6 // DEVICES))
torch.save(module.state_dict(), FOLDER / f"state-{RANK}.pt")
(FOLDER / f"shares-{RANK}.json").write_text(json.dumps(callback.shares))
