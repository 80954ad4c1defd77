"""How long until a filter of 10,000 samples in 1,000 classes has answered?

.venv/bin/python -m experiments.dashboard.large
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.dashboard.browser import run_folder, served_page
from experiments.records import save
from lrptrain.loggers import EpochRecord, Input, write_record

HERE = Path(__file__).resolve().parent
REPEATS = 9
# Changes the address, as a control does, and returns the milliseconds until the plots are drawn anew, until the count
# and the cards of the gallery are, and until all of its pictures are painted, each seen in the frame after it.
CHANGE = """async (changes) => {
    const shown = () => [document.querySelector("svg.histogram"), document.querySelector("#found .gallery")];
    const [histogram, cards] = shown();
    const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    const start = performance.now();
    const found = {};
    go(changes);
    while (!("pictures" in found) && performance.now() - start < 20000) {
        await frame();
        const now = performance.now() - start;
        const [plot, gallery] = shown();
        if (plot !== histogram && plot) found.plots ??= now;
        if (gallery === cards || !gallery) continue;
        found.cards ??= now;
        const bodies = [...gallery.querySelectorAll("figure.sample .body")];
        if (bodies.every((body) => body.childElementCount)) found.pictures = now;
    }
    return found;
}"""
PARTS = ("plots", "cards", "pictures")


def write(folder: Path, samples: int, classes: int, grid: int = 14, pixels: int = 224) -> None:
    """Write one evaluation, with pictures of the first 1,000 samples, as a monitor does."""
    rng = np.random.default_rng(0)
    names = [f"class {number}" for number in range(classes)]
    label = rng.integers(0, classes, samples)
    predicted = np.where(rng.random(samples) < 0.8, label, rng.integers(0, classes, samples))

    def given(number: int) -> Input:
        noise = np.random.default_rng(number).normal(120 + number % 50, 20, (pixels // 4, pixels // 4, 3))
        image = np.kron(noise, np.ones((4, 4, 1))).clip(0, 255).astype(np.uint8)
        return Input(number, (grid, grid), image)

    columns: dict[str, list[Any]] = {
        "sample_id": list(range(samples)),
        "label": [names[number] for number in label],
        "predicted": [names[number] for number in predicted],
        "label_energy_pointing_game": rng.beta(2, 5, samples).tolist(),
        **{name: rng.random(samples).tolist() for name in ("probability", "chance", "auprc", "rank_accuracy")},
        "map_label": rng.gamma(0.3, 1e-3, (samples, grid**2)).tolist(),
    }
    inputs = {number: partial(given, number) for number in range(min(samples, 1000))}
    write_record(folder, EpochRecord(0, 0, samples=columns, class_names=names, inputs=inputs))
    (folder / "run.json").write_text(json.dumps({"class_names": names, "method": "attnlrp"}))


def measure(folder: Path, classes: int) -> dict[str, dict[str, list[float]]]:
    """Seconds by what is done and by what of it is seen, once for each repetition."""
    rng = np.random.default_rng(1)
    times_of: dict[str, dict[str, list[float]]] = {}

    def repeat(what: str, changes: Callable[[int], dict[str, str]]) -> None:
        # The first one is among them: it warms the browser's compiler, as a visitor's first one does.
        times = [page.evaluate(CHANGE, changes(number)) for number in range(REPEATS)]
        times_of[what] = {part: [each[part] / 1000 for each in times if part in each] for part in PARTS}

    with served_page(folder) as (page, address, _):
        started = time.monotonic()
        page.goto(f"{address}#view=samples&run={folder.name}")
        page.locator("figure.sample canvas").nth(23).wait_for()
        times_of["the page, opened"] = {"pictures": [time.monotonic() - started]}
        repeat("a class", lambda _: {"class": f"class {rng.integers(classes)}"})
        repeat(
            "a bin of the histogram",
            lambda i: {"class": "", "score": "probability", "from": str(i / 20), "to": str(i / 20 + 0.05)},
        )
        repeat("a letter of an id", lambda i: {"score": "", "from": "", "to": "", "id": str(i)})
        repeat("only what is read wrongly, or right", lambda i: {"id": "", "reading": ("wrong", "right")[i % 2]})
        repeat("another order", lambda i: {"reading": "", "sort": ("probability", "-probability")[i % 2]})
        repeat("the next page", lambda i: {"sort": "", "page": str(i + 2)})
        started = time.monotonic()
        page.click("#plot-map")
        page.locator(".atlas-picture circle").nth(999).wait_for(timeout=120_000)
        times_of["the map of 1,000 maps, when it is first asked for"] = {"plots": [time.monotonic() - started]}
        repeat("a cluster of the map", lambda i: {"page": "", "cluster": str(i % 2 + 1)})
        repeat("a lasso on the map", lambda i: {"cluster": "", "area": f"{50 * i},0 {50 * i + 400},0 500,700"})
    return times_of


def main() -> None:
    """Write the record, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=1000)
    options = parser.parse_args()
    with run_folder() as folder:
        write(folder, options.samples, options.classes)
        print("| seconds until | plots | cards | pictures |\n| --- | --- | --- | --- |")
        measured = measure(folder, options.classes)
        save(HERE / "results" / "large.json", {"options": vars(options), "seconds": measured})
        for what, by_part in measured.items():
            each = [by_part.get(part) for part in PARTS]
            cells = [f"{np.median(seconds):.2f} ({max(seconds):.2f})" if seconds else "" for seconds in each]
            print(f"| {what} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
