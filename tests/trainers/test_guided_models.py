"""What guides a model."""

from torch import nn

from lrptrain.trainers.guided_models import guided_by, note_guided


def test_what_guides_a_part_guides_the_whole():
    part = nn.Linear(2, 2)
    whole = nn.Sequential(nn.Linear(2, 2), part)
    assert guided_by(whole) == ()
    note_guided(part, ["swap", "energy"])
    assert guided_by(whole) == guided_by(part) == ("swap", "energy")
    assert guided_by(whole[0]) == ()
