"""Means over processes."""

import pytest
import torch

from lrptrain.guidance.objective import Term
from lrptrain.guidance.shared import share

NAMES = ["energy", "l1"]


def term(total, count):
    return Term(torch.tensor(float(total), requires_grad=True), torch.tensor(count))


def everyone(processes):
    """What `share` tells each of several processes that run side by side."""

    def told(terms, add_up):
        return share(terms, NAMES, {"samples": len(terms)}, torch.zeros(()), len(processes), add_up)

    rows: list[torch.Tensor] = []

    def listening(row):
        rows.append(row)
        return row

    for terms in processes:
        told(terms, listening)
    return [told(terms, lambda row: torch.stack(rows).sum(0)) for terms in processes]


def test_one_process():
    ((mine, means, counts),) = everyone([{"energy": term(6, 3)}])
    assert {name: x.item() for name, x in mine.items()} == means == {"energy": 2}
    assert counts == {"samples": 1, "skipped": 0}


def test_the_mean_of_what_processes_add_is_the_mean_over_all_samples():
    told = everyone([{"energy": term(6, 3), "l1": term(1, 1)}, {"energy": term(10, 1)}, {}])
    for _, means, counts in told:
        assert means == pytest.approx({"energy": 16 / 4, "l1": 1})
        assert counts == {"samples": 3, "skipped": 0}
    added = [mine.get("energy", torch.zeros(())).item() for mine, _, _ in told]
    assert sum(added) / 3 == pytest.approx(4)
    told[0][0]["energy"].backward()


@pytest.mark.parametrize("total", [float("nan"), float("inf")])
def test_what_is_not_finite_is_left_out(total):
    told = everyone([{"energy": term(total, 3), "l1": term(2, 2)}, {"energy": term(4, 1)}])
    for _, means, counts in told:
        assert means == pytest.approx({"energy": 4, "l1": 1})
        assert counts["skipped"] == 1
    assert told[0][0].keys() == {"l1"}


def test_half_precision_counts_exactly():
    terms = {"energy": term(2049, 2049)}
    mine, means, _ = share(terms, NAMES, {}, torch.zeros((), dtype=torch.bfloat16), 1, lambda row: row)
    assert means == {"energy": 1}
    assert mine["energy"].item() == 1
