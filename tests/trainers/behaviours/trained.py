"""A tiny BERT on texts with rationales, trained by each trainer, with a monitor or without one."""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from grouped_options import grouped
from hugging_face import quiet_arguments
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput

import lrptrain
from lrptrain.callbacks import RelevanceMonitor

NAMES = ["bad", "good"]
ANNOTATIONS = ("rationale", "mask", "sample_id")
OPTIONS = {"max_samples": 8, "run_name": "run", "max_pictures": 1, "class_maps": 0, "budget": None}


class Texts(Dataset):
    """Texts of several lengths; the token behind the first says the class, and is the rationale."""

    def __init__(self, samples: int, seed: int, wrong: int | None = None) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.rows: list[dict[str, Any]] = []
        for number in range(samples):
            ids = torch.randint(10, 40, (int(torch.randint(5, 9, (), generator=generator)),), generator=generator)
            ids[0], ids[1], ids[-1] = 1, 5 + number % 2, 2
            rationale = torch.zeros(len(ids), dtype=torch.long)
            rationale[1] = 3 if number == wrong else 1
            self.rows.append(
                {"input_ids": ids, "labels": number % 2, "rationale": rationale, "sample_id": f"text{number}"}
            )

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


class Headless(Texts):
    """Texts that begin with a word each: so does what is pooled."""

    def __init__(self, samples: int, seed: int) -> None:
        super().__init__(samples, seed)
        for number, row in enumerate(self.rows):
            row["input_ids"][0] = 10 + number


class Pairs(Texts):
    """Texts of two parts; every third one has no label."""

    def __init__(self, samples: int, seed: int) -> None:
        super().__init__(samples, seed)
        for number, row in enumerate(self.rows):
            row["token_type_ids"] = (torch.arange(len(row["input_ids"])) > 2).long()
            row["labels"] = -100 if number % 3 == 2 else row["labels"]


class Pictures(Texts):
    """Images of noise, the left half of which is the evidence; the masks have this value there."""

    def __init__(self, samples: int, seed: int, evidence: int = 1) -> None:
        generator = torch.Generator().manual_seed(seed)
        mask = torch.zeros(8, 8, dtype=torch.uint8)
        mask[:, :4] = evidence
        images = torch.randn(samples, 3, 8, 8, generator=generator)
        self.rows = [
            {"pixel_values": image, "labels": i % 2, "mask": mask, "sample_id": i} for i, image in enumerate(images)
        ]


def collate(rows: list[dict[str, Any]], *, annotated: bool = True) -> dict[str, Any]:
    if "pixel_values" in rows[0]:
        stacked = torch.utils.data.default_collate(rows)
        return {name: x for name, x in stacked.items() if annotated or name not in ANNOTATIONS}
    pad = torch.nn.utils.rnn.pad_sequence
    ids = pad([row["input_ids"] for row in rows], batch_first=True)
    batch: dict[str, Any] = {
        "input_ids": ids,
        "attention_mask": (ids != 0).long(),
        "labels": torch.tensor([row["labels"] for row in rows]),
    }
    if "token_type_ids" in rows[0]:
        batch["token_type_ids"] = pad([row["token_type_ids"] for row in rows], batch_first=True)
    if annotated:
        batch["rationale"] = pad([row["rationale"] for row in rows], batch_first=True, padding_value=255)
        batch["sample_id"] = [row["sample_id"] for row in rows]
    return batch


