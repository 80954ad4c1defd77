"""One file per family of methods; importing this package registers them all."""

from lrptrain.relevance.methods import attention, control, gradient, lrp

__all__ = ["attention", "control", "gradient", "lrp"]
