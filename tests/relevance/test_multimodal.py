"""Models that read several inputs: which of them is explained, with which mask, and where its tokens stand."""

from collections import UserDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hugging_face import small_sizes
from model_zoo import in_float64, randomised, select
from small_models import Small, patches
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain
from lrptrain import targets

# Two steps are enough to compare a batch with its samples.
pytestmark = pytest.mark.filterwarnings("ignore:integrated_gradients has not converged")

SIZES: dict[str, Any] = small_sizes(16, layers=2, inner=24)  # fmt: skip
TEXT: dict[str, Any] = {"vocab_size": 50, "max_position_embeddings": 20, "pad_token_id": 1}
IMAGE = {"image_size": 16, "patch_size": 8}
METHODS = ("input_x_gradient", "attnlrp", "lrp", "integrated_gradients", "leave_one_out")


def inputs(samples: int = 3) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(6) < torch.tensor([6, 4, 3])[:, None]).long()
    ids = torch.randint(5, 40, (3, 6), generator=generator) * mask + (1 - mask)
    pixels = torch.randn(3, 3, 16, 16, dtype=torch.float64, generator=generator)
    return {"input_ids": ids[:samples], "attention_mask": mask[:samples], "pixel_values": pixels[:samples]}


def model_of(family: str, config: Any) -> Any:
    import transformers

    return in_float64(randomised(getattr(transformers, family)(config)))


def clip() -> tuple[Any, dict[str, Tensor], Any]:
    from transformers import CLIPConfig

    text = {**SIZES, **TEXT, "eos_token_id": 39, "bos_token_id": 2}
    config = CLIPConfig(text_config=text, vision_config={**SIZES, **IMAGE}, projection_dim=8)
    return model_of("CLIPModel", config), inputs(), targets.ImageTextSimilarityTarget()


def layoutlmv3() -> tuple[Any, dict[str, Tensor], Any]:
    from transformers import LayoutLMv3Config

    boxes: dict[str, Any] = {"max_2d_position_embeddings": 32, "coordinate_size": 3, "shape_size": 2, "num_labels": 4}
    config = LayoutLMv3Config(**SIZES, **TEXT, **boxes, input_size=16, patch_size=8)
    corners = torch.arange(3 * 6 * 4).view(3, 6, 4) % 7
    return model_of("LayoutLMv3ForSequenceClassification", config), {**inputs(), "bbox": corners.cumsum(-1)}, 1


def vilt() -> tuple[Any, dict[str, Tensor], Any]:
    from transformers import ViltConfig

    options: dict[str, Any] = {**SIZES, **TEXT, **IMAGE, "num_labels": 4}
    config = ViltConfig(**options)
    return model_of("ViltForQuestionAnswering", config), inputs(), 1


def visual_bert() -> tuple[Any, dict[str, Tensor], Any]:
    from transformers import VisualBertConfig

    options: dict[str, Any] = {**SIZES, **TEXT, "num_labels": 3}
    config = VisualBertConfig(**options, visual_embedding_dim=5)
    text = {name: x for name, x in inputs().items() if name != "pixel_values"}
    regions = torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]])
    seen = {"visual_embeds": regions, "visual_attention_mask": mask, "visual_token_type_ids": torch.ones(3, 4).long()}
    return model_of("VisualBertForVisualReasoning", config), {**text, **seen}, 2


BUILDS = {"clip": clip, "layoutlmv3": layoutlmv3, "vilt": vilt, "visual_bert": visual_bert}
EXPLAINED = [
    ("clip", "pixel_values"), ("clip", "input_ids"), ("layoutlmv3", "pixel_values"), ("layoutlmv3", "input_ids"),
    ("vilt", "pixel_values"), ("vilt", "input_ids"), ("visual_bert", "visual_embeds"), ("visual_bert", "input_ids"),
]  # fmt: skip


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def explained_number(output: Any, target: Any) -> Tensor:
    return target(output) if callable(target) else output.logits[:, target]


@pytest.mark.parametrize(("name", "argument"), EXPLAINED)
def test_the_gradient_at_each_input(name, argument):
    model, given, target = BUILDS[name]()
    if argument == "input_ids":
        table = next(x for path, x in model.named_modules() if path.endswith(("word_embeddings", "token_embedding")))
        leaf = table(given[argument]).detach().requires_grad_()
        handle = table.register_forward_hook(lambda *_: leaf)
        output = model(**given)
        handle.remove()
    else:
        leaf = given[argument].clone().requires_grad_()
        output = model(**{**given, argument: leaf})
    (gradient,) = torch.autograd.grad(explained_number(output, target).sum(), leaf)
    product = (leaf * gradient).detach()
    found = lrptrain.attribute(model, given, target, "input_x_gradient", explain=argument)
    if argument == "pixel_values":
        close(found.scores, F.avg_pool2d(product.sum(1), 8).flatten(1) * 64)
    else:
        mask = given["attention_mask" if argument == "input_ids" else "visual_attention_mask"]
        close(found.scores, product.sum(-1) * mask)


