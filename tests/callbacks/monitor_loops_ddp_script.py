"""Run as a script by test_monitor_loops_processes.py: `python monitor_loops_ddp_script.py FOLDER PROCESSES`."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from grouped_options import grouped
from hugging_face import quiet_arguments

sys.path.insert(0, str(Path(__file__).parent.parent / "trainers" / "behaviours"))
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, StackDataset
from trained import OPTIONS, Texts, bert, collate, unannotated
from transformers import Trainer

import lrptrain
from lrptrain.callbacks import RelevanceMonitorCallback

FOLDER, PROCESSES = Path(sys.argv[1]), int(sys.argv[2])
RANK = int(os.environ.get("LOCAL_RANK", 0))
GIVEN = {**OPTIONS, "max_samples": 9, "on_error": "raise"}
if PROCESSES > 1:
    os.environ.update(RANK=str(RANK), WORLD_SIZE=str(PROCESSES))
    dist.init_process_group("gloo")


def write(name: str, monitor: Any) -> None:
    result = {
        "scalars": {
            key: x for key, x in monitor.core.recorder.scalars.items() if "seconds" not in key and "cost" not in key
        },
        "findings": [finding.to_dict() for finding in monitor.findings],
        "ids": [each.sample.sample_id for each in monitor.scored],
        "failures": monitor.failures,
        "mine": len(monitor.core.reader.sample.samples),
        "folder": monitor.folder is not None,
    }
    (FOLDER / f"{name}-{RANK}.json").write_text(json.dumps(result))


def loop() -> None:
    """No step is taken in between, so that the weights are the same to the bit."""
    net = bert().double()
    model: Any = DistributedDataParallel(net) if PROCESSES > 1 else net
    dataset = Texts(11, 1)  # odd: a distributed sampler gives one sample twice
    sampler: Any = DistributedSampler(dataset, PROCESSES, RANK, shuffle=True) if PROCESSES > 1 else None
    monitor = lrptrain.Monitor(
        model, DataLoader(dataset, 3, sampler=sampler, collate_fn=collate), FOLDER, **grouped(GIVEN)
    )
    for epoch in range(2):
        monitor.evaluate(epoch)
    model(**collate(dataset.rows[:4], annotated=False)).loss.backward()  # DDP still works
    write("loop", monitor)


class Labels(torch.nn.Module):
    """Each of two labels by a quarter of the image."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.stack([12 * image[:, :, :4, :4].mean((1, 2, 3)), 12 * image[:, :, 4:, 4:].mean((1, 2, 3))], 1) - 6


def labels() -> None:
    label = torch.randint(0, 2, (24, 2), generator=torch.Generator().manual_seed(0))
    image = torch.zeros(24, 3, 8, 8, dtype=torch.float64)
    image[:, :, :4, :4], image[:, :, 4:, 4:] = (label[:, each, None, None, None] for each in range(2))
    columns: Any = {"image": image, "label": label}
    dataset: Any = StackDataset(**columns)
    sampler: Any = DistributedSampler(dataset, PROCESSES, RANK, shuffle=True) if PROCESSES > 1 else None
    given = grouped({**GIVEN, "max_samples": 24, "run_name": "labels", "method": "input_x_gradient"})
    batches = DataLoader(dataset, 3, sampler=sampler)
    monitor = lrptrain.Monitor(Labels(), batches, FOLDER, task=lrptrain.EachLabel(), **given)
    monitor.evaluate(0)
    write("labels", monitor)


def transformers() -> None:
    monitor = RelevanceMonitorCallback(**grouped({**GIVEN, "run_name": "trainer"}))
    arguments = quiet_arguments(
        FOLDER / "trainer",
        num_train_epochs=1,
        per_device_train_batch_size=6 // PROCESSES,
        per_device_eval_batch_size=3,
        learning_rate=0.0,
        eval_strategy="epoch",
    )
    data = {"train_dataset": Texts(12, 0), "eval_dataset": Texts(11, 1), "data_collator": unannotated}
    Trainer(bert().double(), arguments, callbacks=[monitor], **data).train()
    write("transformers", monitor)


loop()
labels()
torch.manual_seed(0)
transformers()
if PROCESSES > 1:
    try:
        samples = DataLoader(Texts(8, 1, wrong=1), 2, collate_fn=collate)  # the second process reads it first
        lrptrain.Monitor(bert(), samples, FOLDER, **grouped(GIVEN))
    except (ValueError, RuntimeError) as error:
        (FOLDER / f"wrong-{RANK}.json").write_text(json.dumps(str(error)))
