"""How long until the page of a long run is there? 200 evaluations of 256 samples, written by the real writer.

.venv/bin/python -m experiments.dashboard.run
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.dashboard.browser import chromium_path, run_folder, served_page
from experiments.records import save
from lrptrain.dashboard.maps import read_cards, read_history
from lrptrain.dashboard.report import write_html_report
from lrptrain.dashboard.runs import about_run, read_new_events
from lrptrain.dashboard.samples import evaluations, read_sample_table, read_scores
from lrptrain.files import folder_size_mb
from lrptrain.findings import Finding
from lrptrain.loggers import EpochRecord, Input, RecordWriter

HERE = Path(__file__).resolve().parent
CLASSES = [f"class {number}" for number in range(10)]
MEASURES = ("energy_pointing_game", "pointing_game", "rank_accuracy", "auprc")


def write(folder: Path, epochs: int, samples: int, grid: int, pixels: int) -> float:
    """Write a run like one of a ViT on photographs; seconds per evaluation, the first aside."""
    rng = np.random.default_rng(0)
    ramp = np.linspace(0, 1, pixels)
    waves = np.sin(20 * ramp[:, None] + 6 * ramp[None, :])[..., None] * 60 + 120

    def given(number: int) -> Input:
        image = (waves + rng.normal(0, 12, (pixels, pixels, 3)) + number % 50).clip(0, 255).astype(np.uint8)
        mask = np.zeros((pixels, pixels), np.uint8)
        mask[pixels // 4 : pixels // 2, pixels // 4 : pixels // 2] = 1
        return Input(number, (grid, grid), image, annotation=mask)

    writer, seconds = RecordWriter(max_mb=1000), []
    for epoch in range(epochs):
        findings = [
            Finding(
                name=f"the top left corner, for answers {name!r}",
                kind="region",
                role="fault",
                verdict="relies",
                effect=0.3,
                interval=(0.2, 0.4),
                samples=samples,
                epoch=epoch,
                step=100 * epoch,
                history=(0.3,) * (epoch + 1),
                verdicts=("relies",) * (epoch + 1),
                epochs=tuple(range(epoch + 1)),
                medium="image",
            )
            for name in CLASSES
        ]
        label = [CLASSES[number % 10] for number in range(samples)]
        columns: dict[str, list[Any]] = {"sample_id": list(range(samples)), "label": label, "predicted": label}
        columns |= {name: rng.random(samples).tolist() for name in ("probability", "chance")}
        columns |= {
            f"{target}_{name}": rng.random(samples).tolist() for target in ("label", "predicted") for name in MEASURES
        }
        columns |= {
            f"map_{target}": rng.gamma(0.3, 1e-3, (samples, grid**2)).tolist() for target in ("label", "predicted")
        }
        keys = [
            f"{target}/{name}_per_class/{class_name}"
            for target in ("label", "predicted")
            for name in MEASURES
            for class_name in CLASSES[:5]
        ]
        keys += ["accuracy", "chance", "reliance"]
        record = EpochRecord(
            epoch=epoch,
            step=100 * epoch,
            scalars={f"relevance/{key}": rng.random() for key in keys},
            samples=columns,
            findings=findings,
            class_names=CLASSES,
            inputs={number: partial(given, number) for number in range(samples)},
        )
        started = time.monotonic()
        writer.write(folder, record)
        seconds.append(time.monotonic() - started)
    return float(np.median(seconds[1:]))


def timed(read: Callable[[], Any]) -> float:
    started = time.monotonic()
    read()
    return time.monotonic() - started


def reading(folder: Path) -> dict[str, float]:
    """Seconds of what the page asks for, in a process that has read nothing before."""
    last = list(evaluations(folder))[-1]
    ids = [str(number) for number in range(24)]
    return {
        "the runs and all evaluations": timed(lambda: (about_run(folder), read_new_events(folder))),
        "scores of all evaluations, with intervals": timed(lambda: read_scores(folder)),
        "the table of the last evaluation": timed(lambda: read_sample_table(folder)),
        "24 samples with their maps": timed(lambda: read_cards(folder, last, ids)),
        "a sample's maps in 40 evaluations": timed(lambda: read_history(folder, "7")),
    }


def in_browser(folder: Path) -> dict[str, float]:
    """Seconds until things are seen in Chromium, served by the command; empty without one."""
    if chromium_path() is None:
        return {}
    times = {}
    with served_page(folder) as (page, address, seconds):
        times["the command, until it serves"] = seconds
        started = time.monotonic()
        page.goto(address)
        page.wait_for_selector("#runs tbody tr")
        times["the page, until the runs are there"] = time.monotonic() - started
        page.locator(".chart svg").nth(3).wait_for(timeout=60_000)
        times["the page, until all charts are drawn"] = time.monotonic() - started
        for view, sign in (("findings", ".worst, .finding"), ("samples", "figure.sample canvas >> nth=23")):
            started = time.monotonic()
            page.goto(f"{address}#view={view}&run={folder.name}")
            page.wait_for_selector(sign)
            times[f"the view of {view}"] = time.monotonic() - started
        started = time.monotonic()
        page.get_by_text("next").click()
        page.locator("#count").filter(has_text="page 2").wait_for()
        times["the next page of samples"] = time.monotonic() - started
    return times


def main() -> None:
    """Write the record, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=1, help="of a busy machine, the least of several repetitions")
    options = parser.parse_args()
    with run_folder() as folder:
        per_evaluation = write(folder, options.epochs, options.samples, grid=14, pixels=224)
        sizes = [folder_size_mb(folder), folder_size_mb(folder / "inputs")]
        print("record: {:.0f} MB, of which inputs {:.1f} MB; {:.2f} s per evaluation".format(*sizes, per_evaluation))
        rows = reading(folder)
        # Each repetition has a server and a browser of its own, which have read nothing before.
        visits = [in_browser(folder) for _ in range(options.repeats)]
        rows |= {name: min(visit[name] for visit in visits) for name in visits[0]}
        rows["lrptrain report"] = timed(lambda: write_html_report(folder, folder / "report.html"))
        measured = {"options": vars(options), "per evaluation": per_evaluation, "seconds": rows}
        save(HERE / "results" / "page.json", measured)
        print("\n| what | seconds |\n| --- | --- |")
        print("\n".join(f"| {name} | {seconds:.2f} |" for name, seconds in rows.items()))


if __name__ == "__main__":
    main()
