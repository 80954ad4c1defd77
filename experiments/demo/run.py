"""Run the demo, and put its table into README.md and its picture beside this file.

.venv/bin/python -m experiments.demo.run [--finished runs/demo]
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from experiments.records import save
from lrptrain.cli.demo import demo

HERE = Path(__file__).resolve().parent
README = HERE.parents[1] / "README.md"
START, END = "<!-- demo -->", "<!-- end of demo -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--finished", type=Path, help="folder of a demo that has run already, on this machine and with the same code"
    )
    folder = parser.parse_args().finished
    if folder is None:
        folder = Path(tempfile.mkdtemp())
        demo(str(folder))
    printed = (folder / "report.txt").read_text(encoding="utf-8").strip("\n").replace(str(folder), "runs/demo")
    # Before the picture, which is a change of the files at this commit.
    save(HERE / "results" / "demo.json", {"printed": printed.splitlines()}, indent=1)
    shutil.copy(folder / "overlays.png", HERE / "overlays.png")
    table = printed.partition("\n\n")[0]
    before, _, rest = README.read_text(encoding="utf-8").partition(START)
    README.write_text(f"{before}{START}\n\n```\n{table}\n```\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
