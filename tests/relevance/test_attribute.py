"""The entry point: what it refuses, and that the model and the world are as before."""

import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS, randomised
from small_models import patches
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks

import lrptrain
from lrptrain import UnsupportedMethodError, UnsupportedModelError, UnsupportedOperationError

UNSUPPORTED = (UnsupportedMethodError, UnsupportedOperationError)


class Model(nn.Module):
    """One attention block with batch normalisation, a buffer that is replaced, noise, and a switchable end."""

    calls: Tensor

    def __init__(self, end: Callable | None = None):
        super().__init__()
        self.embed, self.qkv, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 24), nn.Linear(8, 4)
        self.norm, self.dropout = nn.BatchNorm2d(8), nn.Dropout(0.1)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", None)
        randomised(self)
        self.end = end or (lambda logits: logits)

    def forward(self, x: Tensor) -> Tensor:
        self.calls, self.last = self.calls + 1, x.mean()
        random.random(), np.random.rand()
        tokens = self.norm(self.embed(x)).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(self.dropout(tokens)).chunk(3, -1)
        tokens = tokens + nn.functional.scaled_dot_product_attention(q, k, v)
        return self.end(self.head(tokens.mean(1)))


def fail(logits: Tensor) -> Tensor:
    raise RuntimeError("the model fails")


# What it refuses


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (lambda y: y[:, :, None], r"must return logits \[batch, classes\].*shape \[3, 4, 1\]"),
        (lambda y: y[0], r"must return logits \[batch, classes\].*shape \[4\]"),
        (lambda y: y[:2], r"must return logits \[batch, classes\].*shape \[2, 4\]"),
        (lambda y: y.argmax(1, keepdim=True), r"must return logits \[batch, classes\]"),
        (lambda y: torch.randn(3, 4), "do not come from the input"),
    ],
)
def test_outputs_that_are_no_logits(end, message):
    with pytest.raises(UnsupportedModelError, match=message):
        lrptrain.attribute(Model(end), patches())


def test_empty_batch():
    with pytest.raises(ValueError, match="the batch is empty"):
        lrptrain.attribute(Model(), patches(0))
    with pytest.raises(ValueError, match="the batch is empty"):
        lrptrain.attribute(KINDS["bert"].build(True), {"input_ids": torch.zeros(0, 4, dtype=torch.long)})


def test_no_tensor_to_explain():
    with pytest.raises(UnsupportedModelError, match=r"no tensor to explain among the inputs \['text'\]"):
        lrptrain.attribute(Model(), {"text": "words"})
    with pytest.raises(UnsupportedModelError, match="never looks up an embedding"):
        lrptrain.attribute(nn.Identity(), torch.zeros(2, 5, dtype=torch.long))


def test_models_without_attention_still_have_gradients():
    model = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4)).double()
    with pytest.raises(UnsupportedModelError, match="no self-attention"):
        lrptrain.attribute(model, patches(), method="transformer_attribution")
    for method in ("lrp", "input_x_gradient"):
        assert lrptrain.attribute(model, patches(), method=method).scores.shape == (3, 16)


@pytest.mark.parametrize(
    ("method", "options", "error", "message"),
    [
        ("gradcam++", {}, UnsupportedMethodError, r"unknown method 'gradcam\+\+'; did you mean gradcam.?"),
        ("rollout", {"head": 1}, UnsupportedMethodError, "unknown option of rollout .head.; known are start_layer"),
        (
            "raw_attention",
            {"head": 1},
            UnsupportedMethodError,
            "unknown option of raw_attention .head.; known are none",
        ),
        ("rollout", {"start_layer": 1}, ValueError, "start_layer=1 is out of range for a model of 1 blocks"),
        ("transformer_attribution", {"start_layer": -2}, ValueError, "start_layer=-2 is out of range"),
    ],
)
def test_methods_and_options(method, options, error, message):
    with pytest.raises(error, match=message):
        lrptrain.attribute(Model(), patches(), method=method, **options)


