import re
import subprocess
import sys
from pathlib import Path

import pytest
from readme_tables import ROOT, filled

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_tables_are_those_that_the_tests_run_on():
    assert filled(README) == README, "run `make tables`"


def test_pictures_and_links_exist():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    local = [target for target in targets if not target.startswith("http")]
    assert local
    assert [target for target in local if not (ROOT / target).exists()] == []


def test_the_code_that_attaches_the_callbacks_is_short():
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    attaching = [block for block in blocks if "RelevanceMonitor(" in block]
    assert attaching
    assert all(len(block.strip().splitlines()) <= 20 for block in attaching)


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, flags=re.S), ids=lambda block: block[:20])
def test_every_python_block_runs(block: str, tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
