"""Whether a method ranks the tokens as gradient * input does (Jain & Wallace 2019, section 4.1)."""

from lrptrain.auditing.base import AuditTest, Column, register
from lrptrain.auditing.context import AuditContext
from lrptrain.auditing.correlation import reference_correlation
from lrptrain.auditing.store import Values


@register
class GradientTest(AuditTest):
    """Correlate a method's map with |gradient * input|, with attention held fixed in the backward pass."""

    name = "gradient"
    title = "correlation with gradient * input"
    order = 50
    column = Column("tau, gradient", values="tau", description="agreement with gradient * input (tau)")

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return `tau` and `p_value`: Kendall's rank correlation per sample."""
        return reference_correlation(context, unit, "gradient")