def unannotated(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What collators of transformers make of samples: they know no annotations."""
    return collate(rows, annotated=False)


def bert(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    config = {"vocab_size": 48, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes = {"intermediate_size": 32, "max_position_embeddings": 16, "id2label": dict(enumerate(NAMES))}
    return BertForSequenceClassification(BertConfig(**{**config, **sizes, **options}))


class OneLogit(nn.Module):
    """A BERT with one logit, trained by the binary cross-entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.net = bert(id2label={0: "good"})

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.net(input_ids, attention_mask).logits
        loss = None if labels is None else F.binary_cross_entropy_with_logits(logits[:, 0], labels.float())
        return SequenceClassifierOutput(loss=loss, logits=logits)


class Vision(nn.Module):
    """A ViT whose forward takes what that of transformers' models does."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes: dict[str, Any] = {"img_size": 8, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}
        self.net = VisionTransformer(num_classes=2, **sizes)

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.net(pixel_values)
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


@dataclass
class Training:
    """A training to be run.

    Attributes:
        folder: Where it writes.
        options: Of the monitor; None to train without one.
        epochs: How many.
        net: The model.
        texts: The kind of data: its training and validation set are `texts(12, 0)` and `texts(11, 1)`.
        wrong: The sample of the validation set whose rationale has a value that means nothing.
        fails_in: The epoch in which the monitor cannot explain, counted from 0 on whatever the trainer does.
        resumes: Whether to go on from what an earlier training in the folder has saved.
        validates: Whether there is a validation.
        precision: "bf16" for autocast.
        board: The folder that TensorBoard reads; None without it.
    """

    folder: Path
    options: dict[str, Any] | None = None
    epochs: int = 2
    net: nn.Module = field(default_factory=bert)
    texts: Callable[..., Texts] = Texts
    wrong: int | None = None
    fails_in: int | None = None
    resumes: bool = False
    validates: bool = True
    precision: str | None = None
    board: Path | None = None

    @property
    def monitor_options(self) -> dict[str, Any]:
        return {**OPTIONS, **(self.options or {})}

    def validation(self) -> Texts:
        return self.texts(11, 1) if self.wrong is None else self.texts(11, 1, self.wrong)

    def train_loader(self) -> DataLoader:
        return DataLoader(self.texts(12, 0), 4, shuffle=True, collate_fn=unannotated)

    def spoil(self, core: Any) -> None:
        """Let the monitor fail in an epoch."""
        make = core.explainer.evaluator

        def evaluator(context: Any, class_maps: int) -> Any:
            first = int(context.names.step == "the Trainer")  # the Trainer of transformers logs its first epoch as 1
            if context.moment.epoch - first == self.fails_in and core.reader.is_drawn:
                raise RuntimeError("out of memory")
            return make(context, class_maps)

        core.explainer.evaluator = evaluator


@dataclass
class Trained:
    """What a training leaves behind.

    Attributes:
        net: The model.
        monitor: The monitor, if there was one.
        state: Weights, buffers, modes and random states.
        history: The logged scalars of the monitor, an entry per evaluation.
    """

    net: nn.Module
    monitor: Any
    state: dict[str, Any]
    history: list[dict[str, float]] = field(default_factory=list)


def left_behind(net: nn.Module, monitor: Any, history: list[dict[str, float]] | None = None) -> Trained:
    gradients = {name: x.grad.clone() for name, x in net.named_parameters() if x.grad is not None}
    state: dict[str, Any] = {
        "weights": {name: x.clone() for name, x in net.state_dict().items()},
        "gradients": gradients,
        "frozen": {name: not x.requires_grad for name, x in net.named_parameters()},
        "modes": {name: each.training for name, each in net.named_modules()},
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(np.random.get_state(legacy=True)[1].astype(np.int64)),  # type: ignore[index]
        "python": random.getstate(),
    }
    return Trained(net, monitor, state, history or [])


def seeded() -> None:
    torch.manual_seed(1), np.random.seed(1), random.seed(1)


def by_lightning(training: Training) -> Trained:
    import pytorch_lightning as pl
    from pytorch_lightning.callbacks import ModelCheckpoint
    from pytorch_lightning.loggers import TensorBoardLogger

    class Classifier(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = training.net

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self.net(**batch).loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.net(**{name: x for name, x in batch.items() if name not in (*ANNOTATIONS, "labels")})

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    callbacks: list[Any] = [ModelCheckpoint(training.folder, save_last=True, save_top_k=0)]
    monitor = None
    if training.options is not None:
        monitor = RelevanceMonitor(**grouped(training.monitor_options))
        training.spoil(monitor.core)
        callbacks.append(monitor)
    quiet: dict[str, Any] = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "logger": TensorBoardLogger(training.board, name="", version="") if training.board else False,
        "accelerator": "cpu",
    }
    trainer = pl.Trainer(
        max_epochs=training.epochs,
        default_root_dir=training.folder,
        callbacks=callbacks,
        precision="bf16-mixed" if training.precision else "32-true",
        **quiet,
    )
    seeded()
    validation = DataLoader(training.validation(), 4, collate_fn=collate) if training.validates else None
    path = training.folder / "last.ckpt" if training.resumes else None
    trainer.fit(Classifier(), training.train_loader(), validation, ckpt_path=path, weights_only=False)
    scalars = {key: float(value) for key, value in trainer.callback_metrics.items()}
    return left_behind(training.net, monitor, [scalars])


def by_transformers(training: Training) -> Trained:
    from transformers import Trainer

    from lrptrain.callbacks import RelevanceMonitorCallback

    monitor = None
    if training.options is not None:
        monitor = RelevanceMonitorCallback(**grouped(training.monitor_options))
        training.spoil(monitor.core)
    arguments = quiet_arguments(
        training.folder,
        num_train_epochs=training.epochs,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        eval_strategy="epoch" if training.validates else "no",
        save_strategy="epoch",
        report_to=["tensorboard"] if training.board else [],
        bf16=bool(training.precision),
        torch_compile_backend="eager" if hasattr(training.net, "_orig_mod") else None,
        seed=1,
    )
    with patch.dict(os.environ, {"TENSORBOARD_LOGGING_DIR": str(training.board)}):
        trainer = Trainer(
            getattr(training.net, "_orig_mod", training.net),
            arguments,
            train_dataset=training.texts(12, 0),
            eval_dataset=training.validation() if training.validates else None,
            data_collator=unannotated,
            callbacks=[] if monitor is None else [monitor],
        )
        seeded()
        checkpoints = sorted(training.folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
        trainer.train(resume_from_checkpoint=str(checkpoints[-1]) if training.resumes else None)
    history = [entry for entry in trainer.state.log_history if "relevance/samples" in entry]
    return left_behind(training.net, monitor, history)


def a_loop(training: Training, prepare: Callable[..., Any], backward: Callable[[Tensor], None]) -> Trained:
    """A loop as users write it; what differs under Accelerate and Fabric is handed in."""
    from torch.utils.tensorboard import SummaryWriter

    seeded()
    optimizer = torch.optim.AdamW(training.net.parameters(), lr=1e-2)
    validation_loader = DataLoader(training.validation(), 4, shuffle=True, collate_fn=collate)
    model, optimizer, loader, validation = prepare(training.net, optimizer, training.train_loader(), validation_loader)
    monitor = None
    if training.options is not None:
        loggers = [SummaryWriter(str(training.board))] if training.board else []
        monitor = lrptrain.Monitor(
            model, validation, training.folder, loggers=loggers, **grouped(training.monitor_options)
        )
        training.spoil(monitor.core)
    saved = training.folder / "loop.pt"
    start = 0
    if training.resumes:
        state = torch.load(saved)
        start = state["epochs"]
        training.net.load_state_dict(state["weights"])
        if monitor is not None:
            monitor.load_state_dict(state["monitor"])
    history = []
    for epoch in range(start, training.epochs):
        model.train()
        for batch in loader:
            with torch.autocast("cpu", torch.bfloat16, enabled=training.precision is not None):
                loss = model(**batch).loss
            optimizer.zero_grad()
            backward(loss)
            optimizer.step()
        for _ in validation:  # as for a validation loss; the loader of the next epoch must come in the same order
            pass
        if monitor is not None:
            monitor.evaluate(epoch, (epoch + 1) * len(loader))
            history.append(monitor.scalars)
            weights = training.net.state_dict()
            torch.save({"epochs": epoch + 1, "weights": weights, "monitor": monitor.state_dict()}, saved)
    if monitor is not None:
        monitor.close()
    return left_behind(training.net, monitor, history)


def by_loop(training: Training) -> Trained:
    return a_loop(training, lambda *parts: parts, lambda loss: loss.backward())


def by_accelerate(training: Training) -> Trained:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)  # of an earlier test
    GradientState._reset_state()
    accelerator = Accelerator(cpu=True, mixed_precision=training.precision or "no")
    return a_loop(training, accelerator.prepare, accelerator.backward)


def by_fabric(training: Training) -> Trained:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed" if training.precision else None)

    def prepare(net: nn.Module, optimizer: Any, *loaders: Any) -> Any:
        return *fabric.setup(net, optimizer), *fabric.setup_dataloaders(*loaders)

    return a_loop(training, prepare, fabric.backward)


TRAINERS: dict[str, Callable[[Training], Trained]] = {
    "lightning": by_lightning,
    "transformers": by_transformers,
    "loop": by_loop,
    "accelerate": by_accelerate,
    "fabric": by_fabric,
}