def test_images_of_texts():
    found = lrptrain.attribute(KINDS["bert"].build(True), KINDS["bert"].inputs())
    with pytest.raises(ValueError, match="one score per token and no grid"):
        found.to_image(32)


def test_to_image():
    found = lrptrain.attribute(Model(), patches())
    assert found.to_image(16).shape == (3, 16, 16)
    assert found.to_image((8, 12)).shape == (3, 8, 12)
    assert torch.equal(found.to_image(4).flatten(1), found.scores)


# As before


def state_of(model: nn.Module) -> list:
    tensors = [*model.parameters(), *model.buffers()]
    gradients = [None if p.grad is None else (id(p.grad), p.grad.tolist()) for p in model.parameters()]
    return [
        [(id(x), x.tolist(), x.requires_grad, x.dtype) for x in tensors],
        gradients,
        [(module.training, sorted(vars(module)), sorted(module._buffers)) for module in model.modules()],
        [len(getattr(module, name)) for module in model.modules() for name in vars(module) if name.endswith("hooks")],
        [len(hooks) for name, hooks in sorted(vars(module_hooks).items()) if name.startswith("_global_")
         and hasattr(hooks, "__len__")],
        random.getstate(), [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()],
        torch.get_rng_state().tolist(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
    ]  # fmt: skip


# The model's one block has no feed-forward block, and batch normalisation leaks between the samples of a training step.
REFUSED = ("atb_norm", "attn_res_ln_norm", "atb_ff_norm", "atb_ff_res_norm", "atb_ff_res_ln_norm")
REFUSED_IN_TRAINING = (*REFUSED, "attnlrp", "cp_lrp", "gamma_lrp")


@pytest.mark.filterwarnings("ignore::lrptrain.RelevanceWarning")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("method", lrptrain.methods())
def test_the_model_is_as_before(method, training):
    model, x = Model().train(training), patches()
    model.qkv.requires_grad_(False)
    model(x).sum().backward()
    before, copy = state_of(model), x.clone()
    refuses = method in (REFUSED_IN_TRAINING if training else REFUSED)
    with pytest.raises(UNSUPPORTED) if refuses else nullcontext():
        lrptrain.attribute(model, x, method=method)
    assert state_of(model) == before
    assert torch.equal(x, copy)
    assert not x.requires_grad


@pytest.mark.parametrize("end", [fail, lambda y: y[0], lambda y: y * torch.nan, lambda y: y.diff(dim=1)])
def test_the_model_is_as_before_after_an_exception(end):
    model = Model(end)
    before = state_of(model)
    with pytest.raises((RuntimeError, ValueError)):
        lrptrain.attribute(model, patches(), method="attnlrp")
    assert state_of(model) == before


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("method", [method for method in lrptrain.methods() if method not in REFUSED])
def test_modes_without_gradients(mode, method):
    model = Model().eval()
    expected = lrptrain.attribute(model, patches(), 1, method)
    with mode():
        before = state_of(model)
        found = lrptrain.attribute(model, patches() * 1, 1, method)
        assert state_of(model) == before
    assert torch.equal(found.scores, expected.scores)


def test_targets_may_be_given_in_many_ways():
    model = Model().eval()
    predicted = lrptrain.attribute(model, patches())
    targets: tuple[Any, ...] = (
        predicted.target,
        predicted.target.tolist(),
        predicted.target.int(),
        predicted.target.numpy(),
    )
    for target in targets:
        assert torch.equal(lrptrain.attribute(model, patches(), target).scores, predicted.scores)
    assert lrptrain.attribute(model, patches(), 2).target.tolist() == [2, 2, 2]


def test_inputs_may_be_given_by_name_in_any_order():
    class Named(Model):
        def forward(self, position, pixel_values, labels):  # type: ignore[override]
            return {"loss": labels.sum(), "logits": super().forward(pixel_values) + position.sum()}

    inputs = {"position": torch.zeros(1, 7), "labels": torch.ones(3), "pixel_values": patches()}
    found = lrptrain.attribute(Named().eval(), inputs, 1)
    assert relative_error(found.scores, lrptrain.attribute(Model().eval(), patches(), 1).scores).max() < 1e-12


def test_embeddings_in_the_place_of_tokens():
    model: Any = KINDS["bert"].build(True)
    inputs = KINDS["bert"].inputs()
    embedded = {
        "inputs_embeds": model.bert.embeddings.word_embeddings(inputs["input_ids"]).detach(),
        "attention_mask": inputs["attention_mask"],
    }
    for method in ("transformer_attribution", "lrp", "input_x_gradient"):
        one, other = (lrptrain.attribute(model, x, 1, method).scores for x in (inputs, embedded))
        assert relative_error(one, other).max() < 1e-9


def test_several_methods_take_one_forward_pass():
    model, images = KINDS["vit"].build(True), KINDS["vit"].inputs()
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    names = ["attnlrp", "rollout", "input_x_gradient"]
    maps = lrptrain.attribute(model, images, 1, names)
    assert (list(maps), len(calls)) == (names, 1)
    for name, relevance in maps.items():
        expected = lrptrain.attribute(model, images, 1, name).scores
        assert torch.allclose(relevance.scores, expected, rtol=1e-9, atol=1e-12), name
    with pytest.raises(lrptrain.UnsupportedMethodError, match="unknown method 'attnlpr'; did you mean attnlrp"):
        lrptrain.attribute(model, images, 1, ["rollout", "attnlpr"])


@pytest.mark.parametrize("name", ["vit", "hf_vit", "torchvision_vit", "timm_swin"])
def test_one_image_is_a_batch_of_one(name):
    model, images = KINDS[name].build(True), KINDS[name].inputs()
    for method in (None, "input_x_gradient"):
        one = lrptrain.attribute(model, images[0], 1, method)
        assert torch.equal(one.scores, lrptrain.attribute(model, images[:1], 1, method).scores)
    named = lrptrain.attribute(model, {"pixel_values": images[0]}, 1) if name == "hf_vit" else one
    assert len(named.scores) == 1
    with pytest.raises((ValueError, RuntimeError, AssertionError)):  # the model's own: four channels
        lrptrain.attribute(model, torch.randn(4, 32, 32), 1)


class Cutter:
    """A tokenizer that knows ten words, as those of transformers are called."""

    words = ("[PAD]", "[CLS]", "[SEP]", "a", "good", "bad", "very", "film", "plot", "no")
    all_special_ids = (0, 1, 2)

    def __call__(self, texts, return_tensors, truncation, padding=False):
        rows = [[1, *(self.words.index(word) for word in text.split()), 2] for text in texts]
        assert padding or len({len(row) for row in rows}) == 1
        length = max(map(len, rows))
        ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
        return {"input_ids": ids, "attention_mask": (ids > 0).long(), "token_type_ids": ids * 0}

    def convert_ids_to_tokens(self, ids):
        return [self.words[i] for i in ids]


def test_texts_are_cut_by_a_tokenizer(capsys):
    model = KINDS["bert"].build(True)
    texts = ["a very good film", "no plot"]
    encoded = Cutter()(texts, "pt", True, True)
    mine = lrptrain.attribute(model, texts, 1, "attnlrp", tokenizer=Cutter())
    assert torch.equal(mine.scores, lrptrain.attribute(model, encoded, 1, "attnlrp").scores)
    mine.show()
    assert "film" in capsys.readouterr().out, "the tokenizer names the words"
    one = lrptrain.attribute(model, "no plot", 1, "attnlrp", tokenizer=Cutter())
    assert torch.allclose(one.scores, mine.scores[1:, :4], atol=1e-10)
    recorded = lrptrain.record(model, texts, tokenizer=Cutter()).attribute(1, "attnlrp")
    torch.testing.assert_close(recorded.scores, mine.scores, rtol=1e-9, atol=1e-12)  # a recording is a tape's
    recorded.show()
    assert "film" in capsys.readouterr().out
    with pytest.raises(TypeError, match="the inputs are text, with no tokenizer: pass tokenizer="):
        lrptrain.attribute(model, texts, 1)


def test_pairs_of_texts_are_cut_together():
    given = []

    class Pairs(Cutter):
        def __call__(self, texts, pairs=None, **options):  # type: ignore[override]
            given.append((texts, pairs))
            return super().__call__([f"{a} {b}" for a, b in zip(texts, pairs, strict=True)], **options)

    model = KINDS["bert"].build(True)
    mine = lrptrain.attribute(model, [("a good", "film"), ("no", "plot")], 1, "attnlrp", tokenizer=Pairs())
    assert given == [(["a good", "no"], ["film", "plot"])]
    joined = lrptrain.attribute(model, ["a good film", "no plot"], 1, "attnlrp", tokenizer=Cutter())
    assert torch.equal(mine.scores, joined.scores)


def test_arrays_and_lists_are_taken():
    model, ids = KINDS["bert"].build(True), KINDS["bert"].inputs()["input_ids"]
    expected = lrptrain.attribute(model, {"input_ids": ids}, 1).scores
    for given in (ids.numpy(), ids.tolist(), list(ids)):
        assert torch.equal(lrptrain.attribute(model, given, 1).scores, lrptrain.attribute(model, ids, 1).scores)
        assert torch.equal(lrptrain.attribute(model, {"input_ids": given}, 1).scores, expected)
    vit, images = KINDS["vit"].build(True), KINDS["vit"].inputs()
    scores = lrptrain.attribute(vit, images, 1).scores
    for pixels in (images.numpy(), list(images), [image.numpy() for image in images]):
        assert torch.equal(lrptrain.attribute(vit, pixels, 1).scores, scores)


@pytest.mark.parametrize("method", [None, "input_x_gradient", "leave_one_out"])
@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("vit", lambda x: x.movedim(1, -1), r"channels last: pass images.movedim\(-1, -3\)"),
        ("vit", lambda x: x[0].movedim(0, -1), r"channels last: pass images.movedim\(-1, -3\)"),
        ("vit", lambda x: x.byte(), r"images are torch.uint8: pass .*images.float\(\) / 255"),
        ("vit", lambda x: x[:, :1], "have 1 channels, and the model takes 3"),
        ("vit", lambda x: x.half(), r"pass images.to\(torch.float64\)"),
        ("bert", lambda x: x["input_ids"].float(), r"whole numbers: pass ids.long\(\)"),
        ("bert", lambda x: x["input_ids"][0], r"no axis of samples: pass ids\[None\]"),
        ("bert", lambda x: [[1, 2, 3], [4, 5]], "rows of several lengths"),
    ],
)
def test_inputs_that_the_model_cannot_take_are_told_in_a_line(kind, change, message, method):
    model, inputs = KINDS[kind].build(True), change(KINDS[kind].inputs())
    for explain in (lrptrain.attribute, lambda model, x, target, method: lrptrain.record(model, x)):
        with pytest.raises(ValueError, match=message) as error:
            explain(model, inputs, 1, method)
        assert "\n" not in str(error.value)


def test_a_picture_is_refused_with_what_to_pass():
    with pytest.raises(TypeError, match="not object; of a picture pass what the model's transform"):
        lrptrain.attribute(KINDS["vit"].build(True), object(), 1)  # type: ignore[call-overload]


def test_channels_that_the_model_moves_itself_are_no_fault():
    class ChannelsLast(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = KINDS["vit"].build(True)

        def forward(self, x):
            return self.inner(x.movedim(-1, 1))

    images = KINDS["vit"].inputs()
    model = ChannelsLast().eval()
    assert lrptrain.attribute(model, images.movedim(1, -1), 1).scores.shape[0] == len(images)
    with pytest.raises(ValueError, match="out of range"):
        lrptrain.attribute(model, images.movedim(1, -1), 99)


def test_a_model_is_given_what_its_forward_takes():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 2)

        def forward(self, ids):
            return self.head(self.embed(ids).mean(1))

    model = Bag().eval()
    mine = lrptrain.attribute(model, "a good film", 1, "input_x_gradient", tokenizer=Cutter())
    assert torch.equal(
        mine.scores, lrptrain.attribute(model, torch.tensor([[1, 3, 4, 7, 2]]), 1, "input_x_gradient").scores
    )
