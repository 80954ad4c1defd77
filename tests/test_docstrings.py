"""The examples in docstrings run, and print what they show."""

import doctest

import pytest

import lrptrain

EXAMPLES = ["attribute", "record", "inspect", "audit"]
"""What a newcomer calls first has one."""


@pytest.mark.parametrize(
    "name", [name for name in lrptrain.__all__ if ">>>" in (getattr(lrptrain, name).__doc__ or "")]
)
def test_an_example_prints_what_it_shows(name: str):
    value = getattr(lrptrain, name)
    (found,) = doctest.DocTestFinder(recurse=False).find(value, name, globs={})
    runner = doctest.DocTestRunner()
    runner.run(found)
    assert runner.summarize(verbose=False).failed == 0


def test_what_is_called_first_has_an_example():
    assert [name for name in EXAMPLES if ">>>" not in getattr(lrptrain, name).__doc__] == []
