"""Means over processes."""

import pytest
import torch

from lrptrain.guidance.losses import LossSum
from lrptrain.guidance.reduction import reduce_losses

NAMES = ["energy", "l1"]


def loss(total, count):
    return LossSum(torch.tensor(float(total), requires_grad=True), torch.tensor(count))


def reduced_everywhere(processes):
    """What `reduce_losses` returns in each of several processes that run side by side."""

    def reduced(losses, sum_over_processes):
        return reduce_losses(
            losses, NAMES, {"samples": len(losses)}, torch.zeros(()), len(processes), sum_over_processes
        )

    rows: list[torch.Tensor] = []

    def listening(row):
        rows.append(row)
        return row

    for losses in processes:
        reduced(losses, listening)
    return [reduced(losses, lambda row: torch.stack(rows).sum(0)) for losses in processes]


def test_one_process():
    (reduced,) = reduced_everywhere([{"energy": loss(6, 3)}])
    assert {name: x.item() for name, x in reduced.local.items()} == reduced.means == {"energy": 2}
    assert reduced.counts == {"samples": 1, "skipped": 0}


def test_the_mean_of_what_processes_add_is_the_mean_over_all_samples():
    everywhere = reduced_everywhere([{"energy": loss(6, 3), "l1": loss(1, 1)}, {"energy": loss(10, 1)}, {}])
    for reduced in everywhere:
        assert reduced.means == pytest.approx({"energy": 16 / 4, "l1": 1})
        assert reduced.counts == {"samples": 3, "skipped": 0}
    added = [reduced.local.get("energy", torch.zeros(())).item() for reduced in everywhere]
    assert sum(added) / 3 == pytest.approx(4)
    everywhere[0].local["energy"].backward()


@pytest.mark.parametrize("total", [float("nan"), float("inf")])
def test_what_is_not_finite_is_left_out(total):
    everywhere = reduced_everywhere([{"energy": loss(total, 3), "l1": loss(2, 2)}, {"energy": loss(4, 1)}])
    for reduced in everywhere:
        assert reduced.means == pytest.approx({"energy": 4, "l1": 1})
        assert reduced.counts["skipped"] == 1
    assert everywhere[0].local.keys() == {"l1"}


def test_half_precision_counts_exactly():
    task_loss = torch.zeros((), dtype=torch.bfloat16)
    reduced = reduce_losses({"energy": loss(2049, 2049)}, NAMES, {}, task_loss, 1, lambda row: row)
    assert reduced.means == {"energy": 1}
    assert reduced.local["energy"].item() == 1
