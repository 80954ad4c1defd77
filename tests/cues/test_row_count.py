"""The number of rows."""

import torch

from lrptrain.batch.call import ROWS
from lrptrain.cues.row_count import RowCount


def lengths(*counts: int, width: int) -> torch.Tensor:
    return torch.arange(width) < torch.tensor(counts)[:, None]


def test_a_sample_gets_as_many_rows_as_its_source_of_its_own():
    own = {"image": torch.tensor([[1.0, 2, 3, 4], [5, 6, 0, 0]])[..., None], ROWS: lengths(4, 2, width=4)}
    given = {"image": torch.zeros(2, 4, 1), ROWS: lengths(2, 4, width=4)}
    changed = RowCount().exchange(own, given)
    assert changed[ROWS].tolist() == given[ROWS].tolist()
    assert changed["image"][..., 0].tolist() == [[1, 3, 0, 0], [5, 5, 6, 6]]


def test_masks_of_the_model_say_how_many_there_are():
    for name, is_padding in (("argument:attention_mask", False), ("argument:padding_mask", True)):
        own, given = (
            {
                "image": torch.ones(1, 4, 1),
                name: lengths(count, width=4) != is_padding,
                "rationale": torch.ones(1, 4, dtype=torch.long),
            }
            for count in (4, 3)
        )
        changed = RowCount().exchange(own, given)
        assert torch.equal(changed[name], given[name])
        assert ROWS not in changed
        assert changed["rationale"].tolist() == [[1, 1, 1, 255]]


def test_of_the_same_number_nothing_changes():
    own = {"image": torch.rand(2, 4, 3)}
    changed = RowCount().exchange(own, {"image": torch.rand(2, 4, 3)})
    assert torch.equal(changed["image"], own["image"])
    assert changed.keys() == own.keys()
