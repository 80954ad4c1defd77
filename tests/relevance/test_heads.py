"""What of an output is explained: classes, tuples and functions, on models with every kind of output."""

from collections import namedtuple
from typing import Any

import pytest
import torch
from model_zoo import KINDS, SIZES, TEXT, in_float64, randomised, select
from small_models import Small, patches
from torch import Tensor, nn

import lrptrain
from lrptrain import UnsupportedModelError
from lrptrain.relevance.output.heads import Head

# Methods of every kind: gradients, rules, attention, norms, and the model run again.
METHODS = (
    "input_x_gradient", "attnlrp", "lrp", "generic_attention", "transformer_attribution", "rollout", "attention_norm",
    "integrated_gradients", "leave_one_out",
)  # fmt: skip


class Returns(nn.Module):
    """A small model with another output."""

    def __init__(self, output: Any):
        super().__init__()
        self.model = Small()
        self.output = output

    def forward(self, x: Tensor) -> Any:
        return self.output(self.model(x))


def text_model(family: str, labels: int) -> nn.Module:
    import transformers

    options: dict[str, Any] = {**SIZES, **TEXT, "num_labels": labels, "attn_implementation": "sdpa"}
    config = transformers.BertConfig(**options)
    return in_float64(randomised(getattr(transformers, family)(config)))


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


OF_BLOCKS = {"atb_norm", "atb_ff_norm", "atb_ff_res_norm", "atb_ff_res_ln_norm", "attn_res_ln_norm"}
"""Methods of transformer blocks, of which `Small` has none."""


@pytest.mark.parametrize("method", sorted(OF_BLOCKS))
def test_methods_of_blocks_are_refused_where_there_are_none(method):
    with pytest.raises(lrptrain.UnsupportedMethodError, match="does not exist for this model"):
        lrptrain.attribute(Small(), patches(), 1, method, other=2)


@pytest.mark.parametrize("method", [method for method in lrptrain.methods() if method not in OF_BLOCKS])
def test_a_function_that_reads_a_class_explains_that_class(method):
    expected = lrptrain.attribute(Small(), patches(), 1, method, other=2)
    relevance = lrptrain.attribute(Small(), patches(), lambda y: y[:, 1], method, other=lambda y: y[:, 2])
    close(relevance.scores, expected.scores)
    close(relevance.logits, expected.logits[:, 1:3])
    assert relevance.target.tolist() == [0, 0, 0]
    assert relevance.other is not None
    assert relevance.other.tolist() == [1, 1, 1]


@pytest.mark.parametrize("method", METHODS)
def test_tokens_of_every_sample(method):
    model = text_model("BertForTokenClassification", 5)
    inputs = KINDS["bert"].inputs()
    entries = [(2, 1), (0, 3), (3, 0)]
    together = lrptrain.attribute(model, inputs, entries, method)
    for row, entry in enumerate(entries):
        alone = lrptrain.attribute(model, select(inputs, slice(row, row + 1)), entry, method)
        close(alone.scores[0], together.scores[row])
        close(alone.logits[0], together.logits[row])


def test_the_gradient_is_that_of_the_entry():
    model: Any = text_model("BertForTokenClassification", 5)
    inputs = KINDS["bert"].inputs()
    embedded = model.bert.embeddings.word_embeddings(inputs["input_ids"]).detach().requires_grad_()
    logits = model(inputs_embeds=embedded, attention_mask=inputs["attention_mask"]).logits
    (gradient,) = torch.autograd.grad(logits[:, 2, 1].sum(), embedded)
    relevance = lrptrain.attribute(model, inputs, (2, 1), "input_x_gradient")
    close(relevance.scores, ((embedded * gradient).sum(-1) * inputs["attention_mask"]).detach())
    close(relevance.logits[:, 0], logits[:, 2, 1].detach())


def test_several_heads_of_one_recording():
    model = text_model("BertForTokenClassification", 5)
    inputs = KINDS["bert"].inputs()
    recording = lrptrain.record(model, inputs)
    heads: tuple[Any, ...] = ((1, 2), lambda output: output.logits[:, 0].sum(-1), [(0, 1), (1, 1), (2, 1)], (1, 2))
    for target in heads:
        for method in ("attnlrp", "generic_attention"):
            relevance = recording.attribute(target, method)
            close(relevance.scores, lrptrain.attribute(model, inputs, target, method).scores)
    with pytest.raises(UnsupportedModelError, match=r"returned TokenClassifierOutput with logits \[3, 10, 5\]"):
        recording.attribute()


def test_a_head_after_a_class():
    recording = lrptrain.record(Small(), patches())
    before = recording.attribute(1, "attnlrp").scores
    close(recording.attribute(lambda y: 2 * y[:, 1], "attnlrp").scores, 2 * before)
    assert torch.equal(recording.attribute(1, "attnlrp").scores, before)


def test_the_tokens_that_are_read_are_pooled():
    recording = lrptrain.record(text_model("BertForTokenClassification", 5), KINDS["bert"].inputs())
    assert recording.forward_pass is not None
    head = Head((lambda output: output.logits[:, 3, 1],))
    pooling = recording.forward_pass.under(head).pooling
    close(pooling, torch.eye(10, dtype=torch.float64)[[3, 3, 3]])


def test_both_ends_of_an_answer_are_pooled():
    recording = lrptrain.record(text_model("BertForQuestionAnswering", 2), KINDS["bert"].inputs())
    assert recording.forward_pass is not None
    head = Head((lambda output: output.start_logits[:, 1] + output.end_logits[:, 3],))
    pooling = recording.forward_pass.under(head).pooling
    close(pooling, torch.eye(10, dtype=torch.float64)[[1, 3]].mean(0).expand(3, 10))


