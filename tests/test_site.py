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

import pytest

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = ["lrptrain", "lrptrain.callbacks", "lrptrain.findings", "lrptrain.guidance", "lrptrain.metrics"]
PUBLIC += ["lrptrain.render", "lrptrain.rules", "lrptrain.targets", "lrptrain.data", "lrptrain.models"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    return folder


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
