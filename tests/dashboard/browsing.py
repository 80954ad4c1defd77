"""A headless Chromium, and a server for it on a free port."""

import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
import uvicorn
from playwright.sync_api import sync_playwright

from lrptrain.dashboard.connections import protocol
from lrptrain.dashboard.server import HOST, app

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@contextmanager
def chromium():
    """The browser, which no package brings; without it the test is skipped, but in continuous integration it fails."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        end = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        end(f"none of {', '.join(NAMES)} is installed: make browser")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(folder: Path, token: str | None = None, http: type | None = None) -> Iterator[str]:
    """The address of a dashboard of a folder, with the connections that `serve` takes or others."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    options = {"host": HOST, "port": port, "log_level": "error", "http": http or protocol()}
    server = uvicorn.Server(uvicorn.Config(app(folder, token), **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield f"http://{HOST}:{port}/"
    finally:
        server.should_exit = True
        thread.join(10)


class Visit:
    """A page, with everything that it complained of and asked for."""

    def __init__(self, browser, address, **options):
        self.page = browser.new_page(**options)
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.page.on("requestfailed", self._note_failure)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.address = address
        self.page.goto(address)

    def _note_failure(self, request):
        # What is under way when the page is left for another address is given up, as it should be.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed: {request.url}")

    def view(self, name, run: str | list[str] = "", wait="main", **fields):
        chosen = {"view": name, **({"run": run} if run else {}), **fields}
        self.page.goto(f"{self.address}#{urlencode(chosen, doseq=True)}")
        # What was there stays until the view is drawn: without this, the text of the view before could be taken for it.
        first = run if isinstance(run, str) else run[0]
        self.page.wait_for_selector(f'#view[data-shown{"" if first else "^"}="{name}/{first}"]')
        self.page.wait_for_selector(wait)
        self.unfold()
        return self.page

    def unfold(self):
        """Open what chooses samples, as who needs it does."""
        self.page.evaluate("document.getElementById('filters')?.setAttribute('open', '')")

    def leaves(self, samples):
        """Wait until the filters leave so many samples."""
        count = re.compile(f"^{samples} samples? of")
        self.page.locator("#count").filter(has_text=count).wait_for(timeout=10_000)
