"""Run an unmodified model with other attention probabilities."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import isfunction
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lrptrain.batch.content import content_tokens
from lrptrain.relevance import UnsupportedModelError, record
from lrptrain.relevance.model.preserve import preserved, unwrap
from lrptrain.relevance.model.process_wide import eager
from lrptrain.relevance.passes.recording import Inputs, Recording, explained_input
from lrptrain.relevance.tape.explicit import explicit_attention
from lrptrain.relevance.tape.functions import DECOMPOSED, canonical_name, enterable

Probabilities = Float[Tensor, "batch heads length length"]
Replace = Callable[[int, Probabilities], Probabilities]


@dataclass(eq=False)
class ReplacedAttention(TorchFunctionMode):
    """Lets one forward pass of any model use other attention probabilities.

    Fused attention is written out; so the model's kernels do not matter, and gradients flow through what `replace`
    returns. Masks act before: a probability of 0 belongs to a key that may not be attended to, and should stay 0.

    Attributes:
        replace: `replace(block, probabilities)`, called for every block in order.
        samples: Size of the batch, which some models merge with their heads.
        blocks: Number of blocks of which the attention was replaced so far.
    """

    replace: Replace
    samples: int
    blocks: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Carry out one call of the model."""
        kwargs = kwargs or {}
        name = canonical_name(func)
        # Fused kernels and composite functions are entered, so that their softmax arrives here as a call of its own.
        if name == "scaled_dot_product_attention":
            with self:
                return explicit_attention(*args, **kwargs)
        if name in DECOMPOSED and isfunction(func):
            with self:
                return enterable(func)(*args, **kwargs)
        result = func(*args, **kwargs)
        if name == "softmax" and _is_attention(result, args, kwargs):
            return self._replace_attention(result)
        return result

    def _replace_attention(self, probabilities: Tensor) -> Tensor:
        shape = probabilities.shape
        # Some models merge batch and heads, or have windows: [batch * heads, n, n] -> [batch, heads, n, n].
        per_head = probabilities.reshape(self.samples, -1, *shape[-2:])
        replaced = self.replace(self.blocks, per_head)
        self.blocks += 1
        return replaced.reshape(shape)


def _is_attention(result: Tensor, args: tuple, kwargs: Mapping[str, Any]) -> bool:
    """Whether this is the result of a softmax over the last axis of square matrices."""
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    square = result.ndim >= 3 and result.shape[-1] == result.shape[-2]
    return square and dim is not None and dim % result.ndim == result.ndim - 1


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the model itself, unwrapped, in evaluation mode and without checkpointing; it is left as it was."""
    model = unwrap(model)
    with preserved(model), torch.inference_mode(False), eager():
        # Not `model.eval()`, which a module may override.
        for module in model.modules():
            module.training = False
            if getattr(module, "grad_checkpointing", False) is True:  # timm's acts in evaluation mode, too
                module.grad_checkpointing = False  # type: ignore[assignment]
        yield model


def record_replaced(model: nn.Module, inputs: Inputs, replace: Replace) -> Recording:
    """Record a forward pass with other attention probabilities in every block.

    Raises:
        UnsupportedModelError: If not exactly the attention of the model's blocks was replaced.
    """
    with eager(), ReplacedAttention(replace, explained_input(inputs)[1].shape[0]) as replaced:
        recording = record(model, inputs)
    if replaced.blocks != len(recording.blocks):
        raise UnsupportedModelError(
            f"the model has {len(recording.blocks)} blocks of attention, but {replaced.blocks} softmax operations over "
            "square matrices: it cannot be run with other attention"
        )
    return recording


def content_of_map(inputs: Inputs, tokens: int) -> Bool[Tensor, "batch tokens"]:
    """Return the tokens of a map that are compared: all patches of an image, the content tokens of a text.

    Args:
        inputs: Arguments of the model's forward.
        tokens: Number of tokens of a map.
    """
    explained = explained_input(inputs)[1]
    all_tokens = torch.ones(explained.shape[0], tokens, dtype=torch.bool, device=explained.device)
    if explained.ndim == 4:
        return all_tokens
    # A text may come as embeddings: of the token ids only the shape is read.
    columns = inputs if isinstance(inputs, Mapping) else {}
    return content_tokens({**columns, "input_ids": all_tokens})
