"""The script of the charts, which is made in a process of its own."""

import sys
import threading

from lrptrain.dashboard.page import _charts, _make_beside

make = _charts.__wrapped__  # each time anew, and without taking the script from the tests of the page


def test_where_there_is_no_interpreter_it_is_made_all_the_same(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert _make_beside() == ""
    assert "vegaEmbed" in make()


def test_python_goes_on_while_it_is_made():
    made = []
    making = threading.Thread(target=lambda: made.append(make()))
    making.start()
    steps = 0
    while making.is_alive():
        making.join(0.01)
        steps += 1
    assert "vegaEmbed" in made[0]
    assert "</script" not in made[0]
    # A library that held the lock of the interpreter would leave one step.
    assert steps > 5
