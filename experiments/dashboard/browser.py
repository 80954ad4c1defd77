"""The command `lrptrain dashboard` in a process of its own, and Chromium before it."""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium_path() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def run_folder() -> Iterator[Path]:
    """An empty folder for a run, which is there as long as it is looked at."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        folder.mkdir()
        yield folder


@contextmanager
def served_page(folder: Path) -> Iterator[tuple[Any, str, float]]:
    """An empty page of the browser, the address of the server, and the seconds until that answered."""
    from playwright.sync_api import sync_playwright

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "lrptrain", "dashboard", str(folder), f"--port={port}"]
    started = time.monotonic()
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not _answers(port):
            time.sleep(0.05)
        seconds = time.monotonic() - started
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
            yield browser.new_page(viewport={"width": 1280, "height": 900}), f"http://127.0.0.1:{port}/", seconds
            browser.close()
    finally:
        server.terminate()
        server.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
