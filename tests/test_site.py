"""The documentation builds as a site, offline and without a warning, and has all that it should have."""

import html
import json
import os
import re
import subprocess
import sys
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = ["lrptrain", "lrptrain.callbacks", "lrptrain.findings", "lrptrain.guidance", "lrptrain.metrics"]
PUBLIC += ["lrptrain.render", "lrptrain.rules", "lrptrain.targets", "lrptrain.data", "lrptrain.models"]


def build(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Build the site as `make docs` does. Not with `--quiet`: it hides the warnings that `--strict` counts."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder), *options]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    return folder


@pytest.mark.parametrize(
    ("page", "fails"),
    [
        ("# Title\n\n[a link](#title)\n", False),
        ("# Title\n\n[a link](#another)\n", True),
        ("# Title\n\n[a link](absent.md)\n", True),
        ("# Title\n", None),  # outside of the nav
    ],
)
def test_a_site_with_a_mistake_does_not_build(page: str, fails: bool | None, tmp_path: Path):
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    kept = {name: settings[name] for name in ("site_name", "validation", "use_directory_urls")}
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(page, encoding="utf-8")
    if fails is None:
        (tmp_path / "docs" / "other.md").write_text(page, encoding="utf-8")
    own = {**kept, "docs_dir": str(tmp_path / "docs"), "nav": [{"Home": "index.md"}]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(own), encoding="utf-8")
    done = build(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert (done.returncode != 0) == (fails is not False), done.stderr


def pages(site: Path) -> dict[str, str]:
    return {str(path.relative_to(site)): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}


def test_no_page_loads_anything_from_another_host(site: Path):
    loading = r"""<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=["']?(?:https?:)?//[^"' >]+"""
    assert {name: loaded for name, text in pages(site).items() if (loaded := re.findall(loading, text))} == {}


def test_links_to_files_of_the_repository_became_links_of_the_site(site: Path):
    left = r"""<a [^>]*href="(?!https?:)[^"]*\.(?:md|ipynb|py)["#]"""
    assert {name: leftover for name, text in pages(site).items() if (leftover := re.findall(left, text))} == {}


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(site: Path, module: str):
    inventory = (site / "objects.inv").read_bytes()
    _, _, packed = inventory.partition(b"zlib.\n")
    documented = {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}
    package = import_module(module)
    missing = [name for name in package.__all__ if f"{module}.{name}" not in documented]
    # `lrptrain.attribute` stands where it is written: a module beside it has its name.
    assert [name for name in missing if defined_as(getattr(package, name)) not in documented] == []


def defined_as(value: object) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"


def test_notebooks_are_shown_with_their_stored_outputs(site: Path):
    for notebook in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        text = (site / "notebooks" / f"{notebook.stem}.html").read_text(encoding="utf-8")
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        printed = ["".join(output["text"]).splitlines()[0] for output in outputs if output["output_type"] == "stream"]
        assert printed
        printed = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in printed]  # colours of a terminal
        assert [line for line in printed if html.escape(line, quote=False) not in text] == []


QUESTIONS = {
    "turn it off": "how-to/turn-off.html",
    "disable": "how-to/turn-off.html",
    "own metric": "how-to/own-metric.html",
    "export": "how-to/export.html",
    "no masks": "how-to/no-masks.html",
    "multi-label": "reference/labels.html",
    "several labels": "reference/labels.html",
    "slow": "explanation/cost-and-power.html",
    "why is it slow": "explanation/cost-and-power.html",
    "is the map right": "how-to/compare-methods.html",
    "resume": "how-to/monitor.html",
    "multi gpu": "how-to/multi-gpu.html",
    "several gpus": "how-to/multi-gpu.html",
    "gate in ci": "how-to/gate.html",
    "segmentation": "how-to/segmentation.html",
}
"""What people search for, and the page that answers it."""


def test_the_search_finds_the_page_of_a_question_first_from_a_folder(site: Path, browser: Any):
    page = browser.new_page()
    first = {}
    for question in QUESTIONS:
        page.goto(f"file://{site}/index.html?q={question}")
        page.wait_for_selector(".md-search-result__item a", state="attached")
        link = page.get_attribute(".md-search-result__item a", "href") or ""
        first[question] = link.split("?")[0].removeprefix(f"file://{site}/")
    page.close()
    assert first == QUESTIONS


def test_each_question_is_one_click_from_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = {target.replace(".html", ".md") for target in QUESTIONS.values()} - {"how-to/segmentation.md"}
    assert [target for target in pages if f"](docs/{target}" not in readme] == []
