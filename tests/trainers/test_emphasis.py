import io
import logging
import sys

import pytest

from lrptrain.trainers.emphasis import emphasised, for_logger, for_stream, shows_colour, spoken_by

SAID = "SHORTCUT confirmed, all classes: the model reads\n  See: lrptrain dashboard x"


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


def test_verdicts_are_coloured_on_a_terminal_alone(monkeypatch):
    assert emphasised(SAID) == (
        "\x1b[1;31mSHORTCUT confirmed\x1b[0m, all classes: the model reads\n\x1b[1m  See\x1b[0m: lrptrain dashboard x"
    )
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
