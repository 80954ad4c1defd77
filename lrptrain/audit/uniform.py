"""What the trained model answers when its attention says nothing."""

from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.audit.attention import evaluating, record_replaced, uniform_rows
from lrptrain.relevance.recording import Inputs


def uniform_attention_logits(model: nn.Module, inputs: Inputs) -> Float[Tensor, "batch classes"]:
    """The logits with every attention row of every block and head uniform over the keys that it may attend to.

    Wiegreffe & Pinter 2019, section 3.1: where the accuracy does not fall, attention does not matter for the task, and
    whether it explains the model is moot. (There it is trained that way; here the trained model is run so.)

    Args:
        model: As for `lrptrain.attribute`; run in evaluation mode and left as it was.
        inputs: As for `lrptrain.attribute`.

    Raises:
        UnsupportedModelError: If the model's attention cannot be found.
    """
    with evaluating(model) as model:
        return record_replaced(model, inputs, uniform_rows).logits.detach()
