"""Whether a method ranks the tokens as gradient * input does (Jain & Wallace 2019, section 4.1)."""

from lrptrain.auditing.base import Column, register
from lrptrain.auditing.correlation import CorrelationTest


@register
class GradientTest(CorrelationTest):
    """Correlate a method's map with |gradient * input|, with attention held fixed in the backward pass."""

    name = "gradient"
    title = "correlation with gradient * input"
    order = 50
    column = Column("tau, gradient", values="tau", description="agreement with gradient * input (tau)")
