"""Who may see the page."""

import pytest
from browsing import served
from starlette.testclient import TestClient

from lrptrain.dashboard import access
from lrptrain.dashboard.server import HEADERS, HOST, app


def client(folder, token):
    return TestClient(app(folder, token), base_url=f"http://{HOST}:8642")


@pytest.mark.parametrize("path", ["/", "/page.js", "/api/runs", "/image?run=run&id=0"])
@pytest.mark.parametrize("question", ["", "token=wrong", "token=", "token=secret%00"])
def test_without_its_token_nothing_is_answered(path, question, tmp_path):
    answer = client(tmp_path, "secret").get(f"{path}{'&' if '?' in path else '?'}{question}")
    assert answer.status_code == 403
    assert answer.text == "This page has a token: open the address that `lrptrain dashboard` has printed.\n"
    assert {name.lower(): value for name, value in HEADERS.items()}.items() <= dict(answer.headers).items()


def test_the_printed_address_opens_the_page_and_all_its_parts(tmp_path):
    browser = client(tmp_path, "secret")
    for _ in range(2):
        page = browser.get("/?token=secret")
        assert page.status_code == 200
        assert str(page.url) == f"http://{HOST}:8642/"  # the token does not stay in the address
    assert "<html" in page.text
    assert browser.get("/api/runs").json()["runs"] == {}
    assert browser.get("/page.js").status_code == 200


def test_a_link_on_another_site_opens_the_page(browser, tmp_path):
    with served(tmp_path, "secret") as address:
        page = browser.new_page()
        page.goto(f"data:text/html,<a href='{address}?token=secret'>as a terminal in a browser shows it</a>")
        page.click("a")
        page.wait_for_selector("h1", timeout=10_000)
        assert page.url == address
        page.close()


def test_a_token_is_of_one_dashboard(tmp_path):
    browser = client(tmp_path, "first")
    browser.get("/?token=first")
    other = client(tmp_path, "second")
    other.cookies = browser.cookies
    assert other.get("/api/runs").status_code == 403


def test_without_a_token_everybody_on_this_machine_is_answered(tmp_path):
    assert client(tmp_path, None).get("/api/runs").status_code == 200


SHARED = [
    (1000, {1000}, {0, 1000}, False),
    (0, {1000}, {0, 33}, False),  # root in the image of a container
    (1000, {1000, 1001}, {0, 1000}, True),
    (1000, {1000}, {0, 1000, 1002}, True),
    (1000, {1000}, {65_534}, False),  # nobody
    (70_000, set(), {0, 70_000, 70_001}, True),  # accounts of a directory service
]


@pytest.mark.parametrize(("own", "homes", "processes", "shared"), SHARED)
def test_a_machine_is_shared_where_several_people_work(own, homes, processes, shared, monkeypatch):
    monkeypatch.setattr(access, "_owners", lambda *folders: processes if "proc" in str(folders[0]) else homes)
    monkeypatch.setattr(access.os, "getuid", lambda: own, raising=False)
    assert access.is_shared_machine() is shared


def test_tokens_differ():
    assert len({access.new_token() for _ in range(100)}) == 100
    assert access.is_shared_machine() in (True, False)
