"""What is said reaches a terminal around its bars, and a file as one line."""

import io
import logging
import sys

import pytest
from tqdm import tqdm

from lrptrain.trainers.messages import for_logger, spoken_by


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def speaker(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    logger = logging.getLogger("tests.messages")
    logger.propagate = False
    yield logger
    logger.handlers.clear()


def test_a_log_that_also_goes_to_a_file_is_not_broken_into_lines(speaker):
    speaker.handlers.clear()  # of what pytest has added, which is no terminal
    long = "a word " * 20
    assert for_logger(long, speaker) == long
    speaker.addHandler(logging.StreamHandler(Terminal()))
    assert max(map(len, for_logger(long, speaker).splitlines())) <= 80
    speaker.addHandler(logging.StreamHandler(io.StringIO()))
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


def test_what_is_said_in_a_file_begins_on_a_line_of_its_own(speaker):
    file, other = io.StringIO(), io.StringIO()
    for stream in (file, other):
        speaker.addHandler(logging.StreamHandler(stream))
    with tqdm(total=2, file=file, disable=False), spoken_by(speaker):
        speaker.warning("said")
    assert "said" in file.getvalue().splitlines()
    with spoken_by(speaker):
        speaker.warning("again")
    assert other.getvalue() == "said\nagain\n"
    assert not file.getvalue().endswith("\n\nagain\n")


def test_a_log_whose_file_is_opened_by_its_first_line_has_that_line(speaker, tmp_path):
    handler = logging.FileHandler(tmp_path / "run.log", delay=True)
    speaker.addHandler(handler)
    with spoken_by(speaker):
        speaker.warning("said")
    handler.close()
    assert (tmp_path / "run.log").read_text() == "said\n"
