"""Numbers of entries; what becomes of them in models is tested in `test_inputs.py`."""

import pytest
import torch

from lrptrain.relevance.tape.nodes import Value
from lrptrain.relevance.tokens import cells
from lrptrain.relevance.tokens.geometry import entry_numbers


@pytest.mark.parametrize(("entries", "precision"), [(2**24, torch.float32), (2**24 + 2, torch.float64)])
def test_no_two_entries_have_one_number(entries, precision):
    """Behind 2^24, float32 has the even numbers only."""
    root = Value(torch.zeros(1).expand(entries), depends=True)
    numbers = entry_numbers({root: None}, root)
    assert numbers.dtype == precision
    assert numbers[[0, -2, -1]].tolist() == [1, entries - 1, entries]


def test_samples_that_are_copies_of_one_are_multiplied_once():
    shares = torch.rand(4, 5, dtype=torch.float64)
    part = torch.rand(1, 3, 4, dtype=torch.float64).expand(6, -1, -1)
    product = cells._product(part, shares)
    torch.testing.assert_close(product, part.contiguous() @ shares, rtol=1e-14, atol=0)
    assert product.stride(0) == 0
