"""Models in other forms: what runs torch functions is served, and the rest is refused in a line with a way out."""

import copy
from typing import Any

import pytest
import torch
from small_models import Block, Small, patches, raises, same, tiny_vit
from torch import Tensor, nn
from torch.nn import functional as F
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


def test_a_compiled_module_inside_is_the_module():
    model = Small()
    model.qkv = torch.compile(model.qkv, backend="aot_eager")
    same(model, Small(), patches())


aten = torch.ops.aten
MEAN = torch.ones(16).double()


def batch_norm(x: Tensor) -> Tensor:
    return torch.batch_norm(x, None, None, MEAN, 4 * MEAN, False, 0.1, 0, False)


def functional(x: Tensor) -> Tensor:
    weight, bias = 2 * torch.eye(8).double(), torch.zeros(8).double()
    return torch.func.functional_call(nn.Linear(8, 8).double(), {"weight": weight, "bias": bias}, (x,))


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
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name):
    one, other = SPELLINGS[name]
    same(Small(Block(one)), Small(Block(other)), patches())


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


REFUSED = {
    "relu in module 'between' runs inside of torch.vmap": lambda x: torch.vmap(torch.relu)(x),
    "mul in module 'between' runs inside of torch.vmap": lambda x: torch.vmap(lambda i: x * i)(torch.arange(1, 2))[0],
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


def test_inside_of_transformations_of_functions():
    model, x = tiny_vit().eval(), torch.randn(2, 3, 16, 16)
    for transformed in (
        torch.vmap(lambda image: lrptrain.attribute(model, image[None], 1).scores),
        torch.func.grad(lambda images: lrptrain.attribute(model, images, 1).scores.sum()),
    ):
        with pytest.raises(UnsupportedModelError, match=r"cannot stand inside of torch.func .*: call it outside"):
            transformed(x)
    assert lrptrain.attribute(model, x, 1).scores.isfinite().all()


def test_a_method_is_a_name_and_the_way_out_works():
    model, x = tiny_vit().eval(), torch.randn(2, 3, 16, 16)
    with pytest.raises(TypeError, match=r"must be a name, not 3 .* lrptrain.record\(model, inputs\)"):
        lrptrain.attribute(model, x, 1, 3)  # type: ignore[call-overload]
    recording = lrptrain.record(model, x)
    for name in ("attnlrp", "rollout"):
        torch.testing.assert_close(recording.attribute(1, name).scores, lrptrain.attribute(model, x, 1, name).scores)
