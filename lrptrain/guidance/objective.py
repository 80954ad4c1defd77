"""What a guidance asks for: which losses with which weights, on which maps."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from lrptrain.batch.logits import class_probabilities
from lrptrain.batch.task import CLASSES, Head, Task
from lrptrain.guidance.losses import LOSSES, GuidedBatch, LossSum, MapSettings, Needs
from lrptrain.guidance.swap import Swap
from lrptrain.guidance.swap_names import FINDINGS
from lrptrain.relevance import UnsupportedMethodError
from lrptrain.relevance.passes.interception import InterceptedForward
from lrptrain.relevance.registry import differentiable, get_method
from lrptrain.relevance.types import unknown_name

SWAP = "swap"
"""What users call training on swapped surroundings, beside the names of losses."""


@dataclass(frozen=True)
class Objective:
    """Which losses, on which maps, and whether the step itself sees swapped surroundings.

    Attributes:
        weights: The weight by name of the loss, of `lrptrain.guidance.LOSSES`.
        maps: The maps that losses on maps judge.
        swapped_share: The share of the samples that the step sees swapped, above 0 and up to 1; None for a step that
            sees its batch as it is.

    Raises:
        ValueError: If a loss is unknown, a weight not positive and finite, or the share beyond 1.
        UnsupportedMethodError: If the method is unknown or cannot be trained through.
    """

    weights: Mapping[str, float]
    maps: MapSettings = field(default_factory=MapSettings)
    task: Task = CLASSES
    swapped_share: float | None = None
    swap: Swap = field(default_factory=Swap)

    def __post_init__(self) -> None:
        if self.swapped_share is not None and not 0 < self.swapped_share <= 1:
            raise ValueError(
                f"the weight of {SWAP} is the share of the samples whose surroundings are swapped, above 0 and at most "
                f"1, not {self.swapped_share:g}; a loss beside it has a weight of its own: "
                f"{{'{SWAP}': 1.0, 'energy': 0.1}}"
            )
        for name, weight in self.weights.items():
            if name not in LOSSES:
                raise ValueError(unknown_name("guidance loss", name, [SWAP, *LOSSES]))
            if not 0 < weight < float("inf"):
                raise ValueError(f"the weight of {name} must be positive and finite, not {weight}")
        compares_swapped = any(LOSSES[name].needs is Needs.SECOND_PASS for name in self.weights)
        if not (self.swap.is_default or self.swaps or compares_swapped):
            raise ValueError(
                f"swap= says what {SWAP} and consistency swap, and {', '.join(self.weights)} swaps nothing: leave it "
                "out"
            )
        beside = [*([SWAP] if self.swaps else []), *self.weights]
        if self.swap.moves_evidence and len(beside) > 1:
            raise ValueError(
                f"{self.swap.title}: this swap moves what is annotated, so that no mask fits: guide by one of "
                f"{', '.join(beside)} alone"
            )
        # A label that is one of many in a sample: the step's loss takes all of them.
        if self.swaps and isinstance(self.task, Head) and callable(self.task.label) and not self.swap.keeps_places:
            raise ValueError(
                f"{SWAP} gives the step pixels or tokens of other samples, whose labels do not come with them: "
                "'consistency' asks the head alone, and swap='colour' leaves them in place"
            )
        if self.swaps and not self.weights:
            return  # nothing is explained
        chosen = get_method(self.maps.methods[0], self.maps.options)
        if self.needs_map and not chosen.differentiable:
            names = ", ".join(differentiable())
            raise UnsupportedMethodError(f"guidance cannot train through {self.maps.method}; it can through: {names}")

    @property
    def names(self) -> list[str]:
        """The names of all that is asked for."""
        swap = f"{SWAP} of {FINDINGS}" if self.swap.followed else SWAP
        return [*([swap] if self.swaps else []), *self.weights]

    @property
    def swaps(self) -> bool:
        """Whether the step sees swapped surroundings."""
        return self.swapped_share is not None

    @property
    def needs_annotation(self) -> bool:
        """Whether a sample needs an annotation to be guided: for a map that is judged, or for the swap."""
        return self.swap.needs_annotation or self._judges_maps

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do yet: nothing to swap, and no loss that goes without."""
        return self.swap.is_empty and not self._judges_maps

    @property
    def _judges_maps(self) -> bool:
        """Whether a loss is computed from the annotation itself, and so from a recording."""
        return any(LOSSES[name].needs is not Needs.SECOND_PASS for name in self.weights)

    @property
    def needs_map(self) -> bool:
        """Whether relevance is computed at all."""
        return any(LOSSES[name].needs is Needs.MAP for name in self.weights)

    @property
    def keeps_maps(self) -> bool:
        """Whether a recording is to hold the attention maps: some rules go through them, all else makes them again."""
        if not self.needs_map:
            return False
        return get_method(self.maps.methods[0], self.maps.options).keeps_maps(self.maps.options)

    @property
    def needs_label(self) -> bool:
        """Whether a sample needs a label to be guided."""
        return self.needs_map and self.maps.target == "label"

    def records(self, guided: int, samples: int) -> bool:
        """Return whether to record the step's own forward pass, given how many of its samples are guided."""
        # Of fewer, another pass is cheaper than recording the step's own.
        return self._judges_maps and 2 * guided >= samples

    def losses(
        self,
        forward: InterceptedForward,
        annotation: Shaped[Tensor, " batch *area"],
        label: Int[Tensor, " batch *labels"] | None,
        guided: Int[Tensor, " guided"],
        generator: torch.Generator | None = None,
    ) -> dict[str, LossSum]:
        """Compute every loss on the guided samples, `guided`, of a forward pass.

        Annotations are as `evidence` makes them; labels, class indices or 0 and 1 of each of several, are needed for
        `target="label"`.
        """
        # What several losses need (a recording, a map, a swap's input) is computed once, in this object.
        batch = GuidedBatch(forward, annotation, label, guided, self.maps, generator, self.swap, self.task)
        # What needs a map first: a stable sort, so that losses of one kind keep the order of their weights.
        names = sorted(self.weights, key=lambda name: LOSSES[name].needs)
        with self.task.reading():
            return {name: LOSSES[name].compute(batch) for name in names}

    def swap_distance(
        self,
        forward: InterceptedForward,
        annotation: Shaped[Tensor, " batch *area"],
        guided: Int[Tensor, " guided"],
        generator: torch.Generator | None = None,
    ) -> LossSum:
        """Measure how far the prediction moves under a swap, by default of what is not evidence.

        That is the total variation distance of the probabilities, 0..1.

        This is no loss: it has no graph, and runs without dropout. It begins with what the user's step gave the model,
        also where the step was made to see something else. Near 0, the model uses nothing but the evidence,
        whatever its maps look like.
        """
        original = forward.original
        swapped = self.swap(original, annotation, generator, arguments=forward.originals)
        guided = guided.to(original.device)
        # What the step was made to see may differ from what it gave in these, too.
        given = {name: forward.originals.get(name) for name in swapped.arguments}
        full = torch.ones_like(original)  # what stands for the mask of texts that come without one
        others = {name: (full if x is None else x)[guided.to(original.device)] for name, x in given.items()}
        inputs = ((original, others), (swapped.explained, swapped.arguments_of(guided)))
        with torch.no_grad(), self.task.reading():
            # Without dropout, which would move the prediction on its own.
            before, after = (
                class_probabilities(self.task.by_answer(logits), dtype=None)
                for logits in (
                    forward.again(explained[guided], guided, evaluating=True, others=more) for explained, more in inputs
                )
            )
        return LossSum.over((before - after).abs().sum(-1) / 2, swapped.which.to(before.device)[guided])


def parse_losses(loss: str | Mapping[str, float], weight: float = 1.0) -> dict[str, float]:
    """Return weights by name, for `"consistency+energy"` or `{"consistency": 1.0, "energy": 0.1}`, times a weight."""
    if not isinstance(loss, Mapping | str) or not loss:
        raise ValueError(f"loss must be a text like 'consistency+energy', or weights by name, not {loss!r}")
    if isinstance(loss, Mapping):
        return {name: float(factor) * weight for name, factor in loss.items()}
    names = [name.strip() for name in loss.split("+")]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{loss!r} names {twice} twice; weights by name say how much each counts: {{'{twice}': 1.0}}")
    return dict.fromkeys(names, 1.0 * weight)
