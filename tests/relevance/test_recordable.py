"""Models in other forms: what runs torch functions is served, and the rest is refused in a line with a way out."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from golden_cases import relative_error
from model_zoo import randomised
from small_models import Block, Small, patches, raises, same, tiny_vit
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import lrptrain
from lrptrain import UnsupportedModelError


def refused(model: nn.Module, match: str, x: Tensor | None = None) -> None:
    for method in ("attnlrp", "input_x_gradient", "generic_attention"):
        with pytest.raises(UnsupportedModelError, match=match):
            lrptrain.attribute(model, patches() if x is None else x, 1, method)


# Refused by their modules


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript():
    scripted = torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(768, 4).double()))
    refused(scripted, r"in module '\(model\)' is TorchScript.*explain the model that was scripted or traced")
    traced = torch.jit.trace(nn.ReLU(), torch.zeros(2))
    refused(Small(traced), "in module 'between' is TorchScript")


@pytest.mark.parametrize("base", [nn.Module, pl.LightningModule])
def test_a_module_that_leaves_the_call_to_its_steps(base: type[nn.Module]) -> None:
    module: Any = base()
    module.accuracy, module.backbone = nn.Identity(), Small()
    refused(module, r"has no forward of its own: explain the network that it calls, such as model\.backbone")
    module.forward = module.backbone.forward
    assert lrptrain.attribute(module.double(), patches(), 1).scores.shape == (len(patches()), 16)


class Stubbed(nn.Module):
    """As a model is prepared for static quantisation."""

    def __init__(self):
        super().__init__()
        self.quant, self.dequant = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        self.conv, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 4)
        self.sum = torch.ao.nn.quantized.FloatFunctional()

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(self.quant(x))
        return self.dequant(self.head(self.sum.add(x, x).mean((2, 3))))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_quantised_modules():
    import torch.ao.quantization as quantization

    x = patches().float()
    dynamic = quantization.quantize_dynamic(Small().float(), {nn.Linear}, dtype=torch.qint8)
    refused(dynamic, "Linear in module 'qkv' is quantised.*explain the float model", x)
    model: Any = Stubbed().eval()
    assert lrptrain.attribute(model, x, 1, "input_x_gradient").scores.any()
    model.qconfig = quantization.get_default_qconfig(torch.backends.quantized.supported_engines[-1])
    prepared = quantization.prepare(model)
    prepared(x)
    refused(quantization.convert(prepared), "in module '.*' is quantised", x)


class Small32(nn.Module):
    """A model of images or texts in float32, of which the linear layers can be quantised."""

    def __init__(self, words: bool):
        super().__init__()
        self.words = words
        self.embed = nn.Embedding(12, 8) if words else nn.Conv2d(3, 8, 4, 4)
        self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 4)
        randomised(self)
        self.float()

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x) if self.words else self.embed(x).flatten(2).mT
        return self.head(torch.tanh(self.inner(tokens)).mean(1))


GRID = lrptrain.TokenLayout(16, tuple(range(16)), (4, 4))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("words", [False, True])
def test_answers_of_a_quantised_model_are_enough_to_leave_tokens_out(words):
    """Each sample by itself: dynamic quantisation scales by the range of a whole batch."""
    model = torch.ao.quantization.quantize_dynamic(Small32(words), {nn.Linear}, dtype=torch.qint8)
    x = torch.arange(12).view(2, 6) if words else patches(2).float()
    layout: dict[str, Any] = {} if words else {"layout": GRID}
    found = lrptrain.attribute(model, x, 1, "leave_one_out", **layout).scores

    def without(sample: Tensor, token: int) -> Tensor:
        if not words:
            row, column = divmod(token, 4)
            sample = sample.clone()
            sample[:, row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] = 0
            return model(sample[None])
        tokens = model.embed(sample[None])
        tokens[:, token] = 0
        return model.head(torch.tanh(model.inner(tokens)).mean(1))

    with torch.no_grad():
        falls = [[model(s[None])[0, 1] - without(s, i)[0, 1] for i in range(found.shape[1])] for s in x]
    torch.testing.assert_close(found, torch.tensor(falls), rtol=1e-5, atol=1e-7)
    assert torch.equal(lrptrain.attribute(model, x[1:], 1, "leave_one_out", **layout).scores, found[1:])
    assert lrptrain.attribute(model, x, 1, "kernel_shap", samples=32, **layout).scores.any()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_answers_of_torchscript_are_those_of_its_model():
    model, x = Small32(words=False), patches(2).float()
    traced = torch.jit.trace(model, x)
    calls: list[tuple[str, dict[str, Any]]] = [("leave_one_out", {}), ("leave_one_out", {"window": 2}), ("lime", {})]
    for method, options in calls:
        one, other = (lrptrain.attribute(each, x, 1, method, layout=GRID, **options) for each in (traced, model))
        torch.testing.assert_close(one.scores, other.scores, rtol=1e-4, atol=1e-6)
        assert one.grid == (4, 4)
    with pytest.raises(UnsupportedModelError, match=r"nothing tells which pixels .* pass layout=lrptrain.TokenLayout"):
        lrptrain.attribute(traced, x, 1, "leave_one_out")
    words = torch.jit.trace(Small32(words=True), torch.arange(12).view(2, 6))
    with pytest.raises(UnsupportedModelError, match="is TorchScript"):
        lrptrain.attribute(words, torch.arange(12).view(2, 6), 1, "leave_one_out")


def test_packed_weights():
    """Integers in the place of a weight, as libraries for large language models keep them."""

    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8, 8, dtype=torch.int8), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight.to(x.dtype))

    model = Small()
    model.between = Packed()
    refused(model, "Packed in module 'between' is quantised")


# Served

EXPORTED: list[nn.Module] = [Small(nn.BatchNorm1d(16)), tiny_vit().double().eval()]


@pytest.mark.parametrize("index", range(len(EXPORTED)))
def test_an_exported_model_is_the_model(index):
    model = EXPORTED[index].double().eval()
    exported = torch.export.export(model, (patches(),)).module()
    same(exported, model, patches(), ("attnlrp", "transformer_attribution", "input_x_gradient"))
    with pytest.raises(UnsupportedModelError, match=r"exported for batches of another size.*at_once=3"):
        lrptrain.attribute(exported, patches(), 1, "integrated_gradients", at_once=5)
    lrptrain.attribute(exported, patches(), 1, "integrated_gradients", at_once=3)


def test_exported_texts():
    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(9, 8), nn.Linear(8, 3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.words(ids).tanh().mean(1))

    ids = torch.arange(8).view(2, 4)
    model = Text().double().eval()
    same(torch.export.export(model, (ids,)).module(), model, ids, ("attnlrp", "input_x_gradient"))


def test_a_traced_graph_of_fx_is_the_model():
    same(torch.fx.symbolic_trace(Small()), Small(), patches())


aten = torch.ops.aten
MEAN = torch.ones(16).double()


def batch_norm(x: Tensor) -> Tensor:
    return torch.batch_norm(x, None, None, MEAN, 4 * MEAN, False, 0.1, 0, False)


def functional(x: Tensor) -> Tensor:
    weight, bias = 2 * torch.eye(8).double(), torch.zeros(8).double()
    return torch.func.functional_call(nn.Linear(8, 8).double(), {"weight": weight, "bias": bias}, (x,))


def attended(x: Tensor) -> Tensor:
    return x + (x @ x.mT).softmax(-1) @ x


def written(x: Tensor, result: Tensor) -> Tensor:
    for place, tokens in enumerate(x):
        result[place] = tokens - tokens.mean(0)
    return result


SPELLINGS = {
    "overloads": (
        lambda x: aten.relu.default(aten.add.Tensor(x, 1.0)) + aten.slice.Tensor(x, 1, 0, 16),
        lambda x: torch.relu(x + 1) + x[:, :16],
    ),
    "in place": (lambda x: aten.relu_.default(x * 1), torch.relu),
    "batch norm of C++": (batch_norm, lambda x: F.batch_norm(x, MEAN, 4 * MEAN, eps=0)),
    "a call with parameters of its own": (functional, lambda x: F.linear(x, 2 * torch.eye(8).double())),
    "a mask by vmap": (
        lambda x: x * torch.vmap(lambda i: (i >= 0).to(x.dtype))(torch.arange(16))[:, None],
        lambda x: x * torch.ones(16, 1, dtype=x.dtype),
    ),
    "a checkpoint": (lambda x: checkpoint(torch.relu, x, use_reentrant=False), torch.relu),
    "samples written one by one": (lambda x: written(x, torch.zeros_like(x)), lambda x: x - x.mean(1, keepdim=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name):
    one, other = SPELLINGS[name]
    same(Small(Block(one)), Small(Block(other)), patches())


BY_SAMPLE = {
    "a loop": lambda x: torch.stack([attended(tokens) for tokens in x]),
    "parts": lambda x: torch.cat([attended(part) for part in x.split(1)]),
}


@pytest.mark.parametrize("name", BY_SAMPLE)
def test_attention_of_one_sample_at_a_time(name):
    models = (Small(Block(BY_SAMPLE[name])), Small(Block(attended)))
    same(*models, patches(), ("attnlrp", "gamma_lrp", "lrp", "input_x_gradient"))
    for method in ("generic_attention", "rollout", "transformer_attribution"):
        with pytest.raises(UnsupportedModelError, match=r"as in a loop over samples .* explain one sample at a time"):
            lrptrain.attribute(models[0], patches(), 1, method)
    same(*models, patches(1), ("generic_attention", "rollout", "transformer_attribution"))


class OneByOne(nn.Module):
    """Runs a model on one image at a time, without an axis of samples in it."""

    def __init__(self, gather: Callable[[list[Tensor]], Tensor]):
        super().__init__()
        self.inner, self.gather = Small(), gather

    def forward(self, x: Tensor) -> Tensor:
        return self.gather([self.logits(image) for image in x])

    def logits(self, image: Tensor) -> Tensor:
        tokens = self.inner.embed(image).flatten(1).T + self.inner.position
        q, k, v = self.inner.qkv(tokens).chunk(3, -1)
        weights = (q @ k.T / q.shape[-1] ** 0.5).softmax(-1)
        return self.inner.head((tokens + self.inner.out(weights @ v)).mean(0))


GATHERED: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "stacked": torch.stack,
    "joined": lambda rows: torch.cat([row[None] for row in rows]),
    "numbers": lambda rows: torch.stack([torch.stack(list(row.unbind())) for row in rows]),
}


@pytest.mark.parametrize("name", GATHERED)
def test_images_one_by_one_are_those_of_the_batch(name):
    """The patch embedding is called once per image, and has one rule."""
    models = (OneByOne(GATHERED[name]), Small())
    for composite in ("alpha_beta", "chefer", "split_alpha_beta", None):
        method, options = ("attnlrp", {}) if composite is None else ("lrp", {"composite": composite})
        one, other = (lrptrain.attribute(model, patches(), 1, method, **options).input for model in models)
        assert relative_error(one, other).max() < 1e-9, composite


@pytest.mark.parametrize("method", ["attnlrp", "lrp"])
def test_one_sample_in_the_map_of_another_is_refused(method):
    model = Small(Block(lambda x: torch.stack([tokens + 0.1 * x[0] for tokens in x])))
    with pytest.raises(lrptrain.UnsupportedOperationError, match="mixes the samples of a batch"):
        lrptrain.attribute(model, patches(), 1, method)


def test_torchs_own_encoder_with_padding_makes_no_nested_tensor():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.words, self.encoder = nn.Embedding(9, 8), nn.TransformerEncoder(layer, 2, enable_nested_tensor=True)
            self.head = nn.Linear(8, 3)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            states = self.encoder(self.words(input_ids), src_key_padding_mask=attention_mask == 0)
            weights = attention_mask[..., None] / attention_mask.sum(1)[:, None, None]
            return self.head((states * weights).sum(1))

    model = Encoder().double().eval()
    ids, mask = torch.arange(8).view(2, 4), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    whole = lrptrain.attribute(model, {"input_ids": ids, "attention_mask": mask}, 1, "attnlrp")
    alone = lrptrain.attribute(model, {"input_ids": ids[1:, :2], "attention_mask": mask[1:, :2]}, 1, "attnlrp")
    torch.testing.assert_close(whole.scores[1:, :2], alone.scores, rtol=1e-9, atol=1e-12)
    assert not whole.scores[1, 2:].any()


# Refused by their operations


@torch.library.custom_op("lrptrain_tests::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return x * 2


@torch.library.custom_op("lrptrain_tests::doubled_with_gradient", mutates_args=())
def doubled_with_gradient(x: Tensor) -> Tensor:
    return x * 2


doubled_with_gradient.register_autograd(lambda ctx, gradient: gradient * 2)


def native_attention(x: Tensor) -> Tensor:
    weight, bias = torch.ones(24, 8, dtype=x.dtype), torch.ones(24, dtype=x.dtype)
    return torch._native_multi_head_attention(x, x, x, 8, 2, weight, bias, weight[:8], bias[:8])[0]


def flexibly_attended(x: Tensor) -> Tensor:
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    return flex_attention(heads, heads, heads).transpose(1, 2).flatten(2)


REFUSED = {
    "flex_attention in module 'between' is not written out": flexibly_attended,
    "mul in module 'between' runs inside of torch.vmap": lambda x: torch.vmap(lambda i: x * i)(torch.arange(1, 2))[0],
    "mT in module 'between' runs inside of torch.vmap": torch.vmap(attended),
    "pow in module 'between' runs inside of": lambda x: torch.func.grad(lambda y: (y**3).sum())(x),
    "grad in module 'between' takes a gradient of": lambda x: x + torch.autograd.grad((x**3).sum(), x)[0],
    "makes a nested tensor": lambda x: torch.nested.as_nested_tensor(list(x)).to_padded_tensor(0.0),
    "makes a sparse tensor": lambda x: x.to_sparse().to_dense(),
    "native_multi_head_attention in module 'between' has no gradient": native_attention,
    "doubled in module 'between' has no gradient": doubled,
    "is a reentrant checkpoint.*use_reentrant=False": lambda x: checkpoint(torch.relu, x, use_reentrant=True),
}


@pytest.mark.parametrize("match", REFUSED)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
def test_operations_that_no_tape_follows(match):
    raises(REFUSED[match], match)


def test_an_operation_of_ones_own_with_a_gradient_needs_a_rule_or_a_method_without():
    model = Small(Block(doubled_with_gradient))
    raises(doubled_with_gradient, "doubled_with_gradient in module 'between' has no propagation rule")
    same(model, Small(Block(lambda x: x * 2)), patches(), ("input_x_gradient", "generic_attention"))


def test_the_model_is_as_before_after_a_refusal():
    model = Small(Block(REFUSED["makes a sparse tensor"]))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(lrptrain.UnsupportedOperationError):
        lrptrain.attribute(model, patches(), 1, "attnlrp")
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


# Refused by how they are called


def test_a_model_without_numbers():
    with torch.device("meta"):
        model = tiny_vit()
    refused(model, r"meta device and has no numbers: load its weights first", torch.randn(2, 3, 16, 16))
    model = tiny_vit()
    model.blocks[0].mlp.fc1.to("meta")
    refused(model, "Linear in module 'blocks.0.mlp.fc1' is on the meta device", torch.randn(2, 3, 16, 16))


@pytest.mark.parametrize("method", ["attnlrp", "integrated_gradients", "leave_one_out"])
def test_inputs_without_numbers(method):
    model, x = tiny_vit().eval(), torch.randn(2, 3, 16, 16)
    for inputs, name in ((x.to("meta"), "inputs"), ({"x": x, "attn_mask": x.to("meta")}, "attn_mask")):
        with pytest.raises(ValueError, match=f"'{name}' is on the meta device and has no numbers: pass a tensor"):
            lrptrain.attribute(model, inputs, 1, method)


class Detached(nn.Module):
    """A model that cuts the graph behind its backbone, in the input's own precision."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.head = Small(), nn.Linear(4, 4).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.backbone(x).detach())


