"""Fine-tune MiniLM on tweets under the monitor and score every method against the words that people marked.

    .venv/bin/python -m experiments.tweets.run

One JSON file per seed in `results/`; a run that was cut off goes on with the seeds that are missing. The table is
written into this folder's README.md.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

import lrptrain
from experiments.data import dataset
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


def measure(model: torch.nn.Module, data: TextSpans, method: str, options: dict[str, Any]) -> dict[str, float]:
    """Means over the held-out tweets; the predicted class is explained."""
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
    return {name: float(torch.cat(values).nanmean()) for name, values in columns.items()}


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
        max_samples=128, budget=None, method="transformer_attribution", class_names=["negative", "positive"]
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


def table(results: list[dict[str, Any]]) -> str:
    """Mean over seeds and 95 % interval (t), best EPG first."""
    accuracy = "{:.1%} ± {:.1%}".format(*mean_interval([result["accuracy"] for result in results]))
    rows = []
    for method in results[0]["methods"]:
        row = {"method": f"`{method}`"}
        for name in (*(f"F1 at {k}" for k in KS), "AUPRC", "EPG"):
            row[name] = "{:.3f} ± {:.3f}".format(*mean_interval([r["methods"][method][name] for r in results]))
        rows.append(row)
    rows.sort(key=lambda row: row["EPG"], reverse=True)
    chance = np.mean([result["methods"]["random"]["chance"] for result in results])
    findings = sum(bool(result["findings"]) for result in results)
    return (
        f"{len(results)} seeds. Accuracy on 1,000 held-out tweets: {accuracy}. Chance level of EPG (the share of the "
        f"word pieces that are marked): {chance:.3f}. Runs in which the monitor had a finding: {findings} of "
        f"{len(results)}.\n\n{markdown(rows)}"
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
            path.parent.mkdir(exist_ok=True)
            result = run(seed, dataset("tweets", arguments.data), HERE / "runs")
            path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        results.append(json.loads(path.read_text(encoding="utf-8")))
        print(f"seed {seed}: accuracy {results[-1]['accuracy']:.3f}", flush=True)
    text = table(results)
    write_between(HERE / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