@pytest.mark.parametrize(("name", "argument"), EXPLAINED)
def test_a_batch_is_its_samples_and_a_second_call_is_the_first(name, argument):
    model, given, target = BUILDS[name]()
    for number, method in enumerate(METHODS):
        options = {"steps": 2} if method == "integrated_gradients" else {}
        found = lrptrain.attribute(model, given, target, method, explain=argument, **options)
        again = lrptrain.attribute(model, given, target, method, explain=argument, **options)
        assert torch.equal(found.scores, again.scores)
        rows = [1] if number % 2 else [2, 0]  # one by itself, or the others the other way round
        some = lrptrain.attribute(model, select(given, rows), target, method, explain=argument, **options)
        close(some.scores, found.scores[rows])


@pytest.mark.parametrize("name", ["clip", "vilt"])
def test_several_inputs_at_once(name):
    model, given, target = BUILDS[name]()
    both = lrptrain.attribute(model, given, target, "attnlrp", explain=("pixel_values", "input_ids"))
    assert list(both) == ["pixel_values", "input_ids"]
    for argument, relevance in both.items():
        close(relevance.scores, lrptrain.attribute(model, given, target, "attnlrp", explain=argument).scores)
    assert both["pixel_values"].grid == (2, 2)
    assert both["input_ids"].grid is None
    close(both["pixel_values"].scores, lrptrain.attribute(model, given, target, "attnlrp").scores)


def test_attention_methods_on_the_towers_of_clip():
    model, given, target = clip()
    for argument, tower in (("pixel_values", model.vision_model), ("input_ids", model.text_model)):
        recording = lrptrain.record(model, given, explain=argument)
        found = recording.attribute(target, "rollout")
        own = {name: x for name, x in given.items() if name == argument}
        if argument == "input_ids":
            own["attention_mask"] = given["attention_mask"]
        alone = lrptrain.attribute(tower, own, lambda output: output.pooler_output[:, 0], "rollout")
        close(found.scores, alone.scores)


@pytest.mark.parametrize(
    ("name", "argument", "positions"),
    [
        ("layoutlmv3", "input_ids", range(6)),
        ("layoutlmv3", "pixel_values", range(7, 11)),  # behind the image's own class token
        ("vilt", "input_ids", range(6)),
        ("visual_bert", "input_ids", range(6)),
        ("visual_bert", "visual_embeds", range(6, 10)),
    ],
)
def test_the_tokens_of_each_input_in_one_sequence(name, argument, positions):
    model, given, target = BUILDS[name]()
    recording = lrptrain.record(model, given, explain=argument)
    assert recording.layout.positions == tuple(positions)
    for method in ("rollout", "generic_attention", "attention_flow", "gradcam"):
        found = recording.attribute(target, method)
        assert found.scores.shape == (3, len(positions))
        for row in range(3):
            one = select(given, slice(row, row + 1))
            close(lrptrain.attribute(model, one, target, method, explain=argument).scores[0], found.scores[row])


def test_patches_in_another_order_for_every_sample_are_refused():
    model, given, target = vilt()  # it draws the order of the patches
    with pytest.raises(lrptrain.UnsupportedModelError, match="cannot be found one by one among the 11 tokens"):
        lrptrain.attribute(model, given, target, "rollout", explain="pixel_values")


def test_one_text_of_all():
    model, given, _ = clip()
    for text in (0, 2):
        target = targets.ImageTextSimilarityTarget(text=text)
        for method in METHODS:
            options: dict[str, Any] = {"steps": 2} if method == "integrated_gradients" else {}
            found = lrptrain.attribute(model, given, target, method, **options)
            alone = lrptrain.attribute(
                model,
                {name: x[:1] if name == "pixel_values" else x for name, x in given.items()},
                target,
                method,
                **options,
            )
            close(found.scores[:1], alone.scores)


