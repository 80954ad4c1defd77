"""Methods on the gradient at the input."""

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.methods.input_maps import input_maps
from lrptrain.relevance.propagate import real
from lrptrain.relevance.registry import Maps, method


@method(class_specific=True, signed=True, reaches_input=True, source="Shrikumar et al. 2016")
def input_x_gradient(explanation: Explanation) -> Maps:
    """Input times gradient (Shrikumar et al. 2016), at the pixels or the word embeddings.

    Not at the sum of word, position and type embeddings: the layer norm behind it does not see its length, so that
    there the products of every token sum to 0.
    """
    recording = explanation.recording
    leaf = recording.tape.leaf
    assert leaf is not None
    (gradient,) = explanation.gradient([leaf])
    return input_maps(recording, real(leaf.detach()) * real(gradient))
