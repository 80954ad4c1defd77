"""A function in the place of a method, for a time."""

import inspect

from lrptrain.trainers.wrapping import wrap_method


class Owner:
    def method(self, one, *, two=2):
        """Of one and two."""
        return one, two


def doubled(own, args, kwargs):
    return own(*args, **kwargs) * 2


def test_calls_go_through_it_until_it_is_undone():
    owner, signature = Owner(), inspect.signature(Owner().method)
    undo = wrap_method(owner, "method", doubled)
    assert owner.method(1, two=3) == (1, 3, 1, 3)
    assert inspect.signature(owner.method) == signature
    assert owner.method.__doc__ == "Of one and two."
    assert Owner().method(1) == (1, 2)
    undo()
    assert owner.method(1) == (1, 2)
    assert not vars(owner)
    undo()


def test_an_own_attribute_comes_back():
    owner = Owner()
    vars(owner)["method"] = own = lambda one: (one,)
    undo = wrap_method(owner, "method", doubled)
    assert owner.method(4) == (4, 4)
    undo()
    assert vars(owner) == {"method": own}
