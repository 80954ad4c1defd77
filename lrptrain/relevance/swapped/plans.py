"""The plans of models: made where a map is asked for first, and again where a pass was another one."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.relevance.default import DEFAULT_METHODS
from lrptrain.relevance.fast.switch import is_plain
from lrptrain.relevance.fast.walk import modules_of, weights_of
from lrptrain.relevance.output.logit_view import active_view
from lrptrain.relevance.output.outputs import active_head
from lrptrain.relevance.passes.plain_pass import MOST_KNOWN, PlainPass
from lrptrain.relevance.propagation.composite import custom_rules
from lrptrain.relevance.registry import get_method
from lrptrain.relevance.sharding.shards import is_sharded
from lrptrain.relevance.swapped.map_pass import MapPass, MapPlan
from lrptrain.relevance.swapped.plan import ConservativePlan, Plan, SwapPlan
from lrptrain.relevance.swapped.planned_pass import PlannedPass
from lrptrain.relevance.swapped.swapped_pass import SwappedPass
from lrptrain.relevance.tape.nodes import version_of
from lrptrain.relevance.types import Relevance

MOST_PLANS = 3
"""A model that changes its way more often is left to the tape: a plan costs a pass on it, and one to try the plan."""
MOST_TRIED = 3
"""A plan is tried again when weights have changed, until it was for so many states of them: a choice. What a weight of
0 hides at first, as that of a gate, shows then."""
LOST_IN_FLOAT32 = 1e-6
"""How far maps of a float64 model are apart that casts to float32 itself: 7e-8 at most (Llama, Qwen3 and ModernBERT of
the tests), and ten times that."""
PLANNED: dict[str, tuple[type[Plan], type[PlannedPass]]] = {
    "attnlrp": (SwapPlan, SwappedPass),
    "cp_lrp": (ConservativePlan, SwappedPass),
    "generic_attention": (MapPlan, MapPass),
}
"""The methods that have plans, with their default options."""


@dataclass(eq=False)
class Planned:
    """What is known of a model and inputs of one form.

    Attributes:
        method: The method.
        plan: The plan; None before it is made.
        is_refused: Whether none can be made, or too many were.
        dropped: How many were given up.
        weights: How often the weights had been written when the plan was tried last.
        tried: For how many of such states of the weights it was.
    """

    method: str
    plan: Plan | None = None
    is_refused: bool = False
    dropped: int = 0
    weights: int = 0
    tried: int = 0

    def trusted(self, model: nn.Module) -> Plan | None:
        """The plan, unless it is to be tried for other weights: a gate at 0 hides what is behind it."""
        return self.plan if self.tried >= MOST_TRIED or self.weights == _written(model) else None

    def by(self, plan: Plan) -> Callable[..., PlainPass]:
        """What makes a pass by a plan."""
        return partial(PLANNED[self.method][1], plan=plan)

    def use(self, plan: Plan, model: nn.Module) -> None:
        """Take a plan that has given the tape's map."""
        self.plan, self.is_refused, self.weights = plan, False, _written(model)
        self.tried += 1

    def drop(self) -> None:
        """Forget the plan of a pass that was another one: the model has changed, or chooses its way by the data."""
        self.plan, self.tried, self.dropped = None, 0, self.dropped + 1
        self.is_refused = self.dropped >= MOST_PLANS


_known: WeakKeyDictionary[nn.Module, dict[Hashable, Planned]] = WeakKeyDictionary()


def planned(model: nn.Module, inputs: Any, explain: str | None, settings: "Asked") -> Planned | None:
    """What is known of such a pass; None where the tape serves in any case."""
    if settings.method is None or is_plain() or custom_rules() or is_sharded(model):
        return None
    if any(module.training for module in modules_of(model)):  # what is random differs from pass to pass
        return None
    # Neither the sizes nor what the model is like: another way through it shows in its calls.
    key = (settings.method, explain, repr(active_head()), repr(active_view()), _form(inputs))
    known = _known.setdefault(model, {})
    if key not in known:
        if len(known) == MOST_KNOWN:
            del known[next(iter(known))]
        known[key] = Planned(settings.method)
    return known[key]


def has_plan(method: str, options: Mapping[str, Any]) -> bool:
    """Whether maps by a method with some options may be made by a plan: by its defaults."""
    defaults = get_method(method, options).options if method in PLANNED else {}
    return method in PLANNED and all(name in defaults and defaults[name] == x for name, x in options.items())


def needs_tape(method: str | None, options: Mapping[str, Any]) -> bool:
    """Whether each map by a method, or by the first default one, is walked back along a recorded pass."""
    name = method or DEFAULT_METHODS[0]
    return get_method(name, options).needs in ("tape", "maps") and not has_plan(name, options)


@dataclass(frozen=True)
class Asked:
    """What is asked of a model: methods, options and targets."""

    methods: tuple[str | None, ...]
    options: dict[str, Any]
    targets: tuple[Any, ...]
    create_graph: bool

    @property
    def method(self) -> str | None:
        """The method, if one map by its defaults is asked for that has a plan, of a class of every sample."""
        name = self.methods[0] or DEFAULT_METHODS[0]
        may_be = len(self.methods) == 1 and not self.create_graph and all(map(_is_class, self.targets))
        return name if may_be and has_plan(name, self.options) else None


def _written(model: nn.Module) -> int:
    """How often the weights of a model were written."""
    return sum(version_of(weight) for weight in weights_of(model))


def _form(x: Any) -> Hashable:
    """What tells the arguments of a model apart, but for their sizes and numbers.

    Of one sample, or one token, nothing shows whether a model mixes them: such a plan says nothing of several. Models
    leave out a mask that hides nothing.
    """
    if isinstance(x, Tensor):
        return tuple([size == 1 for size in x.shape]), x.dtype, x.device
    if isinstance(x, Mapping):
        masks = [bool((each != 0).all()) for name, each in x.items() if "mask" in name and isinstance(each, Tensor)]
        return (*masks, *((name, _form(each)) for name, each in x.items()))
    return tuple(map(_form, x)) if isinstance(x, (tuple, list)) else repr(x)


def _is_class(target: Any) -> bool:
    if isinstance(target, Sequence) and not isinstance(target, (str, tuple)):
        return all(isinstance(each, (int, str)) for each in target)
    return target is None or isinstance(target, (int, str, Tensor, np.ndarray))


def agree(first: Relevance, second: Relevance) -> bool:
    """Whether two maps are the same but for rounding: half of their digits, or what a model loses in float32 itself.

    As a share of the largest number but one of each sample: the token that the logits read has 1 by generic attention.
    """
    bound = max(torch.finfo(first.scores.dtype).eps ** 0.5, LOST_IN_FLOAT32)
    pairs = [(first.scores, second.scores), (first.logits, second.logits)]
    if first.input is not None and second.input is not None:
        pairs.append((first.input, second.input))
    return first.method == second.method and all(
        one.shape == other.shape and float((one - other).abs().max()) <= bound * _size(one) for one, other in pairs
    )


def _size(x: Float[Tensor, "batch ..."]) -> float:
    numbers = x.flatten(1).abs()
    return float(numbers.topk(min(2, numbers.shape[1])).values[:, -1].max())
