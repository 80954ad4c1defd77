"""What a monitor has found out about a model reaches whoever trains it."""

from torch import nn

from lrptrain.cues.followed import Known, follow_known, is_followed, note_known
from lrptrain.cues.places import places

BORDER, TOP = places("shortcut")[:2]


def test_what_is_noted_of_a_part_reaches_the_training_of_the_whole():
    one, other = nn.Linear(1, 1), nn.Linear(1, 1)
    whole = nn.Sequential(one, other, nn.ReLU())
    assert follow_known(whole) is None
    note_known(one, Known((TOP,), 1))
    note_known(one, Known((BORDER,), 2))
    note_known(other, Known((TOP,), 3, True))
    assert not is_followed(one)
    assert follow_known(whole) == Known((BORDER, TOP), 5, True)
    assert is_followed(one)
    assert is_followed(other)
    assert not is_followed(whole)
    assert follow_known(nn.Linear(1, 1)) is None
