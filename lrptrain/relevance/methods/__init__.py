"""One file per family of methods; importing this package registers them all."""

from lrptrain.relevance.methods import (
    attention,
    attention_flow,
    control,
    decomposition,
    gradcam,
    gradient,
    lrp,
    perturbation,
    surrogate,
)

__all__ = [
    "attention",
    "attention_flow",
    "control",
    "decomposition",
    "gradcam",
    "gradient",
    "lrp",
    "perturbation",
    "surrogate",
]
