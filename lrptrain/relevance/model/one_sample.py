"""Models that take one sample without a batch axis, such as one bag `[rows, numbers]`, as models of batches."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lrptrain.relevance.model.preserve import preserved
from lrptrain.relevance.output.outputs import field_of


class OfOneSample(nn.Module):
    """A model that takes one sample without a batch axis, as one of batches: it is run once for each sample."""

    def __init__(self, model: nn.Module, bare: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.bare = bare
        self.training = model.training

    def forward(self, *samples: Tensor, **arguments: Any) -> Any:
        """Return what the model makes of the only sample; of several, their logits."""
        count = len(samples[0] if samples else arguments[self.bare[0]])
        outputs = [
            self.of_batch(self.model(*(x[row] for x in samples), **self.without_axis(arguments, row)))
            for row in range(count)
        ]
        if count == 1:
            return outputs[0]
        return torch.cat([logits for output in outputs if (logits := field_of(output, "logits")) is not None])

    def of_batch(self, output: Any) -> Any:
        """Return what the model makes of one sample as what it makes of a batch: `[classes]` are `[1, classes]`."""
        logits = field_of(output, "logits") if self.bare else None
        if logits is None or logits.ndim > 1 or logits.shape == (1,):
            return output
        return logits[None]

    def with_axis(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call of the model as those of a batch of one."""
        return {name: x[None] if name in self.bare else x for name, x in arguments.items()}

    def is_meant(self, arguments: Mapping[str, Any], call: Callable[[Mapping[str, Any]], Any]) -> bool:
        """Return whether as many logits as a bag has rows are the bag's: those of a batch are turned round with it."""
        if not self.bare or len(arguments[self.bare[0]]) < 2:
            return False
        turned = {name: x.flip(0) if name in self.bare else x for name, x in arguments.items()}
        with preserved(self.model), torch.no_grad():
            self.model.eval()  # in training, normalisations mix samples, and dropout differs
            answers = field_of(call(arguments), "logits")
            if answers is None or answers.shape != arguments[self.bare[0]].shape[:1]:
                return False
            others = field_of(call(turned), "logits")
        # As rounding in bfloat16 allows; what two rows of a bag have in common is no matter of rounding.
        return others is not None and not torch.allclose(others, answers.flip(0), rtol=0.02, atol=1e-6)

    def without_axis(self, arguments: Mapping[str, Any], row: int = 0) -> dict[str, Any]:
        """Return the arguments of a call of the model with one sample of a batch; the inverse of `with_axis`."""
        return {name: x[row] if name in self.bare else x for name, x in arguments.items()}


def bare_arguments(arguments: Mapping[str, Any], explained: str) -> tuple[str, ...]:
    """Return the arguments that have as many rows as an explained bag `[rows, numbers]`; none of another input."""
    bag = arguments[explained]
    if bag.ndim != 2 or not bag.is_floating_point():
        return ()
    return tuple(name for name, x in arguments.items() if isinstance(x, Tensor) and x.shape[:1] == bag.shape[:1])