@pytest.mark.parametrize(
    "method",
    ["integrated_gradients", "smoothgrad", "input_x_gradient", "generic_attention", "attention_gradcam", "gradcam"],
)
def test_no_gradient_goes_through_a_detached_backbone(method):
    """A map of zeros, or of what is added to nothing, would say that all tokens matter alike."""
    for frozen in (False, True):
        model = Detached()
        model.requires_grad_(not frozen)
        with pytest.raises(UnsupportedModelError, match=r"no gradient goes from|logits have no gradient"):
            lrptrain.attribute(model, patches(), 1, method)
    for other in ("attnlrp", "lrp", "leave_one_out"):
        assert lrptrain.attribute(model, patches(), 1, other).scores.any()


def test_relevance_in_the_weights_precision_whatever_torchs_default_is():
    model = Small().float()
    expected = lrptrain.attribute(model, patches().float(), 1, "lrp").scores
    torch.set_default_dtype(torch.float64)
    try:
        found = lrptrain.attribute(model, patches().float(), 1, "lrp").scores
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found, expected)


def test_inside_of_transformations_of_functions():
    model, x = tiny_vit().eval(), torch.randn(2, 3, 16, 16)
    for transformed in (
        torch.vmap(lambda image: lrptrain.attribute(model, image[None], 1).scores),
        torch.func.grad(lambda images: lrptrain.attribute(model, images, 1).scores.sum()),
    ):
        with pytest.raises(UnsupportedModelError, match=r"cannot stand inside of torch.func .*: call it outside"):
            transformed(x)
    assert lrptrain.attribute(model, x, 1).scores.isfinite().all()


def test_a_method_is_a_name():
    with pytest.raises(TypeError, match=r"must be a name, not 3 .* lrptrain.record\(model, inputs\)"):
        lrptrain.attribute(tiny_vit().eval(), torch.randn(2, 3, 16, 16), 1, 3)  # type: ignore[call-overload]
