"""Does the monitor keep to its budget in real runs? See README.md.

    .venv/bin/python -m experiments.speed.budget --write

Each run is a `Trainer.fit` with `RelevanceMonitor()` by its defaults (5 % of the time), which ends after its epochs or
after `--minutes`, whichever comes first. The share is that of the wall-clock time, which other work on the machine
stretches for training and monitor alike.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import lrptrain
from experiments.records import stamped
from experiments.speed.cells import Inputs
from experiments.speed.run import bert_base, vit_small
from experiments.table import markdown, write_between
from lrptrain.callbacks import RelevanceMonitor
from lrptrain.loggers import read_events
from lrptrain.relevance.output.outputs import read_logits

HERE = Path(__file__).resolve().parent
START, END = "<!-- budget -->", "<!-- end of budget -->"
DISTINCT = 64  # samples; how long a step takes does not depend on what it sees
BATCH = 16
CLASSES = 10
Model = tuple[nn.Module, Callable[[int], Inputs]]


def of_ten_classes(make: Callable[[], Model]) -> Model:
    """A model of the other experiments, with as many classes as here."""
    model, inputs_of = make()
    name, head = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)][-1]
    model.set_submodule(name, nn.Linear(head.in_features, CLASSES))
    return model, inputs_of


def vit_small_at(size: int) -> Model:
    """ViT-S/16 for images of another size."""
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(img_size=size, embed_dim=384, depth=12, num_heads=6, num_classes=CLASSES)
    return model, lambda batch: torch.randn(batch, 3, size, size)


def bert_small() -> Model:
    """BERT with 4 blocks of width 256, 64 tokens."""
    from transformers import BertConfig, BertForSequenceClassification

    sizes: dict[str, Any] = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
    model = BertForSequenceClassification(BertConfig(num_labels=CLASSES, intermediate_size=1024, **sizes))
    return model, lambda batch: {name: values[:, :64] for name, values in bert_texts(batch).items()}


def bert_texts(batch: int) -> dict[str, Tensor]:
    """Texts of 128 random words."""
    ids = torch.randint(1000, 20000, (batch, 128))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@dataclass(frozen=True)
class Run:
    """A run to be made.

    Attributes:
        model: Makes the model, and its inputs.
        training: The number of training samples in an epoch.
        validation: The number of validation samples.
        epochs: The number of epochs.
        interval: The number of training samples between two validations; None for one per epoch.
    """

    model: Callable[[], Model]
    training: int
    validation: int
    epochs: int
    interval: int | None = None


RUNS = {
    "ViT-S/16, 224 px, 1,000 images": Run(lambda: of_ten_classes(vit_small), 1000, 200, 20),
    "ViT-S/16, 224 px, 50,000 images": Run(lambda: of_ten_classes(vit_small), 50000, 1000, 3, 2000),
    "BERT-base, 128 tokens, 1,000 texts": Run(lambda: of_ten_classes(bert_base), 1000, 200, 5),
    "ViT-S/16, 32 px, 1,000 images": Run(lambda: vit_small_at(32), 1000, 200, 40),
    "ViT-S/16, 32 px, 50,000 images": Run(lambda: vit_small_at(32), 50000, 64, 1, 480),
    "BERT of 4 blocks, 64 tokens, 1,000 texts": Run(bert_small, 1000, 200, 40),
    "ViT-S/16, 32 px, 300 images": Run(lambda: vit_small_at(32), 300, 100, 10),
}


class Repeated(Dataset):
    """A few samples, each of them many times; a quarter of an image, or of a text, is its evidence."""

    def __init__(self, inputs_of: Callable[[int], Inputs], length: int) -> None:
        inputs = inputs_of(DISTINCT)
        self.columns = dict(inputs) if isinstance(inputs, dict) else {"image": inputs}
        self.length = length
        if "image" in self.columns:
            side = self.columns["image"].shape[-1]
            mask = torch.zeros(DISTINCT, side, side, dtype=torch.uint8)
            mask[:, side // 4 : 3 * side // 4, side // 4 : 3 * side // 4] = 1
            self.columns["mask"] = mask
        else:
            self.columns["rationale"] = torch.zeros_like(self.columns["input_ids"])
            self.columns["rationale"][:, 32:64] = 1

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = {name: values[index % DISTINCT] for name, values in self.columns.items()}
        return {**row, "label": index % DISTINCT % CLASSES, "sample_id": index}


class Classifier(pl.LightningModule):
    """A model and its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        return nn.functional.cross_entropy(self._logits(batch), batch["label"])

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.log("val/loss", nn.functional.cross_entropy(self._logits(batch), batch["label"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)

    def _logits(self, batch: dict[str, Tensor]) -> Tensor:
        texts = {name: batch[name] for name in ("input_ids", "attention_mask") if name in batch}
        return read_logits(self.model(**texts) if texts else self.model(batch["image"]), len(batch["label"]))


def measure(run: Run, minutes: float, device: str) -> dict[str, Any]:
    """Make a run, and read from its record what the monitor took."""
    torch.manual_seed(0)
    model, inputs_of = run.model()
    monitor = RelevanceMonitor(run=lrptrain.Run(progress_bar=False))
    training = DataLoader(Repeated(inputs_of, run.training), BATCH, shuffle=True)
    validation = DataLoader(Repeated(inputs_of, run.validation), BATCH)
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=run.epochs,
            max_time=timedelta(minutes=minutes),
            val_check_interval=None if run.interval is None else run.interval // BATCH,
            default_root_dir=folder,
            accelerator="cpu" if device == "cpu" else "gpu",
            callbacks=[monitor],
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
        )
        started = time.monotonic()
        trainer.fit(Classifier(model.train()), training, validation)
        wall = time.monotonic() - started
        assert monitor.folder is not None
        events = [event["scalars"] for event in read_events(monitor.folder)]
        drawn = [len(list((monitor.folder / kind).rglob("*.*"))) for kind in ("pictures", "highlights")]
    budget = monitor.core.planner.budget
    assert budget is not None
    # Each point has the seconds of the monitor since the last one, and their share of the time since then.
    seconds = list(accumulate(event["relevance/seconds"] for event in events))
    elapsed = list(accumulate(event["relevance/seconds"] / event["relevance/cost_share"] for event in events))
    return {
        "training samples": trainer.global_step * BATCH,
        "validations": budget.validations,
        "evaluations": len(events),
        "samples of each": [int(event["relevance/samples"]) for event in events],
        "further classes": 0 if budget.extent is None else budget.extent.class_maps,
        "pictures": sum(drawn),
        "minutes": wall / 60,
        "shares": [spent / time for spent, time in zip(seconds, elapsed, strict=True)],
        "share": budget.share_of(monitor.core.clock.elapsed),
    }


def table(cells: dict[str, dict[str, Any]]) -> str:
    """A row per run, in the order of `RUNS`."""
    rows = []
    for title, cell in ((title, cells[title]) for title in RUNS if title in cells):
        shares = cell["shares"]
        sizes = ", ".join(str(size) for size in dict.fromkeys(cell["samples of each"]))
        rows.append(
            {
                "run": title,
                "training samples": f"{cell['training samples']:,}",
                "minutes": f"{cell['minutes']:.1f}",
                "validations": str(cell["validations"]),
                "evaluations": str(cell["evaluations"]),
                "samples of each": sizes,
                "further classes at the end": str(cell["further classes"]),
                "pictures": str(cell["pictures"]),
                "share at the first evaluation": f"{shares[0]:.1%}",
                "highest share afterwards": f"{max([*shares[1:], cell['share']]):.1%}",
                "share of the run": f"{cell['share']:.1%}",
            }
        )
    return markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    path = HERE / "results" / f"budget_{arguments.device}.json"
    cells = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for title in arguments.runs:
        cells[title] = stamped(measure(RUNS[title], arguments.minutes, arguments.device))
        print(title, json.dumps(cells[title]), flush=True)
        if arguments.write or arguments.device != "cpu":
            path.write_text(json.dumps(cells, indent=1) + "\n", encoding="utf-8")
    text = table(cells)
    print(text)
    if arguments.write and arguments.device == "cpu":
        write_between(HERE / "README.md", text, START, END)


if __name__ == "__main__":
    main()
