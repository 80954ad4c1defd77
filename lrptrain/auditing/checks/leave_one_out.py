"""Whether a method ranks the tokens as leaving them out does (Jain & Wallace 2019, section 4.1)."""

from lrptrain.auditing.base import Check, Column, register
from lrptrain.auditing.correlation import CorrelationTest
from lrptrain.auditing.score import Score


@register
class LeaveOneOutTest(CorrelationTest):
    """Correlate a method's map with the change of the output when a token is left out.

    (For the method `leave_one_out` itself, the reference is the method.)
    """

    name = "leave_one_out"
    title = "correlation with leave-one-out"
    order = 30
    decides_verdict = True
    column = Column(
        "tau, leave-one-out",
        values="tau",
        higher_is_better=True,
        description="agreement with leave-one-out (tau)",
        range=(-1.0, 1.0),
    )

    def check(self, score: Score) -> Check:
        """Pass where the interval of tau lies above 0."""
        passed = score.low > 0
        verb = "agrees" if passed else "does not agree"
        return Check(passed, f"it {verb} with leave-one-out: tau {score}")
