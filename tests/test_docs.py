import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from doc_tables import ROOT, TABLES, filled
from forks import in_two_epochs, start_fork

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)


@pytest.mark.parametrize("file", sorted(TABLES))
def test_the_tables_are_those_that_the_tests_run_on(file: str):
    assert filled(file) == (ROOT / file).read_text(encoding="utf-8"), "run `make tables`"


def test_contributing_names_files_that_exist():
    named = re.findall(
        r"(?:lrptrain|callbacks|tests|docs|experiments)/[\w/.-]*\w", PAGES[1].read_text(encoding="utf-8")
    )
    assert len(named) > 50
    assert [each for each in named if not (ROOT / each).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pictures_and_links_exist(page: Path):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if not target.startswith("http")]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_a_visitor_reads_the_readme_in_a_few_minutes_and_finds_the_installation_first():
    assert len(README.split()) <= 700
    lines = README.splitlines()
    assert next(i for i, line in enumerate(lines) if "pip install" in line) < 35


@pytest.mark.parametrize(
    ("found", "alarms", "who"),
    [
        ("| shortcuts found, with", "| false alarms, with annotations", "with annotations"),
        ("| cues found, without", "| false alarms, without annotations", "without annotations"),
    ],
)
def test_what_the_readme_says_was_found_is_what_the_benchmark_has(found: str, alarms: str, who: str):
    page = (ROOT / "experiments" / "benchmark" / "README.md").read_text(encoding="utf-8")
    # The table of small networks is the first one.
    measured = next(line for line in page.splitlines() if line.startswith(f"| {who} |"))
    cells = [re.match(r"(\d+) of (\d+)", cell.strip()) for cell in measured.split("|")[2:-1]]
    (hits, learned), _, (first, _), (cannot, pairs), (never, _) = (each.groups() for each in cells if each)
    (hit,) = [line for line in README.splitlines() if line.startswith(found)]
    (alarm,) = [line for line in README.splitlines() if line.startswith(alarms)]
    accused, clean = int(cannot) + int(never), 2 * int(pairs)
    assert f"{100 * int(hits) / int(learned):.0f} %" in hit
    assert f"{learned} models" in hit
    assert f"is first in {100 * int(first) / int(learned):.0f} %" in hit
    assert f"{clean} models" in alarm
    assert (f"{100 * accused / clean:.0f} % have" if accused else "none flagged") in alarm


def test_what_the_readme_says_of_fixes_is_what_was_measured():
    from experiments.fixes.arms import OUTSIDE, PLAIN
    from experiments.fixes.run import RESULTS
    from experiments.parallel import load

    runs = [x for x in load(RESULTS).values() if "seed 0" in x["key"]]
    texts = [x for x in runs if x["task"] == "texts"]
    images = [x for x in runs if x["task"] != "texts"]

    def fixed(some: list[Any], measure: str) -> str:
        means = (100 * sum(x["arms"][arm][measure] for x in some) / len(some) for arm in (PLAIN, OUTSIDE))
        return "→".join(f"{mean:.0f}" for mean in means) + " %"

    for start, measure in (("| [fix]", "other"), ("| its price", "in distribution")):
        (row,) = [line for line in README.splitlines() if line.startswith(start)]
        assert f"the same {len(runs)}, " in row
        assert f"images {fixed(images, measure)}, texts {fixed(texts, measure)} |" in row


def test_the_code_that_attaches_the_callbacks_is_short():
    attaching = [block for block in python_blocks(ROOT / "README.md") if "RelevanceMonitor(" in block]
    assert attaching
    assert all(sum(map(bool, block.splitlines())) <= 10 for block in attaching)


def programs(page: Path) -> list[str]:
    """What runs of a page: each block by itself; of a tutorial, which is followed from top to bottom, all in one."""
    blocks = python_blocks(page)
    return ["\n".join(blocks)] if page.parent.name == "tutorials" and blocks else blocks


BLOCKS = [
    pytest.param(program, id=f"{name_of(page)}-{number}")
    for page in PAGES
    for number, program in enumerate(programs(page))
]


def run_block(block: str, folder: Path) -> None:
    """Run a block as a script in a folder, with what it prints in `output`; `my_project` is there to be imported."""
    os.chdir(folder)
    sys.path.insert(0, str(ROOT / "tests" / "readers_project"))
    with Path("output").open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            exec(compile(in_two_epochs(block), "<block>", "exec"), {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            raise


@pytest.mark.parametrize("block", BLOCKS)
def test_every_python_block_runs(block: str, tmp_path: Path):
    for other in re.findall(r"^from (captum|pytorch_grad_cam|lxt|zennit)\b", block, flags=re.M):
        pytest.importorskip(other)
    process = start_fork(run_block, block, tmp_path)
    process.join(120)
    process.kill()
    assert process.exitcode == 0, (tmp_path / "output").read_text(encoding="utf-8")[-2000:]
