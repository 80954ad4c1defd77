import io
import logging
import sys

import pytest
from examples import NOT_SURE, OPEN, finding

from lrptrain.findings.sentences import sentences
from lrptrain.trainers.emphasis import emphasised, for_logger, for_stream, shows_colour, spoken_by

SAID = "SHORTCUT: the model relies on it.\n  See: lrptrain dashboard x"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def speaker():
    logger = logging.getLogger("tests.emphasis")
    logger.propagate = False
    yield logger
    logger.handlers.clear()


def coloured(color, text):
    return f"\x1b[{color}m{text}\x1b[0m"


@pytest.mark.parametrize(("text", "expected"), [
    (SAID, f"{coloured('1;31', 'SHORTCUT')}: the model relies on it.\n{coloured('1', '  See')}: lrptrain dashboard x"),
    ("NEEDS REVIEW: it.\n  Fix: b", f"{coloured('1', 'NEEDS REVIEW')}: it.\n{coloured('1', '  Fix')}: b"),
    ("Not sure whether", f"{coloured('1;33', 'Not sure')} whether"),
    ("not sure: too few", f"{coloured('1;33', 'not sure')}: too few"),
    ("0 shortcuts, not sure of 2.", f"0 shortcuts, {coloured('1;33', 'not sure of 2')}."),
    ("Monitor ends: no verdict on a", f"Monitor ends: {coloured('1;33', 'no verdict')} on a"),
    ("Monitor ends: 0 shortcuts. In a", f"Monitor ends: {coloured('1;32', '0 shortcuts')}. In a"),
    ("Monitor: COLLAPSED: one", f"Monitor: {coloured('1;31', 'COLLAPSED')}: one"),
    ("0 shortcuts; 1 needs review: a. Are you not sure? SHORTCUTS", None),
])  # fmt: skip
def test_only_verdicts_are_coloured(text, expected):
    assert emphasised(text) == (text if expected is None else expected)


def test_the_verdicts_are_those_that_findings_say():
    for one, colour in ((finding(), "1;31"), (OPEN, "1"), (NOT_SURE, "1;33")):
        assert emphasised(sentences(one).verdict).startswith(f"\x1b[{colour}m")


def test_verdicts_are_coloured_on_a_terminal_alone(monkeypatch):
    assert for_stream(SAID, Terminal()) == emphasised(SAID)
    assert for_stream(SAID, io.StringIO()) == SAID  # a pipe, a notebook
    monkeypatch.setenv("TERM", "dumb")
    assert for_stream(SAID, Terminal()) == SAID


def test_the_user_decides_about_colour(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert shows_colour(sys.stderr)
    assert not shows_colour(io.StringIO())  # a file
    monkeypatch.setenv("NO_COLOR", "1")
    assert not shows_colour(sys.stderr)
    assert not shows_colour(Terminal())
    monkeypatch.setenv("NO_COLOR", "")  # counts as not set
    assert shows_colour(Terminal())


def test_a_log_that_also_goes_to_a_file_stays_plain(speaker):
    speaker.handlers.clear()  # of what pytest has added, which is no terminal
    assert for_logger(SAID, speaker) == SAID
    speaker.addHandler(logging.StreamHandler(Terminal()))
    assert for_logger(SAID, speaker) == emphasised(SAID)
    long = "a word " * 20
    assert max(map(len, for_logger(long, speaker).splitlines())) <= 80
    speaker.addHandler(logging.StreamHandler(io.StringIO()))
    assert for_logger(SAID, speaker) == SAID
    assert for_logger(long, speaker) == long


def test_what_is_said_is_led_around_bars(speaker, monkeypatch):
    screen = Terminal()
    handler = logging.StreamHandler(screen)
    speaker.addHandler(handler)
    with spoken_by(speaker):
        speaker.warning("said")
    assert screen.getvalue() == "\r\x1b[Jsaid\n"  # what bars of tqdm have left is wiped, also below

    class Proxy(io.StringIO):
        rich_proxied_file = screen

    proxy = Proxy()
    monkeypatch.setattr(sys, "stderr", proxy)
    with spoken_by(speaker):
        speaker.warning("again")
    assert proxy.getvalue() == "again\n"
    assert handler.stream is screen


def test_a_log_whose_file_is_opened_by_its_first_line_has_that_line(speaker, tmp_path):
    handler = logging.FileHandler(tmp_path / "run.log", delay=True)
    speaker.addHandler(handler)
    with spoken_by(speaker):
        speaker.warning("said")
    handler.close()
    assert (tmp_path / "run.log").read_text() == "said\n"
