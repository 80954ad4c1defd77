"""All outside of the evidence is a source's, of which nothing of its own evidence is given."""

import pytest
import torch

from lrptrain.cues.images import without_evidence
from lrptrain.cues.surroundings import Surroundings

OBJECT, EDGE, GROUND = 5.0, 4.0, 1.0


@pytest.fixture
def trimap() -> dict[str, torch.Tensor]:
    """An object whose edge is ignored, as in the trimaps of pets and of Pascal VOC."""
    mask = torch.zeros(1, 24, 24, dtype=torch.uint8)
    mask[:, 4:16, 6:18] = 255
    mask[:, 7:13, 9:15] = 1
    image = torch.full((1, 3, 24, 24), GROUND)
    image[(mask == 255)[:, None].expand_as(image)] = EDGE
    image[(mask == 1)[:, None].expand_as(image)] = OBJECT
    return {"image": image, "mask": mask}


def test_a_source_gives_nothing_of_the_ignored_edge_of_its_object(trimap: dict[str, torch.Tensor]) -> None:
    torch.testing.assert_close(without_evidence(trimap), torch.full((1, 3, 24, 24), GROUND))
    taker = {"image": torch.zeros(1, 3, 24, 24), "mask": torch.zeros(1, 24, 24, dtype=torch.uint8)}
    taker["mask"][:, 20:, 20:] = 1
    given = Surroundings().exchange(taker, trimap)["image"]
    outside = taker["mask"][:, None].expand_as(given) == 0
    torch.testing.assert_close(given[outside], torch.full_like(given[outside], GROUND))
    assert not given[~outside].any()


def test_where_all_but_the_evidence_is_ignored_the_evidence_alone_is_hidden(trimap: dict[str, torch.Tensor]) -> None:
    everywhere = {**trimap, "mask": torch.where(trimap["mask"] == 0, 255, trimap["mask"])}
    hidden = without_evidence(everywhere)
    assert (hidden != OBJECT).all()
    torch.testing.assert_close(hidden[0, :, 0, 0], torch.full((3,), GROUND))
