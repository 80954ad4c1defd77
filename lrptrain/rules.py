"""Propagation rules to compose: `lrptrain.Composite(name_map={"blocks.0.*": rules.gamma(0.5)})`.

A rule passes relevance of an operation's outputs to its inputs. Composites say which rule serves which operation and
module; `lrptrain.attribute(..., composite=...)` uses one for a call, and `with composite: ...` for a block.

Examples:
    >>> import torch
    >>> from lrptrain import attribute, rules
    >>> layer = torch.nn.Linear(2, 1, bias=False)
    >>> _ = layer.weight.data.copy_(torch.tensor([[2.0, -1.0]]))
    >>> def by(rule):
    ...     scores = attribute(layer, torch.tensor([[3.0, 2.0]]), composite={"linear": rule}).scores[0]
    ...     return [round(float(score), 2) for score in scores]
    >>> by(rules.epsilon()), by(rules.gamma(1.0)), by(rules.alpha_beta(2, 1))
    ([6.0, -2.0], [4.8, -0.8], [8.0, -4.0])
    >>> by(rules.zplus()), by(rules.zbox(0.0, 4.0)), by(rules.wsquare()), by(rules.flat())
    ([4.0, 0.0], [3.0, 1.0], [3.2, 0.8], [2.0, 2.0])
    >>> composite = rules.Composite(
    ...     {"mul": rules.uniform(), "layer_norm": rules.norm(), "softmax": rules.softmax(), "gelu": rules.pass_()}
    ... )
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
