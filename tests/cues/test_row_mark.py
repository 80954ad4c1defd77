"""Kinds of rows: proposed by the map, found in others by what they look like, exchanged wherever they stand."""

import numpy as np
import pytest
import torch

from lrptrain.cues.row_mark import RowMark, propose_row_marks

WIDTH = 16
ROWS = 12
SAMPLES = 24


def planted(seed: int = 0) -> tuple[dict[str, torch.Tensor], list[torch.Tensor], np.ndarray, np.ndarray]:
    """Bags of noise, half of which have a row of a kind somewhere, which is what the maps point at."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(SAMPLES, ROWS, WIDTH, generator=generator)
    where = torch.randint(0, ROWS, (SAMPLES,), generator=generator)
    answers = np.arange(SAMPLES) % 2
    maps = torch.rand(SAMPLES, ROWS, generator=generator) * 0.1
    for sample in np.flatnonzero(answers):
        rows[sample, where[sample], :4] += 4
        maps[sample, where[sample]] = 1
    return {"image": rows}, list(maps), answers, where.numpy()


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
def test_the_kind_that_goes_with_the_answers_comes_first_and_is_found_in_new_samples(scale):
    batch, maps, answers, where = planted()
    scales = torch.ones(WIDTH)
    scales[4:8] = scale
    batch["image"] = batch["image"] * scales + 7
    marks = [mark for _, mark in propose_row_marks(batch, maps, range(SAMPLES), answers, "rows", 4)]
    others, _, others_answers, others_where = planted(1)
    found = marks[0].locate({"image": others["image"] * scales + 7})
    hits = [found[i, others_where[i]].item() for i in np.flatnonzero(others_answers)]
    assert np.mean(hits) >= 0.9
    assert found[others_answers == 0].float().mean() < 0.02
    sample = int(marks[0].name.rsplit(" ", 1)[1])
    assert marks[0].name == f"rows like row {where[sample]} of sample {sample}"
    assert answers[sample] == 1


def test_patches_of_a_grid_are_named_by_row_and_column():
    batch, maps, answers, where = planted()
    batch["argument:spatial_shapes"] = torch.tensor([[3, 4]]).expand(SAMPLES, 2)
    (_, mark), *_ = propose_row_marks(batch, maps, range(SAMPLES), answers, "rows", 1)
    sample = int(mark.name.rsplit(" ", 1)[1])
    line, column = divmod(int(where[sample]), 4)
    assert mark.name == f"patches like the one in row {line}, column {column} of sample {sample}"


def test_padding_and_what_is_not_meant_proposes_nothing():
    batch, maps, answers, _ = planted()
    batch["rationale"] = torch.ones(SAMPLES, ROWS, dtype=torch.long)
    assert not [*propose_row_marks(batch, maps, range(SAMPLES), answers, "outside", 4)]
    batch["argument:mask"] = (torch.arange(ROWS) == 0).float().expand(SAMPLES, ROWS)
    proposed = [mark for _, mark in propose_row_marks(batch, maps, range(SAMPLES), answers, "rows", 4)]
    assert all(mark.name.startswith("rows like row 0 ") for mark in proposed)


MARK = RowMark("rows like row 0 of sample 0", "unreviewed", "rows", (1.0, 0.0), 0.5)


def rows(*kinds: int) -> torch.Tensor:
    """Rows of the kind where it is 1; the second number tells them apart."""
    return torch.tensor([[[float(kind), float(i)] for i, kind in enumerate(kinds)]])


def test_a_sample_is_given_its_sources_rows_of_the_kind_and_loses_its_own():
    plain, marked = rows(0, 0, 0, 0), rows(0, 0, 1, 0) + torch.tensor([0.0, 10.0])
    assert MARK.locate({"image": marked}).tolist() == [[False, False, True, False]]
    given = MARK.exchange({"image": plain}, {"image": marked})["image"]
    assert given.tolist() == [[[0, 0], [0, 1], [1, 12], [0, 3]]]
    lost = MARK.exchange({"image": marked}, {"image": plain})["image"]
    assert lost[0, :, 0].tolist() == [0, 0, 0, 0]
    assert lost[0, 2, 1].item() == 2  # the source's row at the same place


def test_sources_of_another_length_give_every_row_of_the_kind():
    many = torch.cat([rows(1, 1, 1, 0, 0, 0)])
    few = torch.zeros(1, 6, 2)
    own = {"image": few, "argument:mask": torch.tensor([[1, 1, 1, 1, 0, 0]])}
    source = {"image": many, "argument:mask": torch.ones(1, 6)}
    given = MARK.exchange(own, source)["image"]
    assert given[0, :, 0].tolist()[4:] == [0, 0]
    assert given[0, :, 0].sum() == 3


def test_outside_of_the_annotation_marked_rows_stay():
    mark = RowMark(MARK.name, "shortcut", "outside", MARK.direction, MARK.bound)
    own = {"image": rows(1, 1), "rationale": torch.tensor([[1, 0]])}
    source = {"image": rows(0, 0), "rationale": torch.tensor([[0, 0]])}
    assert mark.exchange(own, source)["image"][0, :, 0].tolist() == [1, 0]
