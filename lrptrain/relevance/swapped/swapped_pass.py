"""A forward pass whose calls have the gradients of AttnLRP's rules, by a plan."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.registry import RelevanceMaps
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
        self, number: int, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        plan = self.plan
        swap, cut, source = plan.swaps.get(number), plan.cut.get(number), plan.sources.get(number)
        if swap is not None or cut is not None:
            if not kwargs and func in REORDERED:  # places are those of the written order
                func, args = as_python(func, args)
            if source is not None:
                self._sources[source[0]] = args[source[1]]
            if cut is not None:
                if max(cut) >= len(args):
                    raise Mismatch("an operand that is given by name")
                args = tuple([x.detach() if i in cut else x for i, x in enumerate(args)])
        result = swap(func, args, kwargs) if swap else super()._result(number, func, types, args, kwargs)
        end = plan.ends.get(number)
        return result if end is None else with_slope(self._sources.pop(end), result)

    def maps(self, explanation: "Explanation") -> RelevanceMaps:
        """Return relevance: what is explained is a function of the input, times the swapped gradient there."""
        place = self.leaf if self.plan.place is None else self.kept[self.plan.place].result
        assert place is not None
        (gradient,) = self.gradient(explanation, [place])
        relevance = at_least_float32(gradient) * at_least_float32(place.detach())
        explained = explanation.recording.explained
        return RelevanceMaps(explained.scores(relevance), explained.map(relevance), of_logit=True)
