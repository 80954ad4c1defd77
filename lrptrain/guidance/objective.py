"""What a guidance asks for, and its value on one call of the model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.guidance.consistency import divergences, swap_outside, swap_tokens, two_classes
from lrptrain.guidance.evidence import at_tokens
from lrptrain.guidance.map_losses import MAP_LOSSES
from lrptrain.guidance.right_reasons import right_reasons
from lrptrain.metrics.base import at_least_float32, usable_scores
from lrptrain.relevance import UnsupportedMethodError
from lrptrain.relevance.interception import InterceptedForward
from lrptrain.relevance.recording import Recording
from lrptrain.relevance.registry import differentiable, get_method
from lrptrain.relevance.types import unknown_name

LOSSES = (*MAP_LOSSES, "rrr", "consistency")
SHARED = 0.5
"""From this share of guided samples on, the caller's own forward pass is recorded; below, their own one is cheaper."""


@dataclass(frozen=True)
class Term:
    """A loss on some samples, so that several processes can take the mean over all of theirs.

    Attributes:
        total: Sum over the samples that can be judged.
        count: How many these are.
    """

    total: Float[Tensor, ""]
    count: Int[Tensor, ""]


@dataclass(frozen=True)
class Objective:
    """Which losses, on which maps.

    Attributes:
        weights: Weight by name of the loss, of `LOSSES`.
        method: Whose maps the map losses judge.
        options: Of the method.
        target: Explain the class of the label, or the predicted one.
        first_order: See `lrptrain.attribute`.
        margin: Pixels (or tokens) around the evidence that `consistency` keeps; None: 2 pixels, 0 tokens.

    Raises:
        ValueError: If a loss is unknown, a weight not positive and finite, or the margin negative.
        UnsupportedMethodError: If the method is unknown or cannot be trained through.
    """

    weights: Mapping[str, float]
    method: str = "generic_attention"
    options: Mapping[str, Any] = field(default_factory=dict)
    target: Literal["label", "predicted"] = "label"
    first_order: bool = False
    margin: int | None = None

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if name not in LOSSES:
                raise ValueError(unknown_name("guidance loss", name, LOSSES))
            if not 0 < weight < float("inf"):
                raise ValueError(f"the weight of {name} must be positive and finite, not {weight}")
        if self.margin is not None and self.margin < 0:
            raise ValueError(f"margin must not be negative, not {self.margin}")
        if self.target not in ("label", "predicted"):
            raise ValueError(f"target must be 'label' or 'predicted', not {self.target!r}")
        if not get_method(self.method, self.options).differentiable and self.needs_map:
            can = ", ".join(differentiable())
            raise UnsupportedMethodError(f"guidance cannot train through {self.method}; it can through: {can}")

    @property
    def needs_map(self) -> bool:
        """Whether relevance is computed at all."""
        return any(name in MAP_LOSSES for name in self.weights)

    def records(self, guided: int, samples: int) -> bool:
        """Whether to record the caller's own forward pass."""
        return (self.needs_map or "rrr" in self.weights) and guided >= SHARED * samples

    def terms(
        self,
        call: InterceptedForward,
        annotation: Shaped[Tensor, "batch *area"],
        label: Int[Tensor, " batch"] | None,
        rows: Int[Tensor, " rows"],
        generator: torch.Generator | None = None,
    ) -> dict[str, Term]:
        """Every loss on the guided samples of a call.

        Args:
            call: Of the model, with a batch.
            annotation: Made by `evidence`.
            label: Class indices; needed for `target="label"`.
            rows: The guided samples.
            generator: Of the swaps.

        Raises:
            ValueError: If annotation and input differ in size.
        """
        found: dict[str, Term] = {}
        if set(self.weights) - {"consistency"}:
            found |= self._on_relevance(call, annotation, label, rows)
        if "consistency" in self.weights:
            found["consistency"] = self._consistency(call, annotation, rows, generator)
        return found

    def reliance(
        self,
        call: InterceptedForward,
        annotation: Shaped[Tensor, "batch *area"],
        rows: Int[Tensor, " rows"],
        generator: torch.Generator | None = None,
    ) -> Term:
        """How far the prediction moves when what is not evidence is swapped: total variation distance, 0..1.

        No loss, without a graph and without dropout. Near 0, the model uses nothing but the evidence, whatever its maps
        look like. A high value has two readings, for the swap can bring another sample's object, too.
        """
        swapped, judged = self._swapped(call, annotation, generator)
        rows = rows.to(swapped.device)
        pair = (call.explained[rows], swapped[rows])
        with torch.no_grad():
            before, after = (
                two_classes(at_least_float32(call.again(x, rows, evaluating=True))).softmax(-1) for x in pair
            )
        return _term((before - after).abs().sum(-1) / 2, judged.to(before.device)[rows])

    def _on_relevance(
        self, call: InterceptedForward, annotation: Tensor, label: Tensor | None, rows: Tensor
    ) -> dict[str, Term]:
        if call.tape is None:
            recorded, annotation = call.recording(rows), annotation[rows]
            label = None if label is None else label[rows]
        else:
            recorded, others = call.recording(), torch.ones(call.samples, dtype=torch.bool, device=annotation.device)
            others[rows] = False
            annotation = annotation.masked_fill(others.view(-1, *[1] * (annotation.ndim - 1)), IGNORED)
            label = None if label is None else torch.where(others.to(label.device), 0, label)
        found = self._on_map(recorded, annotation, label) if self.needs_map else {}
        if "rrr" in self.weights:
            found["rrr"] = _term(right_reasons(recorded, annotation), (annotation != IGNORED).flatten(1).any(1))
        return found

    def _on_map(self, recorded: Recording, annotation: Tensor, label: Tensor | None) -> dict[str, Term]:
        target = label if self.target == "label" else None
        relevance = recorded.attribute(
            target, self.method, create_graph=True, first_order=self.first_order, **self.options
        )
        tokens = at_tokens(annotation, relevance.grid)
        _, judged = usable_scores(relevance.scores, tokens)
        losses = {name: MAP_LOSSES[name] for name in self.weights if name in MAP_LOSSES}
        return {name: _term(loss(relevance.scores, tokens), judged) for name, loss in losses.items()}

    def _consistency(
        self, call: InterceptedForward, annotation: Tensor, rows: Tensor, generator: torch.Generator | None
    ) -> Term:
        swapped, judged = self._swapped(call, annotation, generator)
        rows = rows.to(swapped.device)
        found = divergences(at_least_float32(call.logits()[rows]), at_least_float32(call.again(swapped[rows], rows)))
        return _term(found, judged.to(found.device)[rows])

    def _swapped(
        self, call: InterceptedForward, annotation: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        swap, margin = (swap_outside, 2) if call.explained.ndim == 4 else (swap_tokens, 0)
        return swap(call.explained, annotation, margin if self.margin is None else self.margin, generator)


def parse_losses(loss: str | Mapping[str, float], weight: float = 1.0) -> dict[str, float]:
    """`"consistency+energy"` or `{"consistency": 1.0, "energy": 0.1}`, times a weight, as weights by name."""
    if not isinstance(loss, Mapping | str) or not loss:
        raise ValueError(f"loss must be a text like 'consistency+energy', or weights by name, not {loss!r}")
    names = [] if isinstance(loss, Mapping) else [name.strip() for name in loss.split("+")]
    if len(set(names)) < len(names):
        raise ValueError(f"{loss!r} names a loss twice; give it a weight instead: {{'{names[0]}': 2.0}}")
    named = dict(loss) if isinstance(loss, Mapping) else dict.fromkeys(names, 1.0)
    return {name: float(own) * weight for name, own in named.items()}


def _term(values: Float[Tensor, " batch"], judged: Tensor) -> Term:
    judged = judged.to(values.device)
    return Term(torch.where(judged, values, 0).sum(), judged.sum())
