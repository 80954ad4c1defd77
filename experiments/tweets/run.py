"""Fine-tune MiniLM on tweets under the monitor and score every method against the words that people marked.

    .venv/bin/python -m experiments.tweets.run

One JSON file per seed in `results/`; a run that was cut off goes on with the seeds that are missing. The table is
written into this folder's README.md.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

import lrptrain
from experiments.data import dataset
from experiments.intervals import estimate, paired, starred
from experiments.records import save
from experiments.table import markdown, mean_interval, write_between
from lrptrain.batch.annotations import rationale_to_tokens
from lrptrain.callbacks import RelevanceMonitor
from lrptrain.data import TextSpans
from lrptrain.metrics import energy_pointing_game, localization_auprc, token_f1_at_k
from lrptrain.models import TextClassifier

HERE = Path(__file__).resolve().parent

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "transformer_attribution": [{}, {"normalize_rows": True, "start_layer": -1}],
    "lrp": [{}, {"composite": "split_alpha_beta"}, {"composite": "chefer"}],
}
KS = (1, 3, 5, 10)
MEASURES = (*(f"F1 at {k}" for k in KS), "AUPRC", "EPG")
COMPARED = ("AUPRC", "EPG")
Result = dict[str, Any]


def measure(model: torch.nn.Module, data: TextSpans, method: str, options: dict[str, Any]) -> dict[str, list[float]]:
    """Every measure of every held-out tweet; the predicted class is explained."""
    columns: dict[str, list[torch.Tensor]] = {}
    for batch in data.val_dataloader():
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        scores = lrptrain.attribute(model, inputs, method=method, **options).scores.double()
        annotation = rationale_to_tokens(batch["rationale"], batch["attention_mask"])
        found = {f"F1 at {k}": token_f1_at_k(scores, annotation, k) for k in KS}
        found |= {"AUPRC": localization_auprc(scores, annotation), "EPG": energy_pointing_game(scores, annotation)}
        found |= {"chance": annotation.chance}
        for name, values in found.items():
            columns.setdefault(name, []).append(values)
    return {name: [round(value, 5) for value in torch.cat(values).tolist()] for name, values in columns.items()}


def run(seed: int, data_path: Path, folder: Path) -> dict[str, Any]:
    """Train with one seed, then score every method."""
    pl.seed_everything(seed, verbose=False)
    data = TextSpans(
        path=str(data_path),
        label_column="sentiment",
        rationale_column="selected_text",
        labels=["negative", "positive"],
        max_length=64,
        limit=4200,
        val_share=1000 / 4200,
        seed=seed,
    )
    module = TextClassifier(num_classes=2, lr=3e-4)
    monitor = RelevanceMonitor(
        max_samples=128,
        budget=None,
        method="transformer_attribution",
        show=lrptrain.Show(class_names=["negative", "positive"]),
    )
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        callbacks=[monitor],
        enable_progress_bar=False,
    )
    started = time.monotonic()
    trainer.fit(module, datamodule=data)
    trained = time.monotonic() - started
    module.eval()
    methods = {}
    for method in lrptrain.methods():
        for options in OPTIONS.get(method, [{}]):
            shown = ", ".join(f"{name}={value}" for name, value in options.items())
            methods[f"{method} ({shown})" if shown else method] = measure(module, data, method, options)
    return {
        "seed": seed,
        "accuracy": float(trainer.callback_metrics["val/accuracy"]),
        "training_seconds": trained,
        "monitor": {name: float(value) for name, value in trainer.callback_metrics.items() if "relevance" in name},
        "findings": [str(finding) for finding in monitor.findings],
        "methods": methods,
    }


def values(results: Sequence[Result], method: str, measure: str) -> list[np.ndarray]:
    """Per seed a number of every tweet; of results that kept no more, the seed's mean."""
    return [np.atleast_1d(result["methods"][method][measure]) for result in results]


def table(results: Sequence[Result]) -> str:
    """Mean and 95 % interval over seeds (and tweets, where results hold them), best EPG first; and paired with random.

    The tweets are others with every seed.
    """
    accuracy = "{:.1%} ± {:.1%}".format(*mean_interval([result["accuracy"] for result in results]))
    methods = list(results[0]["methods"])
    above = {
        (method, name): estimate(paired(values(results, method, name), values(results, "random", name)), False)
        for method in methods
        for name in COMPARED
        if method != "random"
    }
    stars = starred(above)
    rows = []
    for method in methods:
        row = {"method": f"`{method}`"}
        row |= {name: str(estimate(values(results, method, name), False)) for name in MEASURES}
        for name in COMPARED:
            key = (method, name)
            row[f"{name} minus `random`"] = f"{above[key]}{' *' if key in stars else ''}" if key in above else ""
        rows.append(row)
    rows.sort(key=lambda row: row["EPG"], reverse=True)
    chance = np.mean([np.nanmean(each) for each in values(results, "random", "chance")])
    findings = sum(bool(result["findings"]) for result in results)
    return (
        f"{len(results)} seeds. Accuracy on 1,000 held-out tweets: {accuracy} (over seeds). Chance level of EPG (the "
        f"share of the word pieces that are marked): {chance:.3f}. Runs in which the monitor had a finding: {findings} "
        f"of {len(results)}. `*`: above `random` of the same seed, p <= 0.05 after Holm's correction over both columns."
        f"\n\n{markdown(rows)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="file of the tweets, else as experiments/data.py says")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    results = []
    for seed in range(arguments.seeds):
        path = HERE / "results" / f"seed_{seed}.json"
        if not path.exists():
            save(path, run(seed, dataset("tweets", arguments.data), HERE / "runs"))
        results.append(json.loads(path.read_text(encoding="utf-8")))
        print(f"seed {seed}: accuracy {results[-1]['accuracy']:.3f}", flush=True)
    text = table(results)
    write_between(HERE / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
