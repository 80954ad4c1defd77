"""Run as a script by test_audit_processes.py: `python audit_ddp_script.py FOLDER DEVICES`, in one process or in two."""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from setting import data, loader, module, trainer, vit

from lrptrain.auditing import AuditSettings
from lrptrain.callbacks import ExplanationAudit

FOLDER, DEVICES = Path(sys.argv[1]), int(sys.argv[2])


def run(name: str, fails: bool) -> None:
    """One epoch with a learning rate of 0, so that the model is the same in any number of processes."""
    torch.manual_seed(0)
    net = vit().double()
    for parameter in net.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    columns = data(23)
    columns["image"] = columns["image"].double()
    pl_module = module(net=net)
    pl_module.configure_optimizers = lambda: torch.optim.SGD(pl_module.parameters(), lr=0.0)
    settings = AuditSettings(tests=["perturbation", "leave_one_out", "randomisation"], stages=1)
    given: dict[str, Any] = {"max_samples": 15, "run_name": name, "settings": settings}
    auditing = ExplanationAudit(["raw_attention", "random"], 600.0, **given)
    if fails:
        auditing._batches = lambda *arguments: 1 / 0  # type: ignore[assignment]
    options: dict[str, Any] = {"max_epochs": 1, "devices": DEVICES, "strategy": "ddp" if DEVICES > 1 else "auto"}
    runner = trainer(FOLDER, auditing, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runner.fit(pl_module, loader(columns, batch_size=24 // DEVICES), loader(columns))
    told = [str(each.message) for each in caught if "ExplanationAudit" in str(each.message)]
    result = auditing.result
    judged = [] if result is None else [str(verdict) for verdict in result.verdicts]
    samples = 0 if result is None else result.about["samples"]
    answer = {"verdicts": judged, "samples": samples, "told": told, "steps": runner.global_step}
    (FOLDER / f"{name}-{runner.global_rank}.json").write_text(json.dumps(answer))


run("audited", fails=False)
if DEVICES > 1:
    run("failing", fails=True)
