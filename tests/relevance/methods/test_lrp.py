"""How the relevance that a walk yields is sorted; maps are tested in `test_switch.py` and `golden`."""

from collections.abc import Iterator

import torch
from torch import Tensor

from lrptrain.relevance.methods.lrp import Arrivals
from lrptrain.relevance.tape.nodes import Value


def test_arrivals_are_sorted_and_no_further_walked_than_is_asked_for():
    last, middle, first = (Value(torch.zeros(()), depends=True) for _ in range(3))
    taken: list[int] = []

    def walk() -> Iterator[tuple[Value, slice, Tensor]]:
        for number, value in enumerate([last, last, middle, middle, first]):
            taken.append(number)
            yield value, slice(number, number + 1), torch.tensor(float(number))

    arrivals = Arrivals(walk())

    def of(value: Value) -> list[tuple[int, float]]:
        return [(rows.start, part.item()) for rows, part in arrivals.of(value)]

    assert of(last) == [(0, 0.0), (1, 1.0)]
    assert taken == [0, 1, 2]  # the first part of what comes next says that this is all
    assert of(middle) == [(2, 2.0), (3, 3.0)]
    assert taken == [0, 1, 2, 3, 4]
    assert of(first) == [(4, 4.0)]
    assert of(first) == []
