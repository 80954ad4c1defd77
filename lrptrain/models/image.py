"""Image classifiers: any of timm's by name, or a Hugging Face one."""

from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor

from lrptrain.models.classifier import Classifier, Schedule
from lrptrain.models.huggingface import huggingface_classifier
from lrptrain.models.timm import timm_classifier


class ImageClassifier(Classifier):
    """Fine-tune an image classifier on batches with `image` and `label`.

    A checkpoint holds the weights and all it takes to rebuild the model: `ImageClassifier.load_from_checkpoint(path)`
    needs neither the network nor the pretrained weights that training started from.

    Logged: `train/loss`, `val/loss` (cross-entropy, nats), `val/accuracy`, `test/accuracy` (0..1).

    Args:
        num_classes: Number of classes.
        model: With timm: a model name. With transformers: a folder or hub name (its weights are loaded), or a config as
            a dict with `model_type` (random weights).
        backend: The library of the model.
        pretrained: timm only: `False` random weights, `True` timm's own from the hub, or the path of a state dict
            (`.safetensors`, `.pt`) or of a checkpoint of this class.
        model_kwargs: Passed to `timm.create_model`, or overrides of the Hugging Face config.
        lr: Learning rate, the peak one for `one_cycle`.
        weight_decay: AdamW's.
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
        schedule: Schedule = "one_cycle",
    ) -> None:
        super().__init__(num_classes, lr, weight_decay, schedule)
        self.save_hyperparameters()
        options = model_kwargs or {}
        self.net: Any
        if backend == "timm" and isinstance(model, str):
            self.net = timm_classifier(model, num_classes, pretrained, **options)
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
        """Logits of the images, which must be normalised as the model expects."""
        output = self.net(image)
        return output if isinstance(output, Tensor) else output.logits