class Twins(nn.Module):
    """Two texts, read by one encoder, and what they have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(16, 3)
        randomised(self)

    def embedded(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = self.encoder(self.embedding(ids), src_key_padding_mask=mask == 0)
        return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    def forward(
        self, input_ids_a: Tensor, input_ids_b: Tensor, attention_mask_a: Tensor, attention_mask_b: Tensor
    ) -> Tensor:
        first = self.embedded(input_ids_a, attention_mask_a)
        second = self.embedded(input_ids_b, attention_mask_b)
        return self.head(torch.cat([first * second, first - second], -1))


def pair_of_texts() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    lengths = {"a": torch.tensor([5, 3]), "b": torch.tensor([2, 5])}
    texts = {f"input_ids_{name}": torch.randint(1, 20, (2, 5), generator=generator) for name in lengths}
    masks = {f"attention_mask_{name}": (torch.arange(5) < long[:, None]).long() for name, long in lengths.items()}
    return {**texts, **masks}


def gradient_at(model: Twins, given: dict[str, Tensor], which: str) -> tuple[Tensor, Tensor]:
    """The embeddings of one of the texts, and the gradient of a logit there."""
    lookups = []

    def watch(_: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        lookups.append(output.detach().requires_grad_())
        return lookups[-1]

    handle = model.embedding.register_forward_hook(watch)
    logits = model(**given)
    handle.remove()
    leaf = lookups["ab".index(which)]
    (gradient,) = torch.autograd.grad(logits[:, 1].sum(), leaf)
    return leaf.detach(), gradient


@pytest.mark.parametrize("which", ["a", "b"])
@pytest.mark.parametrize("method", ["input_x_gradient", "attnlrp", "rollout", "leave_one_out"])
def test_each_of_two_texts(which, method):
    model = Twins().double().eval()
    given = pair_of_texts()
    found = lrptrain.attribute(model, given, 1, method, explain=f"input_ids_{which}")
    mask = given[f"attention_mask_{which}"]
    assert torch.equal(found.scores != 0, mask.bool())
    if method == "input_x_gradient":
        embeddings, gradient = gradient_at(model, given, which)
        close(found.scores, (embeddings * gradient).sum(-1) * mask)


@pytest.mark.parametrize("which", ["a", "b"])
def test_each_of_two_equal_texts(which):
    model = Twins().double().eval()
    given = pair_of_texts()
    given["input_ids_b"] = given["input_ids_a"]
    given["attention_mask_b"] = given["attention_mask_a"]
    found = lrptrain.attribute(model, given, 1, "input_x_gradient", explain=f"input_ids_{which}")
    embeddings, gradient = gradient_at(model, given, which)
    close(found.scores, (embeddings * gradient).sum(-1) * given["attention_mask_a"])
    # The model is run again with other embeddings of that text only.
    path = lrptrain.attribute(model, given, 1, "integrated_gradients", explain=f"input_ids_{which}", steps=64)
    swapped = lrptrain.attribute(
        model, given, 1, "integrated_gradients", explain=f"input_ids_{'ba'['ab'.index(which)]}", steps=64
    )
    assert relative(path.scores, swapped.scores) > 0.01


def test_that_one_of_two_texts_is_explained_is_said_once():
    model = Twins().double().eval()
    given = pair_of_texts()
    lrptrain.attribute(model, given, 1, "input_x_gradient", explain="input_ids_a")  # who names one knows
    with pytest.warns(
        lrptrain.RelevanceWarning, match=r"input_ids_a, input_ids_b, of which input_ids_a.*explain="
    ) as said:
        found = lrptrain.attribute(model, given, 1, "input_x_gradient")
    assert len(said) == 1
    again = lrptrain.attribute(model, given, 1, "input_x_gradient")
    assert torch.equal(found.scores, again.scores)


def relative(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / one.norm())


def test_a_decoders_copy_of_the_text_is_taken_away_with_it():
    from transformers import BartConfig

    sizes = {
        f"{part}_{name}": size
        for part in ("encoder", "decoder")
        for name, size in {"layers": 1, "attention_heads": 2, "ffn_dim": 16}.items()
    }
    options: dict[str, Any] = {**TEXT, **sizes, "d_model": 16, "eos_token_id": 2, "bos_token_id": 0, "num_labels": 3}
    config = BartConfig(**options)
    model = model_of("BartForSequenceClassification", config)
    ids = torch.tensor([[0, 5, 6, 7, 2], [0, 8, 9, 10, 2]])
    before = model(input_ids=ids).logits[:, 1]
    hooks = [
        model.model.encoder.embed_tokens.register_forward_hook(lambda _, args, output: output * 0),
        model.model.decoder.embed_tokens.register_forward_hook(
            lambda _, args, output: torch.cat([output[:, :1], output[:, 1:] * 0], 1)
        ),
    ]
    fall = (before - model(input_ids=ids).logits[:, 1]).detach()
    for hook in hooks:
        hook.remove()
    given = {"input_ids": ids}
    close(lrptrain.attribute(model, given, 1, "leave_one_out", window=5).scores[:, 0], fall)
    path = lrptrain.attribute(model, given, 1, "integrated_gradients", steps=128).scores.sum(1)
    torch.testing.assert_close(path, fall, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", ["input_x_gradient", "attnlrp", "rollout"])
def test_a_pair_of_sentences_in_one_text(method):
    from transformers import BertConfig

    options: dict[str, Any] = {**SIZES, **TEXT, "num_labels": 3}
    model = model_of("BertForSequenceClassification", BertConfig(**options))
    given: dict[str, Any] = {name: x for name, x in inputs().items() if name != "pixel_values"}
    first = lrptrain.attribute(model, given, 1, method)
    given["token_type_ids"] = (torch.arange(6) >= 2).long().expand(3, 6)
    found = lrptrain.attribute(model, given, 1, method)
    assert relative(found.scores, first.scores) > 1e-3
    embedded = model.bert.embeddings.word_embeddings(given["input_ids"]).detach().requires_grad_()
    others = {name: x for name, x in given.items() if name != "input_ids"}
    logits = model(inputs_embeds=embedded, **others).logits
    close(found.logits, logits.detach())
    if method == "input_x_gradient":
        (gradient,) = torch.autograd.grad(logits[:, 1].sum(), embedded)
        close(found.scores, (embedded * gradient).sum(-1).detach() * given["attention_mask"])


def test_the_mask_of_another_input_is_not_taken():
    class Joint(Small):
        def forward(self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return super().forward(pixel_values)

    model = Joint().eval()
    given = {
        "pixel_values": patches(),
        "input_ids": torch.ones(3, 16).long(),
        "attention_mask": torch.zeros(3, 16).long(),
    }
    for method in ("attnlrp", "rollout", "leave_one_out"):
        expected = lrptrain.attribute(Small(), patches(), 1, method).scores
        close(lrptrain.attribute(model, given, 1, method).scores, expected)


def test_an_argument_that_is_not_there():
    model, given, target = clip()
    with pytest.raises(ValueError, match=r"unknown argument to explain 'pixels'.*known are input_ids, attention_mask"):
        lrptrain.attribute(model, given, target, explain="pixels")
    with pytest.raises(ValueError, match="explain is an empty tuple"):
        lrptrain.attribute(model, given, target, explain=())
    with pytest.raises(ValueError, match=r"explain='pixel_values' names an argument.*pass a dict"):
        lrptrain.attribute(Small(), patches(), explain="pixel_values")
    with pytest.raises(TypeError, match=r"inputs must be a tensor, an array, a dict of the arguments.*not set"):
        lrptrain.attribute(Small(), {1})  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"have an axis too many: pass \[batch, channels, height, width\]"):
        lrptrain.attribute(Small(), [patches()])


@dataclass
class Batch:
    pixel_values: Tensor
    scale: float
    extra: list[Tensor]


class Scaled(Small):
    def forward(self, pixel_values: Tensor, scale: float, extra: list[Tensor]) -> Tensor:
        return scale * super().forward(pixel_values) + extra[0].sum(1, keepdim=True)


@pytest.mark.parametrize("method", ["attnlrp", "rollout", "integrated_gradients", "leave_one_out"])
def test_inputs_of_other_types(method):
    from transformers import BatchFeature

    extra = [torch.arange(3.0, dtype=torch.float64)[:, None]]
    arguments: dict[str, Any] = {"pixel_values": patches(), "scale": 2.0, "extra": extra}
    kinds: tuple[Any, ...] = (arguments, UserDict(arguments), BatchFeature(arguments), Batch(**arguments))
    expected = lrptrain.attribute(Small(), patches(), 1, method).scores
    scale = 1 if method == "rollout" else 2
    for given in kinds:
        close(lrptrain.attribute(Scaled(), given, 1, method).scores, scale * expected)


@pytest.mark.parametrize("sign", [-1, 1])
def test_gradcam_of_an_image_that_a_text_of_as_many_tokens_attends_to(sign):
    from transformers import BlipConfig

    text = {**SIZES, **TEXT, "encoder_hidden_size": SIZES["hidden_size"], "projection_dim": 8, "sep_token_id": 3}
    vision = {**SIZES, "image_size": 16, "patch_size": 8, "projection_dim": 8}
    config = BlipConfig(text_config=text, vision_config=vision, projection_dim=8, image_text_hidden_size=8)
    model = model_of("BlipForImageTextRetrieval", config)
    given = {name: x[:, :5] if name != "pixel_values" else x for name, x in inputs().items()}

    def score(output: Any) -> Tensor:
        number: Tensor = sign * output.itm_score[:, 1]
        return number

    found = lrptrain.attribute(model, given, score, "gradcam", explain="pixel_values")
    states = []
    handle = model.vision_model.register_forward_hook(lambda *args: states.append(args[2][0]))
    output = model(**given)
    handle.remove()
    (gradient,) = torch.autograd.grad(score(output).sum(), states[0])
    importance = gradient[:, 1:].mean(1, keepdim=True)
    close(found.scores, (importance * states[0][:, 1:]).sum(-1).clamp(min=0).detach())


class Fused(nn.Module):
    """A text decoder that reads an image by cross-attention in each block."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        self.patches = nn.Conv2d(3, 16, 8, 8)
        options: dict[str, Any] = {**SIZES, **TEXT, "is_decoder": True, "add_cross_attention": True}
        options["attn_implementation"] = "eager"
        self.text = BertModel(BertConfig(**options))
        self.head = nn.Linear(16, 3)

    def states(self, pixel_values: Tensor, input_ids: Tensor, **options: Any) -> Any:
        image = self.patches(pixel_values).flatten(2).transpose(1, 2)
        return self.text(input_ids, encoder_hidden_states=image, **options)

    def forward(self, pixel_values: Tensor, input_ids: Tensor) -> Tensor:
        return self.head(self.states(pixel_values, input_ids).last_hidden_state[:, -1])


