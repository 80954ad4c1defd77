"""A forward pass whose calls have the gradients of AttnLRP's rules, by a plan."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.registry import RelevanceMaps
from lrptrain.relevance.swapped.calls import Call
from lrptrain.relevance.swapped.plan import Mismatch, SwapPlan
from lrptrain.relevance.swapped.planned_pass import PlannedPass
from lrptrain.relevance.swapped.swaps import with_slope
from lrptrain.relevance.tape.functions import REORDERED, as_python

if TYPE_CHECKING:
    from lrptrain.relevance.explanation import Explanation


@dataclass(eq=False)
class SwappedPass(PlannedPass):
    """Gives calls another gradient. The derivative of that gradient would not be that of the rules."""

    plan: SwapPlan = field(kw_only=True)
    _sources: dict[int, Tensor] = field(default_factory=dict, init=False)

    def _result(
        self, call: Call, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        cut = call.cut
        if call.swap is not None or cut is not None:
            if not kwargs and func in REORDERED:  # places are those of the written order
                func, args = as_python(func, args)
            if call.source is not None:
                self._sources[call.source[0]] = args[call.source[1]]
            if cut is not None:
                if max(cut) >= len(args):
                    raise Mismatch("an operand that is given by name")
                args = tuple([x.detach() if i in cut else x for i, x in enumerate(args)])
        if call.swap is None:
            result = super()._result(call, func, types, args, kwargs)
        else:
            if func is F.scaled_dot_product_attention:
                self._check_mask(args, kwargs)
            result = call.swap(func, args, kwargs)
        return result if call.end is None else with_slope(self._sources.pop(call.end), result)

    def maps(self, explanation: "Explanation") -> RelevanceMaps:
        """Return relevance: what is explained is a function of the input, times the swapped gradient there."""
        place = self.leaf if self.plan.place is None else self.kept[self.plan.place].result
        assert place is not None
        (gradient,) = self.gradient(explanation, [place])
        relevance = at_least_float32(gradient) * at_least_float32(place.detach())
        explained = explanation.recording.explained
        return RelevanceMaps(explained.scores(relevance), explained.map(relevance), of_logit=True)
