"""What is audited: a model, samples it has read, and maps of them that tests share."""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.audit.comparison import Fill, predict_logits
from lrptrain.batch import model_inputs
from lrptrain.relevance import Relevance, attribute
from lrptrain.relevance.preserve import unwrap

Batch = Mapping[str, Tensor]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Part:
    """A batch that the model has read.

    Attributes:
        batch: In the contract of `lrptrain.batch`.
        inputs: Arguments of the model's forward.
        logits: What it returned.
        label: -1 where there is none.
    """

    batch: Batch
    inputs: Tensor | dict[str, Tensor]
    logits: Float[Tensor, "batch classes"]
    label: Int[Tensor, " batch"]

    @property
    def target(self) -> Int[Tensor, " batch"]:
        """What is explained: the predicted class."""
        return self.logits.argmax(1)


@dataclass
class Subject:
    """A model and its samples, part by part; maps are kept, so that tests share them.

    Attributes:
        model: In evaluation mode.
        parts: The samples.
        methods: The methods under audit.
        train: Samples with labels, on which the tests that train something do so.
        retrain: Trains the model anew from a seed and returns it.
        retrain_seconds: About how long that takes; 0 if it is not known.
        fill: What removed pixels become.
        seed: Of all that is drawn.
    """

    model: nn.Module
    parts: Sequence[Part]
    methods: tuple[str, ...]
    train: Sequence[Part] = ()
    retrain: Callable[[int], nn.Module] | None = None
    retrain_seconds: float = 0.0
    fill: Fill = 0.0
    seed: int = 0
    _kept: dict[object, object] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(part.label) for part in self.parts)

    @property
    def logits(self) -> Float[Tensor, "samples classes"]:
        """Of all samples."""
        return torch.cat([part.logits for part in self.parts])

    @property
    def label(self) -> Int[Tensor, " samples"]:
        """Of all samples, -1 without one."""
        return torch.cat([part.label for part in self.parts])

    def maps(self, method: str) -> list[Relevance]:
        """A method's maps of all parts for the predicted class."""
        return self.once(("maps", method), lambda: [explain(self.model, part, method) for part in self.parts])

    def train_maps(self, method: str) -> list[Relevance]:
        """The same of the training samples."""
        return self.once(("train", method), lambda: [explain(self.model, part, method) for part in self.train])

    def serving(self) -> list[str]:
        """The methods that can serve the model."""
        return [method for method in self.methods if self._serves(method)]

    def _serves(self, method: str) -> bool:
        try:
            self.maps(method)
        except Exception:  # the method's own tests tell why
            return False
        return True

    def once(self, key: object, make: Callable[[], Made]) -> Made:
        """What was made under a key before, or is made now."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]  # type: ignore[return-value]

    def few(self, samples: int) -> "Subject":
        """The first samples alone, and one batch to train on, to try out what a test costs."""
        return replace(self, parts=[_first(self.parts[0], samples)], train=self.train[:1], _kept={})


def prepare(model: nn.Module, batches: Iterable[Batch]) -> list[Part]:
    """Let the model read batches.

    Args:
        model: In evaluation mode; its output is logits or has `.logits`.
        batches: In the contract of `lrptrain.batch`, where the model is.

    Raises:
        ValueError: If there is no sample.
    """
    parts = []
    for batch in batches:
        inputs = model_inputs(model, batch)
        with torch.no_grad():
            logits = predict_logits(model, inputs).float()
        label = batch["label"] if "label" in batch else torch.full((len(logits),), -1, device=logits.device)
        parts.append(Part(batch, inputs, logits, label))
    if not sum(len(part.label) for part in parts):
        raise ValueError("an audit needs samples, and the batches hold none")
    return parts


def fingerprint(model: nn.Module, batches: Iterable[Batch]) -> str:
    """Tells models of other weights and other samples apart: what was measured of one is not of another."""
    found = 0
    tensors = list(unwrap(model).state_dict().values())
    for batch in batches:
        tensors += [value for value in batch.values() if isinstance(value, Tensor)]
    for tensor in tensors:
        if isinstance(tensor, Tensor):
            flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            found = zlib.crc32(flat.numpy().tobytes(), found)
    return f"{found:08x}"


def explain(model: nn.Module, part: Part, method: str) -> Relevance:
    """A model's maps of a part for the class that the model under audit predicts."""
    found = attribute(model, part.inputs, part.target, method)
    return replace(found, scores=found.scores.detach(), input=None, attention=None)


def _first(part: Part, samples: int) -> Part:
    def cut(columns: Batch) -> dict[str, Tensor]:
        return {name: column[:samples] for name, column in columns.items()}

    inputs = part.inputs[:samples] if isinstance(part.inputs, Tensor) else cut(part.inputs)
    return Part(cut(part.batch), inputs, part.logits[:samples], part.label[:samples])
