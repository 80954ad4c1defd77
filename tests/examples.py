"""Records that several tests start from."""

from dataclasses import replace
from typing import Any

from lrptrain.findings import Finding


def finding(**changes: Any) -> Finding:
    """A finding on class dog, changed."""
    base = Finding(
        kind="focus_outside_annotation",
        scope="dog",
        target="label",
        effect=0.12,
        interval=(0.09, 0.15),
        confidence=0.95,
        chance=0.31,
        bound=0.5,
        p_value=0.001,
        samples=24,
        worst_samples=(17, 4),
        epoch=0,
        step=7,
        first_epoch=0,
    )
    return replace(base, **changes)
