"""What an audit works on: a model, samples with its predictions, and the maps that the tests share."""

import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.auditing.brought import Fill, predict_logits, synchronize
from lrptrain.batch import model_inputs
from lrptrain.batch.content import content_tokens
from lrptrain.relevance import Relevance, attribute
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.passes.recording import Inputs, explained_input
from lrptrain.trainers.checks import check_counts

FORMAT = 2
"""Raised when the values of a test change: those of an earlier version must not be taken for its own."""
Batch = Mapping[str, Tensor]
Result = TypeVar("Result")


@dataclass(frozen=True)
class AuditBatch:
    """A batch with the model's predictions.

    Attributes:
        batch: The batch in the contract of `lrptrain.batch`.
        inputs: Arguments of the model's forward.
        logits: What the model returned.
        label: The labels; -1 where there is none.
    """

    batch: Batch
    inputs: Tensor | dict[str, Tensor]
    logits: Float[Tensor, "batch classes"]
    label: Int[Tensor, " batch"]

    @property
    def target(self) -> Int[Tensor, " batch"]:
        """The predicted class, which is explained."""
        return self.logits.argmax(1)

    def first(self, samples: int) -> "AuditBatch":
        """Return its first samples."""

        def cut(columns: Batch) -> dict[str, Tensor]:
            return {name: column[:samples] for name, column in columns.items()}

        inputs = self.inputs[:samples] if isinstance(self.inputs, Tensor) else cut(self.inputs)
        return AuditBatch(cut(self.batch), inputs, self.logits[:samples], self.label[:samples])


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """How an audit measures.

    Examples:
        >>> from lrptrain.auditing import AuditSettings
        >>> AuditSettings(tests=["leave_one_out"], batch_size=32).seed  # lrptrain.audit(model, loader, settings=...)
        0

    Attributes:
        tests: Names of the tests to run, of `lrptrain.auditing.registered_tests()`; None for all.
        batch_size: Samples per forward pass.
        seed: Seed of all that is drawn.
        fill: What removed pixels become, one number or one per channel: black, in normalised units -mean / std.
        random_maps: How many random orders a method's order is compared with.
        stages: In how many stages the weights are randomised, from the logits downwards.

    Raises:
        ValueError: If a count is not a positive whole number.
    """

    tests: Sequence[str] | None = None
    batch_size: int = 16
    seed: int = 0
    fill: Fill = 0.0
    random_maps: int = 3
    stages: int = 4

    def __post_init__(self) -> None:
        check_counts(batch_size=self.batch_size, random_maps=self.random_maps, stages=self.stages)


@dataclass
class AuditContext:
    """A model and its samples, batch by batch. Maps are kept, so that the tests share them.

    Attributes:
        model: The model, in evaluation mode.
        batches: The samples.
        methods: Names of the methods under audit.
        settings: How each test measures.
    """

    model: nn.Module
    batches: Sequence[AuditBatch]
    methods: tuple[str, ...]
    settings: AuditSettings = AuditSettings()
    _cache: dict[object, object] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of samples."""
        return sum(len(batch.label) for batch in self.batches)

    @property
    def logits(self) -> Float[Tensor, "samples classes"]:
        """The logits of all samples."""
        return torch.cat([batch.logits for batch in self.batches])

    @property
    def label(self) -> Int[Tensor, " samples"]:
        """The labels of all samples; -1 where there is none."""
        return torch.cat([batch.label for batch in self.batches])

    def maps(self, method: str) -> list[Relevance]:
        """Return a method's maps of all batches for the predicted class."""
        return [relevance for relevance, _ in self._timed_maps(method)]

    def seconds(self, method: str) -> list[float]:
        """Return the seconds that a method's maps took, per batch."""
        return [seconds for _, seconds in self._timed_maps(method)]

    def _timed_maps(self, method: str) -> list[tuple[Relevance, float]]:
        return self.cached(("maps", method), lambda: [self._explain(batch, method) for batch in self.batches])

    def _explain(self, batch: AuditBatch, method: str) -> tuple[Relevance, float]:
        synchronize(batch.target.device)
        started = time.perf_counter()
        relevance = attribute(self.model, batch.inputs, batch.target, method)
        synchronize(batch.target.device)
        seconds = time.perf_counter() - started
        # Only the scores are needed: inputs and attention would hold memory for as long as the maps are kept.
        return replace(relevance, scores=relevance.scores.detach(), input=None, attention=None), seconds

    def supported_methods(self) -> list[str]:
        """Return the methods that can explain the model."""
        return [method for method in self.methods if self._is_supported(method)]

    def _is_supported(self, method: str) -> bool:
        few = self.cached("first sample", lambda: self.first_samples(1))
        try:
            few.maps(method)
        except Exception:  # the tests of the method itself say why
            return False
        return True

    def cached(self, key: object, compute: Callable[[], Result]) -> Result:
        """Return what was computed under a key before; else compute it."""
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]  # type: ignore[return-value]

    def first_samples(self, samples: int) -> "AuditContext":
        """Return a context of the first samples, to find out what a test costs."""
        return replace(self, batches=[self.batches[0].first(samples)], _cache={})


def predict_batches(model: nn.Module, batches: Iterable[Batch]) -> list[AuditBatch]:
    """Run the model on batches."""
    predicted = []
    for batch in batches:
        inputs = model_inputs(model, batch)
        with torch.no_grad():
            logits = predict_logits(model, inputs).float()  # also of a model in half or double precision
        label = batch["label"] if "label" in batch else torch.full((len(logits),), -1, device=logits.device)
        predicted.append(AuditBatch(batch, inputs, logits, label))
    if not sum(len(batch.label) for batch in predicted):
        raise ValueError("an audit needs samples, but the batches contain none")
    return predicted


def fingerprint(model: nn.Module, batches: Iterable[Batch]) -> str:
    """Return a checksum of weights and samples: measurements of others must not be taken for theirs."""
    tensors = list(unwrap(model).state_dict().values())
    for batch in batches:
        tensors += [value for value in batch.values() if isinstance(value, Tensor)]
    checksum = FORMAT
    for tensor in tensors:
        if isinstance(tensor, Tensor):
            # As bytes, since NumPy has no bfloat16.
            flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            checksum = zlib.crc32(flat.numpy().tobytes(), checksum)
    return f"{checksum:08x}"


def content_of_map(inputs: Inputs, tokens: int) -> Bool[Tensor, "batch tokens"]:
    """Return the tokens of a map that are compared: all patches of an image, the content tokens of a text."""
    explained = explained_input(inputs)[1]
    all_tokens = torch.ones(explained.shape[0], tokens, dtype=torch.bool, device=explained.device)
    if explained.ndim == 4:
        return all_tokens
    columns = inputs if isinstance(inputs, Mapping) else {}
    is_text = explained.shape[:2] == all_tokens.shape  # else nothing tells which token is which
    return content_tokens({**columns, "input_ids": explained if is_text else all_tokens})
