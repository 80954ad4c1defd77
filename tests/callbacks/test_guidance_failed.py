"""A guided model that still reads the surroundings of its masks is told to, at the end of the run."""

import logging

import torch
import torch.nn.functional as F
from guided_loops import batches
from setting import vit

import lrptrain


def tinted(samples=64):
    """Noise; what lies outside the annotated middle is as bright as the class says."""
    generator = torch.Generator().manual_seed(0)
    label = torch.arange(samples) % 3
    mask = torch.zeros(samples, 16, 16, dtype=torch.uint8)
    mask[:, 4:12, 4:12] = 1
    image = torch.randn(samples, 3, 16, 16, generator=generator)
    image += 2.0 * (label - 1)[:, None, None, None] * (mask == 0)[:, None]
    return {"image": image, "label": label, "mask": mask}


def said_at_the_end(folder, caplog, loss):
    net = vit()
    columns = tinted()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    guidance = None if loss is None else lrptrain.Guidance(loss, weight=1e-6, optimizer=optimizer)
    for _ in range(6):
        for batch in batches(columns, 16):
            if guidance is None:
                F.cross_entropy(net(batch["image"]), batch["label"]).backward()
            else:
                with guidance.step(net, batch) as step:
                    step.guided(F.cross_entropy(net(batch["image"]), batch["label"])).backward()
            optimizer.step()
            optimizer.zero_grad()
    monitor = lrptrain.Monitor(
        net, list(batches(columns, 16)), folder, budget=None, run=lrptrain.Run(progress_bar=False)
    )
    with caplog.at_level(logging.INFO):
        monitor.evaluate(0, 0)
        monitor.close()
    return " ".join(
        next(record.getMessage() for record in reversed(caplog.records) if "ends:" in record.getMessage()).split()
    )


def test_what_consistency_has_left_is_told(tmp_path, caplog):
    end = said_at_the_end(tmp_path, caplog, "consistency")
    assert "SHORTCUT: the model relies on" in end
    assert 'The guidance (consistency) has not removed it: try "swap"' in end
