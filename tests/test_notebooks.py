"""The notebooks run from top to bottom, and what is stored in them has no error."""

import json
import os
import traceback
from pathlib import Path
from typing import Any

import pytest
from forks import in_two_epochs, start_fork

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs" / "notebooks").glob("*.ipynb"))
TRAINERS = {"accelerate", "lightning", "plain_loop", "transformers_trainer"}
SECONDS = 240


def code_cells(notebook: Path) -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def run_notebook(notebook: Path, folder: Path) -> None:
    """Run the cells as a kernel does, in a folder, with what they print in `output`, in two epochs.

    What whole trainings print is stored in the notebooks (`make notebooks`), and looked at below.
    """
    os.chdir(folder)
    os.environ["MPLBACKEND"] = "Agg"
    with Path("output").open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            from IPython.core.interactiveshell import InteractiveShell

            shell = InteractiveShell.instance()
            for cell in code_cells(notebook):
                shell.run_cell(in_two_epochs("".join(cell["source"]))).raise_error()
        except BaseException:
            traceback.print_exc()
            raise


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path):
    sources = ["".join(cell["source"]) for cell in code_cells(notebook)]
    assert any(in_two_epochs(source) != source for source in sources) == (notebook.stem in TRAINERS)
    process = start_fork(run_notebook, notebook, tmp_path)
    process.join(SECONDS)
    process.kill()
    assert process.exitcode == 0, (tmp_path / "output").read_text(encoding="utf-8")[-3000:]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_outputs_are_stored(notebook: Path):
    cells = code_cells(notebook)
    assert all(cell["execution_count"] == number for number, cell in enumerate(cells, 1)), "run `make notebooks`"
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    text = json.dumps(outputs)
    if notebook.stem in TRAINERS:
        assert "SHORTCUT" in text
    else:
        assert text.count("data:image/png;base64,") > 0
    assert str(Path.home()) not in text
    assert "site-packages" not in text
    assert "/tmp/" not in text


def test_there_is_one_for_each_trainer():
    assert {path.stem for path in NOTEBOOKS} == {*TRAINERS, "explain"}


def test_explain_shows_what_it_speaks_of():
    cells = code_cells(Path(__file__).parent.parent / "docs" / "notebooks" / "explain.ipynb")
    outputs = [output["data"] for cell in cells for output in cell["outputs"] if "data" in output]
    pages = ["".join(data["text/html"]) for data in outputs if "text/html" in data]
    image, texts, audited = pages
    assert "target &#x27;flower&#x27;, logit " in image
    assert ">unwatchable</span>" in texts  # of three pieces
    assert "Not scored (grey): [CLS], [SEP], with " in texts
    assert audited.count("<tr>") == 1 + 4
    assert all(len("".join(data["text/plain"])) < 120 for data in outputs)
