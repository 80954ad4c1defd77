"""Is a map worth trusting at all? Checks of methods on a model, apart from any annotation."""

from lrptrain.audit.randomisation import RandomisationCheck, randomisation_check

__all__ = ["RandomisationCheck", "randomisation_check"]
