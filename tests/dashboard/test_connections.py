"""Connections that ask for nothing are closed, and those that ask are answered meanwhile."""

import socket
import time
import urllib.request
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from browsing import served

from lrptrain.dashboard.connections import MOST, SECONDS, protocol


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.jsonl").write_text("", encoding="utf-8")
    return tmp_path


def opened(address, sent):
    parts = urlsplit(address)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=20)
    connection.sendall(sent)
    return connection


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


HALVES = (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")


@pytest.mark.parametrize("token", [None, "secret"])
def test_half_requests_do_not_stay(folder, token):
    with served(folder, token, protocol(seconds=0.5)) as address, ExitStack() as stack:
        half = [stack.enter_context(opened(address, HALVES[i % 3])) for i in range(30)]
        assert all(map(is_closed, half))
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(f"{address}?token=secret") as answer:
            assert answer.status == 200


def test_a_request_that_trickles_in_is_closed_too(folder):
    def trickle(slow):
        for _ in range(100):
            slow.sendall(b"X-A: b\r\n")
            time.sleep(0.05)

    with (
        served(folder, None, protocol(seconds=0.5)) as address,
        opened(address, b"GET / HTTP/1.1\r\n") as slow,
        pytest.raises(ConnectionError),
    ):
        trickle(slow)


def test_a_connection_that_goes_on_asking_stays_open(folder):
    asked = b"GET /page.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served(folder, None, protocol(seconds=0.5)) as address, opened(address, b"") as connection:
        for _ in range(8):
            connection.sendall(asked)
            head, _, body = connection.recv(2**20).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            while len(body) < length:
                body += connection.recv(2**20)
            time.sleep(0.2)


def test_no_more_connections_than_a_machine_has_files(folder):
    assert (SECONDS, MOST) == (10, 200)
    with served(folder, None, protocol(most=5)) as address, ExitStack() as stack:
        half = [stack.enter_context(opened(address, b"GET")) for _ in range(5)]
        with opened(address, b"GET") as further:
            assert is_closed(further)
        half.pop().close()
        time.sleep(0.2)
        with urllib.request.urlopen(address) as answer:
            assert answer.status == 200