@pytest.mark.parametrize("method", [*lrptrain.methods()])
@pytest.mark.filterwarnings("ignore:.*")
def test_a_text_that_reads_an_image_by_cross_attention(method):
    model = in_float64(randomised(Fused()))
    given = {name: x for name, x in inputs().items() if name != "attention_mask"}
    try:
        found = lrptrain.attribute(model, given, 1, method, explain="input_ids")
    except (lrptrain.UnsupportedMethodError, lrptrain.UnsupportedOperationError):
        assert method not in ("lrp", "attnlrp", "input_x_gradient", "integrated_gradients")
        return
    assert method not in ("rollout", "generic_attention", "transformer_attribution")
    assert found.scores.shape == (3, 6)
    assert found.scores.isfinite().all()


class Looks(nn.Module):
    """A text that attends to an image: its states, or what it sees there alone."""

    def __init__(self, residual: bool):
        super().__init__()
        self.words, self.embed, self.residual = nn.Embedding(12, 8), nn.Conv2d(3, 8, 4, 4), residual
        self.own = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.cross, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 4)
        randomised(self)

    def forward(self, input_ids: Tensor, pixel_values: Tensor) -> Tensor:
        text, image = self.own(self.words(input_ids)), self.embed(pixel_values).flatten(2).mT
        seen = self.cross(text, image, image, need_weights=False)[0]
        return self.head((text + seen if self.residual else seen).mean(1))


