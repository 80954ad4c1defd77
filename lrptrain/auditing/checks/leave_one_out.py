"""Whether a method ranks the tokens as leaving them out does (Jain & Wallace 2019, section 4.1)."""

from lrptrain.auditing.base import AuditTest, Check, Column, register
from lrptrain.auditing.context import AuditContext
from lrptrain.auditing.correlation import reference_correlation
from lrptrain.auditing.score import Score
from lrptrain.auditing.store import Values


@register
class LeaveOneOutTest(AuditTest):
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

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return `tau` and `p_value`: Kendall's rank correlation per sample."""
        return reference_correlation(context, unit, "leave_one_out")

    def check(self, score: Score) -> Check:
        """Pass where the interval of tau lies above 0."""
        passed = score.low > 0
        verb = "agrees" if passed else "does not agree"
        return Check(passed, f"it {verb} with leave-one-out: tau {score}")
