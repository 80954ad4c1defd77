"""Fine-tune MiniLM on the movie reviews of ERASER and score every method: does it find what people marked?

    .venv/bin/python -m experiments.movies.run

One JSON file per seed and method in `results/`; a run that was cut off goes on where it stood. The tables are written
into this folder's README.md.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import lrptrain
from experiments.data import dataset
from experiments.movies.report import report
from experiments.movies.scoring import chosen_documents, cut_off, measure, prepare
from experiments.movies.training import MAX_LENGTH, SETTINGS, load, saved_training, trained
from experiments.records import save
from experiments.table import write_between
from lrptrain.data import EraserDocuments

HERE = Path(__file__).resolve().parent

RESULTS, RUNS = HERE / "results", HERE / "runs"
DOCUMENTS, FEW = 48, 5
# What costs tens of forward passes or more per document: on the first `FEW` documents, with the first seed only.
COSTLY = (
    "smoothgrad", "integrated_gradients", "attention_flow", "lime", "kernel_shap", "leave_one_out", "atb_ff_norm",
    "atb_ff_res_norm", "atb_ff_res_ln_norm",
)  # fmt: skip
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "transformer_attribution": [{}, {"normalize_rows": True, "start_layer": -1}],
    "lrp": [{"composite": "split_alpha_beta"}],  # the paper's baseline
}


def rows() -> dict[str, tuple[str, dict[str, Any]]]:
    """Every method, and the options it is run with; the costly ones last, by what they cost."""
    found = {}
    cheap = [method for method in lrptrain.methods() if method not in COSTLY]
    for method in (*cheap, *COSTLY):
        for options in OPTIONS.get(method, [{}]):
            shown = ", ".join(f"{name}={value}" for name, value in options.items())
            found[f"{method} ({shown})" if shown else method] = (method, options)
    return found


def missing(seed: int, costly: bool) -> dict[str, tuple[str, dict[str, Any]]]:
    """The rows without a result."""
    return {
        name: row for name, row in rows().items() if (row[0] in COSTLY) == costly and not path_of(seed, name).exists()
    }


def path_of(seed: int, name: str) -> Path:
    return RESULTS / f"seed_{seed}" / (re.sub(r"\W+", "_", name).strip("_") + ".json")


def evaluate(seed: int, data: EraserDocuments, costly: bool) -> None:
    """Score what is not scored yet."""
    to_do = missing(seed, costly)
    if not to_do:
        return
    module = load(RUNS / f"seed_{seed}")
    numbers = chosen_documents(data, FEW if costly else DOCUMENTS)
    batches = prepare(module, data, numbers)
    rounding = max(float(batch.rounding.max()) for batch in batches)
    for name, (method, options) in to_do.items():
        result = {"method": name, "seed": seed, **measure(module, batches, method, options)}
        result |= {"numbers": numbers, "bf16_rounding_of_probabilities": rounding}
        save(path_of(seed, name), result)
        print(f"seed {seed}: {name}, {result.get('seconds', result.get('unsupported'))}", flush=True)


def results(seeds: list[int], costly: bool) -> dict[str, list[dict[str, Any]]]:
    """What is saved of every method, one entry per seed."""
    found = {}
    for name, (method, _) in rows().items():
        paths = [path_of(seed, name) for seed in (seeds[:1] if costly else seeds)]
        if (method in COSTLY) == costly and all(path.exists() for path in paths):
            found[name] = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the reviews")
    parser.add_argument("--tweets", type=Path, help="file of the tweets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--tables-only", action="store_true", help="write the tables of what is there already")
    arguments = parser.parse_args()
    data = EraserDocuments(
        str(dataset("movies", arguments.data)), max_length=MAX_LENGTH, batch_size=SETTINGS["batch_size"]
    )
    data.setup()
    trainings = []
    for seed in arguments.seeds:
        complete = not missing(seed, costly=False) and (seed != arguments.seeds[0] or not missing(seed, costly=True))
        if arguments.tables_only or complete:
            trainings.append(saved_training(seed, RESULTS))
        else:
            trainings.append(trained(seed, data, arguments.tweets, RESULTS, RUNS))
        print(trainings[-1], flush=True)
        if not (arguments.train_only or arguments.tables_only):
            evaluate(seed, data, costly=False)
    if arguments.train_only:
        return
    if not arguments.tables_only:
        evaluate(arguments.seeds[0], data, costly=True)
    everything = cut_off(data, range(len(data.splits["test"])))
    text = report(trainings, everything, results(arguments.seeds, False), results(arguments.seeds, True))
    write_between(HERE / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
