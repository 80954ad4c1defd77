"""What is compared: plain training, every guidance loss, controls, and an upper bound."""

from dataclasses import dataclass, field
from typing import Any, Literal

from lrptrain.repairing.balance import Balance

Rule = Literal["cross_entropy", "swapped", "group_dro"]
WEIGHTS = (0.1, 1.0, 10.0)


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Attributes:
        guidance: Arguments of `RelevanceGuidance`, without the weight; None without guidance.
        weights: To choose from; empty where there is nothing to choose.
        rule: The task's loss: cross-entropy, the same on images with swapped surroundings, or group DRO.
        clean: Trained on data without the shortcut.
        group_step: The step size of the weights of the groups, for group DRO.
        weight_decay: AdamW's.
        repair: What the last layer is trained anew on after the training, of the validation split; see
            `lrptrain.repair`. None without.
    """

    guidance: dict[str, Any] | None = None
    weights: tuple[float, ...] = ()
    rule: Rule = "cross_entropy"
    clean: bool = False
    group_step: float = 0.01
    weight_decay: float = 0.05
    repair: Balance | None = None


def _guided(loss: str, weights: tuple[float, ...] = WEIGHTS, **options: Any) -> Arm:
    return Arm({"loss": loss, **options}, weights)


PLAIN, UPPER = "plain", "no shortcut in training (upper bound)"
COMBINED = "consistency + "
"""What the names of combined arms begin with; the name of the other loss follows."""
FULL = ", with plain's steps"
"""What the name of an arm ends with that gets as many steps as plain training, and so more compute."""
SINGLE = {
    "robust_vit": _guided("robust_vit", first_order=True),
    "energy": _guided("energy"),
    "energy, attnlrp": _guided("energy", method="attnlrp"),
    "l1": _guided("l1"),
    "ppce": _guided("ppce"),
    "rrr": _guided("rrr", (1.0, 10.0, 100.0)),
    "rationale_bce": _guided("rationale_bce"),
    "rationale_kl": _guided("rationale_kl"),
    "order": _guided("order"),
    "consistency": _guided("consistency"),
}
"""One loss each; on maps of `generic_attention` where nothing else is said, `robust_vit` as published: first order."""
CONTROLS = {
    PLAIN: Arm(),
    "swapped cross-entropy": Arm(rule="swapped"),
    "swap": Arm({"loss": "swap"}),
    "group DRO": Arm(rule="group_dro"),
    "last layer anew, other surroundings": Arm(repair="surroundings"),
    "last layer anew, groups alike (DFR)": Arm(repair="groups"),
    UPPER: Arm(clean=True),
}


def combined(loss: str) -> Arm:
    """`consistency` with the map loss that did best alone."""
    options = SINGLE[loss].guidance
    assert options is not None
    return _guided(f"consistency+{options['loss']}", **{name: x for name, x in options.items() if name != "loss"})


@dataclass(frozen=True)
class Task:
    """One training run of a table.

    Attributes:
        arm: Its name in the table.
        seed: Of data, order and weights.
        setting: What else it depends on, by name.
        weight: Of the guidance; 0 without.
        choosing: Whether it only serves to choose the weight, on the validation split.
    """

    arm: str
    seed: int
    setting: dict[str, Any] = field(default_factory=dict)
    weight: float = 0.0
    choosing: bool = False

    @property
    def key(self) -> str:
        """Names the run in the results."""
        words = [self.arm, *map(str, self.setting.values()), f"weight {self.weight:g}", f"seed {self.seed}"]
        return " | ".join([*words, "choosing"] if self.choosing else words)
