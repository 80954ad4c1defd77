"""Who knows why a model does not learn."""

from collections.abc import Sequence

from torch import nn

from lrptrain.trainers.held_back import guiding, held_back, note_teller


class Tells:
    def __init__(self, text):
        self.text = text
        self.losses: Sequence[str] = ["energy"]


def test_a_part_speaks_for_the_whole_while_its_teller_lives():
    part = nn.Linear(2, 2)
    whole = nn.Sequential(nn.Linear(2, 2), part)
    assert held_back(whole) == ""
    teller = Tells("it is stuck")
    note_teller(part, teller)
    assert held_back(whole) == held_back(part) == "it is stuck"
    assert held_back(whole[0]) == ""
    assert guiding(whole) == ["energy"]
    assert guiding(whole[0]) == ()
    teller.text = ""
    assert held_back(whole) == ""
    teller.text = "again"
    assert held_back(whole) == "again"
    del teller
    assert held_back(whole) == ""
