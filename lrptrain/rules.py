"""Propagation rules to compose: `lrptrain.Composite(name_map={"blocks.0.*": rules.gamma(0.5)})`.

A rule passes relevance of an operation's outputs to its inputs. Composites say which rule serves which operation and
module; `lrptrain.attribute(..., composite=...)` uses one for a call, and `with composite: ...` for a block.
"""

from lrptrain.relevance.propagation.composite import Composite, Rule, register_rule, use_rules
from lrptrain.relevance.propagation.named_rules import (
    alpha_beta,
    epsilon,
    flat,
    gamma,
    norm,
    pass_,
    softmax,
    uniform,
    wsquare,
    zbox,
    zplus,
)

__all__ = [
    "Composite",
    "Rule",
    "alpha_beta",
    "epsilon",
    "flat",
    "gamma",
    "norm",
    "pass_",
    "register_rule",
    "softmax",
    "uniform",
    "use_rules",
    "wsquare",
    "zbox",
    "zplus",
]