@pytest.mark.parametrize("method", ["integrated_gradients", "smoothgrad", "leave_one_out", "lime", "kernel_shap"])
def test_a_function_of_the_whole_batch_is_run_on_whole_batches(method):
    options: dict[str, Any] = {"samples": 24} if method in ("lime", "kernel_shap", "smoothgrad") else {}
    chosen = torch.tensor([2, 0, 3])
    expected = lrptrain.attribute(Small(), patches(), chosen, method, **options)
    relevance = lrptrain.attribute(Small(), patches(), lambda y: y[range(3), chosen], method, **options)
    close(relevance.scores, expected.scores)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("squeezed", [True, False])
def test_one_number_per_sample(method, squeezed):
    model = Returns(lambda y: y[:, 1] if squeezed else y[:, 1:2])
    expected = lrptrain.attribute(Small(), patches(), 1, method)
    for target in (None, 0, lrptrain.targets.RawScoresOutputTarget()):
        relevance = lrptrain.attribute(model, patches(), target, method)
        close(relevance.scores, expected.scores)
        close(relevance.logits, expected.logits[:, 1:2])
    other_class = lrptrain.attribute(model, patches(), lrptrain.targets.BinaryClassifierOutputTarget(0), "attnlrp")
    close(other_class.scores, -lrptrain.attribute(Small(), patches(), 1, "attnlrp").scores)


def test_a_loss_on_the_map_of_a_function_reaches_the_weights():
    gradients = []
    for target in (1, lambda y: y[:, 1]):
        model = Small()
        for method in ("attnlrp", "generic_attention", "integrated_gradients"):
            lrptrain.attribute(model, patches(), target, method, create_graph=True).scores.square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert len(gradients[0]) > 5
    for gradient, other in zip(*gradients, strict=True):
        close(gradient, other)


Pair = namedtuple("Pair", "prediction features")


@pytest.mark.parametrize(
    ("output", "returned"),
    [
        (lambda y: (y, y), r"tuple with \[0\] \[3, 4\], \[1\] \[3, 4\]"),
        (lambda y: [y], r"list with \[0\] \[3, 4\]"),
        (lambda y: {"prediction": y, "loss": None}, r"dict with prediction \[3, 4\], loss \(NoneType\)"),
        (lambda y: Pair(y, y), r"Pair with prediction \[3, 4\], features \[3, 4\]"),
        (lambda y: y[:, None], r"a tensor of shape \[3, 1, 4\].*target=\(i, j\), one index per axis"),
        (lambda y: None, "NoneType"),
    ],
)
def test_other_outputs_are_named_with_a_way_out(output, returned):
    message = rf"must return logits \[batch, classes\].*returned {returned}.*target=lambda output"
    with pytest.raises(UnsupportedModelError, match=message) as raised:
        lrptrain.attribute(Returns(output), patches())
    assert "\n" not in str(raised.value)


def test_the_way_out_works():
    expected = lrptrain.attribute(Small(), patches(), 2, "attnlrp").scores
    for output, target in (
        (lambda y: (y, y), lambda output: output[0][:, 2]),
        (lambda y: {"prediction": y, "loss": None}, lambda output: output["prediction"][:, 2]),
        (lambda y: Pair(y, y), lambda output: output.prediction[:, 2]),
        (lambda y: y[:, None], (0, 2)),
    ):
        close(lrptrain.attribute(Returns(output), patches(), target, "attnlrp").scores, expected)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (lambda y: y, r"one number per sample, \[3\]; it returned a tensor of shape \[3, 4\]"),
        (lambda y: y.sum(), r"it returned a tensor of shape \[\]"),
        (lambda y: 1.0, "it returned float"),
        (lambda y: y.argmax(1), "floating-point numbers, not torch.int64"),
        (lambda y: y[:, 0].detach() * 0 + torch.nan, "NaN"),
        (lambda y: torch.ones(3), "numbers of the target do not come from the input"),
    ],
)
def test_functions_that_return_anything_else(target, message):
    with pytest.raises(ValueError, match=message):
        lrptrain.attribute(Small(), patches(), target)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ((0, 9), r"index of axis 2 9 is out of range for 4 \(0 to 3\)"),
        ((0, -1), "out of range for 4"),
        ((0,), r"one index for every axis.*\[3, 1, 4\], and the target is \(0,\)"),
        ((0, 1.0), "must be one integer"),
        ([(0, 1)] * 2, "2 tuples for 3 samples"),
        ([(0, 1), (0,), (0, 2)], "one index for every axis"),
        (1, "must return logits"),
    ],
)
def test_tuples_that_do_not_fit(target, message):
    with pytest.raises(ValueError, match=message):
        lrptrain.attribute(Returns(lambda y: y[:, None]), patches(), target)


def test_a_class_and_a_function_cannot_be_told_apart():
    for target, other in ((1, lambda y: y[:, 0]), (lambda y: y[:, 0], 1), (None, lambda y: y[:, 0])):
        with pytest.raises(ValueError, match="must both be classes, or both be functions"):
            lrptrain.attribute(Small(), patches(), target, other=other)


def test_one_number_has_no_probability():
    for model, target in ((Small(), lambda y: y[:, 0]), (Returns(lambda y: y[:, 0]), None)):
        with pytest.raises(lrptrain.UnsupportedMethodError, match="needs the logits of two classes"):
            lrptrain.attribute(model, patches(), target, "leave_one_out", of="probability")