@pytest.mark.parametrize("method", ["generic_attention", "rollout", "raw_attention", "partial_lrp"])
def test_a_text_that_only_says_where_to_look_has_no_product_of_maps(method):
    ids, images = torch.arange(12).view(2, 6), patches(2)
    batch = {"input_ids": ids, "pixel_values": images}
    with pytest.raises(lrptrain.UnsupportedMethodError, match=r"attends from 6 tokens to .* of another input"):
        lrptrain.attribute(Looks(residual=False).eval(), batch, 1, method, explain="input_ids")
    assert lrptrain.attribute(Looks(residual=True).eval(), batch, 1, method, explain="input_ids").scores.any()


@pytest.mark.parametrize("method", ["attnlrp", "lrp", "input_x_gradient"])
def test_relevance_reaches_a_text_that_only_says_where_to_look(method):
    model, batch = Looks(residual=False).eval(), {"input_ids": torch.arange(12).view(2, 6), "pixel_values": patches(2)}
    whole = lrptrain.attribute(model, batch, 1, method, explain="input_ids").scores
    one = lrptrain.attribute(model, select(batch, [1]), 1, method, explain="input_ids").scores
    torch.testing.assert_close(whole[1:], one, rtol=1e-9, atol=1e-12)
    assert whole.any()
