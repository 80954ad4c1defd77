"""Who knows why a model does not learn."""

from torch import nn

from lrptrain.trainers.held_back import note_teller, tellers


class Tells:
    pass


def test_a_part_speaks_for_the_whole_while_its_teller_lives():
    part = nn.Linear(2, 2)
    whole = nn.Sequential(nn.Linear(2, 2), part)
    assert tellers(whole) == []
    teller = Tells()
    note_teller(part, teller)
    assert tellers(whole) == tellers(part) == [teller]
    assert tellers(whole[0]) == []
    del teller
    assert tellers(whole) == []
