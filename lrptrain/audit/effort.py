"""How much an audit spends on each of its tests."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Effort:
    """Numbers that make tests finer and dearer.

    Attributes:
        random_maps: Orders that a method's order is compared with.
        stages: In which the weights are lost.
        shuffles: Of the attention weights.
        search_copies: Attention rows that are searched for at once.
        search_steps: Of that search.
        frozen_steps: Of training the token-wise model.
        adversary_steps: Of training an adversary.
        strengths: Of an adversary's wish for other maps, beside the same predictions.
        seeds: Models trained anew.
    """

    random_maps: int = 3
    stages: int = 4
    shuffles: int = 100
    search_copies: int = 5
    search_steps: int = 500
    frozen_steps: int = 300
    adversary_steps: int = 100
    strengths: tuple[float, ...] = (0.1, 1.0)
    seeds: int = 8

    def small(self) -> "Effort":
        """Enough to see what a test costs."""
        return replace(self, shuffles=4, search_steps=4, frozen_steps=4, adversary_steps=2)
