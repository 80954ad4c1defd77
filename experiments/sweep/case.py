"""A model of the shelf, built small with random weights, and what it is asked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

SAMPLES = 2


@dataclass
class Subject:
    """A built model with a batch.

    Attributes:
        model: In float64, in eval mode.
        inputs: An image batch, or keyword arguments.
        target: What is explained.
        shared: Names of the inputs that all samples share, such as the texts that images are compared with.
        options: Further arguments of `attribute`, as `explain=`.
        embedding: The module whose output is explained, for token ids.
        explicit: Build the same model with attention in separate operations, for the oracle.
    """

    model: nn.Module
    inputs: Any
    target: Any = 1
    shared: frozenset[str] = frozenset()
    options: Mapping[str, Any] = field(default_factory=dict)
    embedding: nn.Module | None = None
    explicit: Callable[[], nn.Module] | None = None

    def sample(self, index: int) -> Any:
        """The inputs of one sample."""
        rows = slice(index, index + 1)
        if isinstance(self.inputs, Tensor):
            return self.inputs[rows]
        return {name: x[rows] if self._per_sample(name, x) else x for name, x in self.inputs.items()}

    def _per_sample(self, name: str, x: Any) -> bool:
        return isinstance(x, Tensor) and name not in self.shared and x.ndim > 0 and x.shape[0] == SAMPLES

    def run(self, inputs: Any | None = None, model: nn.Module | None = None, **options: Any) -> Any:
        """The model's output, without lrptrain."""
        model = self.model if model is None else model
        inputs = self.inputs if inputs is None else inputs
        return model(inputs) if isinstance(inputs, Tensor) else model(**inputs, **options)

    def explained(self, output: Any) -> Tensor:
        """The explained number of every sample, without lrptrain."""
        if callable(self.target):
            return self.target(output)
        logits = getattr(output, "logits", output)
        if isinstance(output, Mapping):
            logits = output["logits"]
        index = self.target if isinstance(self.target, tuple) else (self.target,)
        return logits[(slice(None), *index)]


@dataclass(frozen=True)
class Case:
    """A line of the sweep.

    Attributes:
        library: timm, transformers or torchvision.
        family: What is one row of the table.
        name: The model or class.
        task: What it answers, for the table.
        build: Makes the model with its batch.
    """

    library: str
    family: str
    name: str
    task: str
    build: Callable[[], Subject]

    @property
    def key(self) -> str:
        """Names the case in the results."""
        return f"{self.library}/{self.family}/{self.name}"


def randomised(model: nn.Module) -> nn.Module:
    """Random weights of every parameter, in float64 and eval mode, so that no rule is tested at 0 or 1 only.

    Matrices get the size that keeps activations near 1; norms and other vectors are spread around what they are.
    """
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim > 1:
            fan = max(parameter[0].numel(), 1)
            parameter.data = noise / fan**0.5
        else:
            parameter.data = parameter.data + 0.1 * noise.to(parameter.dtype)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
        if name.endswith("running_var"):
            buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
    return model.double().eval()
