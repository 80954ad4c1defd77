import io
import sys
import warnings
from typing import Any

import pytest

from lrptrain.terminal import WIDTH, WrappedWarning, fitted, is_terminal
from lrptrain.trainers.progress import shows_progress

LONG = "RelevanceMonitor: the model's accuracy exceeds its mean confidence, so that probabilities are sharpened to it"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_message_is_broken_between_words_and_nowhere_else():
    lines = fitted(LONG).splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= WIDTH
    assert " ".join(line.strip() for line in lines) == LONG
    path = f"see {'x' * 90}/report-of-a-run.html"
    assert fitted(path).split() == path.split()  # a path can be copied as a whole
    assert fitted(f"{LONG}\n  See: {path}") == f"{LONG}\n  See: {path}"  # a layout of its own


def test_a_number_and_its_percent_sign_stay_on_one_line():
    for length in range(60, 80):
        lines = fitted(f"{'x' * length} accuracy 100 %, guessing 33 %").splitlines()
        assert not any(line.strip().startswith("%") for line in lines)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_warning_is_broken_where_it_is_shown_and_filtered_as_one_line(monkeypatch, terminal):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        warnings.warn(LONG, WrappedWarning, stacklevel=1)
    assert str(given[0].message) == LONG
    shown = warnings.formatwarning(given[0].message, WrappedWarning, "train.py", 12, line="")
    assert (max(map(len, shown.splitlines())) <= WIDTH) is terminal
    assert shown.split() == f"train.py:12: WrappedWarning: {LONG}".split()


class Tee:
    """What many put in the place of a stream, to write to a file, too."""

    def write(self, text):
        return len(text)

    def flush(self):
        pass


def test_a_stream_that_cannot_say_what_it_is_is_no_terminal(monkeypatch):
    closed = Terminal()
    closed.close()
    streams: list[Any] = [Tee(), None, closed]
    for stream in streams:
        assert not is_terminal(stream)
        monkeypatch.setattr(sys, "stderr", stream)
        assert f"{WrappedWarning(LONG)}" == LONG
        assert not shows_progress()
