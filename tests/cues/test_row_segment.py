"""Rows by where they stand: all of them, thirds, the first and the last."""

import torch

from lrptrain.batch.call import ROWS
from lrptrain.cues.cue import Cue
from lrptrain.cues.row_segment import AllRows, RowSegment, one_row
from lrptrain.cues.rows import is_annotated, with_rows

OUTSIDE = AllRows("everything outside the annotation", "shortcut", "outside")


def rows(*values: float) -> torch.Tensor:
    return torch.tensor([[[value] for value in values]])


def places(cue: Cue, batch: dict) -> torch.Tensor:
    found = cue.locate(batch)
    assert found is not None
    return found


def taken(cue, own: dict, given: dict) -> list[float]:
    return cue.exchange(own, given)["image"].flatten().tolist()


def test_all_rows_come_from_the_same_share_of_the_way_through_the_source():
    cue = AllRows("the rows", "unreviewed")
    own = {"image": rows(1, 2, 3, 4), ROWS: torch.tensor([[True] * 4])}
    given = {"image": rows(10, 20, 0, 0), ROWS: torch.tensor([[True, True, False, False]])}
    assert taken(cue, own, given) == [10, 10, 20, 20]
    assert taken(cue, given, own) == [1, 3, 0, 0]  # padding stays


def test_what_people_marked_stays_and_is_not_given():
    own = {"image": rows(1, 2, 3), "rationale": torch.tensor([[0, 1, 0]])}
    given = {"image": rows(10, 20, 30), "rationale": torch.tensor([[1, 0, 255]])}
    assert taken(OUTSIDE, own, given) == [20, 2, 20]
    assert OUTSIDE.locate(own).tolist() == [[True, False, True]]


def test_a_bag_in_which_nothing_is_marked_lies_outside_as_a_whole():
    negative = {"image": rows(1, 2), "rationale": torch.tensor([[0, 0]])}
    unknown = {"image": rows(1, 2), "rationale": torch.tensor([[255, 255]])}
    assert is_annotated(negative).tolist() == [True]
    assert is_annotated(unknown).tolist() == [False]
    assert OUTSIDE.locate(negative).all()
    assert not OUTSIDE.locate(unknown).any()


def test_thirds_and_the_rows_at_both_ends():
    batch = {"image": rows(*range(7))}
    thirds = AllRows("the rows", "unreviewed").children()
    located = [places(each, batch) for each in thirds]
    assert [each.sum().item() for each in located] == [2, 2, 3]
    assert torch.stack(located).sum(0).tolist() == [[1] * 7]
    ends = [child for each in thirds for child in each.children()]
    assert ends == [one_row("first", "unreviewed"), one_row("last", "unreviewed")]
    assert [places(each, batch).nonzero()[:, 1].tolist() for each in ends] == [[0], [6]]
    assert taken(one_row("last", "unreviewed"), batch, {"image": rows(*range(10, 17))})[-2:] == [5, 16]


def test_of_one_row_there_are_no_more():
    batch = {"image": rows(1)}
    assert [RowSegment("", "unreviewed", "rows", third).locate(batch).sum().item() for third in range(3)] == [0, 0, 1]


def test_what_the_model_is_given_for_a_row_comes_along_but_for_masks_and_places():
    ones = torch.ones(1, 2)
    own = {"image": rows(1, 2), "argument:at": ones, "argument:mask": ones, "argument:ids": torch.tensor([[0, 1]])}
    given = {"image": rows(3, 4), "argument:at": 5 * ones, "argument:mask": 0 * ones, "argument:ids": ones.long()}
    changed = with_rows(own, given, torch.tensor([[-1, 0]]))
    assert changed["image"].flatten().tolist() == [1, 3]
    assert changed["argument:at"].tolist() == [[1, 5]]
    assert changed["argument:mask"].tolist() == [[1, 1]]
    assert changed["argument:ids"].tolist() == [[0, 1]]
