"""Models with more than one input: what the trainer's own step gives the model is what the monitor explains.

Each is monitored on its whole validation set in three trainers, and must answer as the user's own code does.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
from grouped_options import grouped
from hugging_face import small_sizes
from own_trainers import TRAINERS, Module, N, answers, rows
from setting import learn, trainer
from test_explanation_audit import QUICK
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import (
    BertConfig,
    BertModel,
    LayoutLMConfig,
    LayoutLMForSequenceClassification,
    Siglip2Config,
    Siglip2ForImageClassification,
)
from transformers.modeling_outputs import SequenceClassifierOutput

import lrptrain
from lrptrain.callbacks import RelevanceMonitor

TOKENS = 6
THREE = {0: "a", 1: "b", 2: "c"}
TEXT: dict[str, Any] = {**small_sizes(16), "vocab_size": 60}


def vit(channels: int = 1) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=16, patch_size=4, in_chans=channels, embed_dim=16, depth=1, num_heads=2, num_classes=0
    )


def bert() -> BertModel:
    return BertModel(BertConfig(**TEXT))


class Together(nn.Module):
    """Encoders whose states are joined, each of what its parameter gives."""

    def __init__(self, *encoders: nn.Module, width: int = 0):
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.numbers = nn.Linear(max(width, 1), 16)
        self.head = nn.Linear(16 * (len(encoders) + bool(width)), 3)

    def joined(self, *states: Tensor, labels: Tensor | None = None) -> SequenceClassifierOutput:
        logits = 20 * self.head(torch.cat(states, 1))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)

    def state(self, number: int, *given: Any, **named: Any) -> Tensor:
        found = self.encoders[number](*given, **named)
        return getattr(found, "pooler_output", found)


class TextAndNumbers(Together):
    def forward(self, input_ids, attention_mask=None, numeric=None, labels=None):
        return self.joined(self.state(0, input_ids, attention_mask), self.numbers(numeric), labels=labels)


class TextAndMaybeNumbers(Together):
    def forward(self, input_ids, attention_mask=None, numeric=None, labels=None):
        numbers = torch.zeros(len(input_ids), 16) if numeric is None else self.numbers(numeric)
        return self.joined(self.state(0, input_ids, attention_mask), 5 * numbers, labels=labels)


class TwoImages(Together):
    def forward(self, mri, ct, labels=None):
        return self.joined(self.state(0, mri), self.state(1, ct), labels=labels)


class ImageAndText(Together):
    def forward(self, pixel_values, input_ids, attention_mask=None, labels=None):
        return self.joined(self.state(0, pixel_values), self.state(1, input_ids, attention_mask), labels=labels)


class ImageAndAge(Together):
    def forward(self, pixel_values, age, labels=None):
        return self.joined(self.state(0, pixel_values), self.numbers(age[:, None]), labels=labels)


class TextWithPositions(Together):
    def forward(self, input_ids, position_ids=None, token_type_ids=None, labels=None):
        state = self.state(0, input_ids, position_ids=position_ids, token_type_ids=token_type_ids)
        return self.joined(state, labels=labels)


class OwnNames(Together):
    def forward(self, tokens, keep, labels=None):
        return self.joined(self.state(0, tokens, keep), labels=labels)


def layout_lm() -> nn.Module:
    config = LayoutLMConfig(**TEXT, max_2d_position_embeddings=64, id2label=THREE)
    return LayoutLMForSequenceClassification(config)


def naflex() -> nn.Module:
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**vision, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2}
    config = Siglip2Config(
        vision_config={**vision, "num_patches": 9, "patch_size": 4}, text_config=text, id2label=THREE
    )
    return Siglip2ForImageClassification(config)


def numbers(*shape: int) -> Tensor:
    return torch.randn(N, *shape)


def ids() -> Tensor:
    return torch.randint(3, 50, (N, TOKENS))


def keep() -> Tensor:
    return (torch.arange(TOKENS) < torch.randint(3, TOKENS + 1, (N, 1))).long()


def patches() -> dict[str, Tensor]:
    """Images of 2 x 4, 3 x 3 and 4 x 2 patches of 4 x 4 pixels, filled up to nine."""
    sizes = torch.tensor([[2, 4], [3, 3], [4, 2]]).repeat(N // 3, 1)
    mask = (torch.arange(9) < sizes.prod(1, keepdim=True)).long()
    return {"pixel_values": numbers(9, 48) * mask[..., None], "pixel_attention_mask": mask, "spatial_shapes": sizes}


@dataclass
class Case:
    """A model, its columns, which argument is explained where several could be, and which one must count."""

    model: Callable[[], nn.Module]
    columns: Callable[[], dict[str, Tensor]]
    counts: str
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "LayoutLM's boxes": Case(
        layout_lm,
        lambda: {
            "input_ids": ids(),
            "attention_mask": keep(),
            "bbox": torch.randint(0, 30, (N, TOKENS, 2)).repeat(1, 1, 2),
        },
        "bbox",
    ),
    "text and numbers": Case(
        lambda: TextAndNumbers(bert(), width=4),
        lambda: {"input_ids": ids(), "attention_mask": keep(), "numeric": numbers(4)},
        "numeric",
    ),
    "text and numbers that may be missing": Case(
        lambda: TextAndMaybeNumbers(bert(), width=4),
        lambda: {"input_ids": ids(), "attention_mask": keep(), "numeric": numbers(4)},
        "numeric",
    ),
    "two images": Case(
        lambda: TwoImages(vit(), vit()),
        lambda: {"mri": numbers(1, 16, 16), "ct": numbers(1, 16, 16)},
        "mri",
        {"explain": "ct"},
    ),
    "image and text": Case(
        lambda: ImageAndText(vit(3), bert()),
        lambda: {"pixel_values": numbers(3, 16, 16), "input_ids": ids(), "attention_mask": keep()},
        "input_ids",
    ),
    "image and text, of which the text is explained": Case(
        lambda: ImageAndText(vit(3), bert()),
        lambda: {"pixel_values": numbers(3, 16, 16), "input_ids": ids(), "attention_mask": keep()},
        "pixel_values",
        {"explain": "input_ids"},
    ),
    "image and age": Case(
        lambda: ImageAndAge(vit(3), width=1),
        lambda: {"pixel_values": numbers(3, 16, 16), "age": 3 * torch.randn(N)},
        "age",
    ),
    "positions and types": Case(
        lambda: TextWithPositions(bert()),
        lambda: {
            "input_ids": ids(),
            "position_ids": torch.randint(0, 200, (N, TOKENS)),
            "token_type_ids": torch.randint(0, 2, (N, TOKENS)),
        },
        "position_ids",
    ),
    "names of its own": Case(
        lambda: OwnNames(bert()), lambda: {"tokens": ids(), "keep": keep()}, "keep", {"explain": "tokens"}
    ),
    "images of different shapes": Case(naflex, patches, "spatial_shapes"),
}


def in_turn(titles):
    """Each with one of the three trainers."""
    return [(title, TRAINERS[i % 3]) for i, title in enumerate(titles)]


@pytest.mark.parametrize(("title", "train"), in_turn(CASES))
def test_the_monitor_answers_as_the_trainer_does(title, train, tmp_path):
    case = CASES[title]
    torch.manual_seed(2)
    model, columns = case.model(), case.columns()
    watching = train(tmp_path, model, columns, case.options)
    with torch.no_grad():
        own = model.eval()(**columns).logits
        other = model(**columns | {case.counts: columns[case.counts].flip(0)}).logits
    assert not torch.allclose(own, other, atol=1e-3), "this input counts for nothing"
    answers = {each.sample.sample_id: each.probabilities for each in watching.scored}
    assert sorted(answers) == list(range(N))
    found = torch.tensor([answers[i].tolist() for i in range(N)])
    torch.testing.assert_close(found, own.double().softmax(1), atol=2e-5, rtol=1e-4, check_dtype=False)
    accuracy = (own.argmax(1) == torch.arange(N) % 3).float().mean()
    assert watching.scalars["relevance/accuracy"] == pytest.approx(float(accuracy))
    labels = {each.sample.sample_id: each.sample.label for each in watching.scored}
    assert labels == {i: i % 3 for i in range(N)}, "the label was read before the step took it"


def trained_on(title: str, tells: Callable[[dict[str, Tensor], Tensor], None]) -> tuple[nn.Module, dict[str, Tensor]]:
    """A model of a case, and columns of which one input was made to tell the class; copies, as trainers go on."""
    return copy.deepcopy(_trained_on(title, tells))


@cache
def _trained_on(title: str, tells: Callable[[dict[str, Tensor], Tensor], None]) -> tuple[nn.Module, dict[str, Tensor]]:
    case = CASES[title]
    torch.manual_seed(0)
    model, columns = case.model(), case.columns()
    label = torch.arange(N) % 3
    tells(columns, label)
    learn(model.train(), lambda _: nn.functional.cross_entropy(model(**columns).logits, label), 60, 1e-2)
    return model, columns


def by_numbers(columns: dict[str, Tensor], label: Tensor) -> None:
    columns["numeric"][:, 0] = 4.0 * label


def by_boxes(columns: dict[str, Tensor], label: Tensor) -> None:
    columns["bbox"] += 10 * label[:, None, None]
    columns["input_ids"][:, 0], columns["input_ids"][:, -1] = 1, 2  # special, as of a tokenizer


def by_the_other_image(columns: dict[str, Tensor], label: Tensor) -> None:
    columns["ct"] *= 0.01  # so few images are else learned by heart
    columns["mri"][:, 0, 0] = 4.0 * label[:, None]


def by_the_text(columns: dict[str, Tensor], label: Tensor) -> None:
    columns["input_ids"][:, 0] = 50 + label


DECIDES = {
    "the input 'numeric'": ("text and numbers", by_numbers, "the text"),
    "the input 'bbox'": ("LayoutLM's boxes", by_boxes, "the text"),
    "the input 'mri'": ("two images", by_the_other_image, "the input 'ct'"),
    "the text": ("image and text", by_the_text, "the image"),
}


@pytest.mark.parametrize(("name", "train"), in_turn(DECIDES))
def test_what_is_not_explained_is_a_cue_of_its_own(name, train, tmp_path):
    """A model that reads another input alone: that is named, with what each input does."""
    title, tells, explained = DECIDES[name]
    model, columns = trained_on(title, tells)
    watching = train(tmp_path, model, columns, CASES[title].options)
    assert watching.scalars["relevance/accuracy"] == 1
    (found,) = [each for each in watching.to_review if each.kind == "input"]
    assert (found.name, found.role) == (name, "unreviewed")
    shares = {key: x for key, x in watching.scalars.items() if key.startswith("relevance/input/")}
    assert len(shares) == 2
    assert max(shares, key=shares.__getitem__) == f"relevance/input/{found.cue.argument}"
    proof = found.proof
    assert proof.samples[0].changed < proof.samples[0].control
    marked = {mark for _, mark in (*proof.samples[0].words, *proof.samples[0].changed_words)}
    assert bool(proof.path.endswith(".png")) == (title == "two images")
    assert ({"gone", "new"} <= marked) == (title != "two images"), "what of it was exchanged is shown"
    report = lrptrain.inspect(model, DataLoader(rows(columns), 8), **grouped(CASES[title].options))
    by_input = {each.cue.name: each.effect.mean for each in report.judged if each.cue.kind == "input"}
    assert by_input.keys() == {name, explained}
    assert by_input[name] > 0.5 > by_input[explained]
    assert f"By input: {name} {round(100 * by_input[name])} points and {explained} " in str(report).replace("\n ", "")


def test_of_a_loop_without_a_step_explain_names_an_entry():
    model, columns = trained_on("two images", by_the_other_image)
    loader = DataLoader(rows(columns), 8)
    report = lrptrain.inspect(model, loader, explain="mri")
    assert report.accuracy == 1
    assert "the input 'ct'" not in {each.name for each in report.to_review}
    assert report.to_review, "the image that tells is the one that is explained"
    with pytest.raises(ValueError, match=r"explain='pet' is no entry .* TwoImages has .*: these are \['ct', 'mri'\]"):
        lrptrain.inspect(model, loader, explain="pet")
    with pytest.raises(ValueError, match="to monitors and guidance explain= with the name"):
        lrptrain.inspect(model, loader)


def test_a_tuple_of_two_images_and_a_label(tmp_path):
    case = CASES["two images"]
    columns, model = case.columns(), case.model()

    class TupleModule(Module):
        def validation_step(self, batch, batch_idx):
            mri, ct, label = batch
            return nn.functional.cross_entropy(self.net(mri, ct).logits, label)

    watching = RelevanceMonitor(
        max_samples=N, budget=None, run=lrptrain.Run(on_error="raise"), model="net", explain="mri"
    )
    loader = DataLoader(TensorDataset(columns["mri"], columns["ct"], torch.arange(N) % 3), 8)
    trainer(tmp_path, watching, max_epochs=1).fit(TupleModule(model), loader, loader)
    own = model.eval()(**columns).logits.argmax(1)
    assert answers(watching) == own.tolist()
    assert {each.sample.sample_id: each.sample.label for each in watching.scored} == {i: i % 3 for i in range(N)}


def test_an_audit_gives_the_model_all_that_it_takes(tmp_path):
    case = CASES["text and numbers"]
    model, columns = case.model(), case.columns()
    seen = []
    model.register_forward_pre_hook(lambda _, args, kwargs: seen.append(kwargs.get("numeric")), with_kwargs=True)
    options: dict[str, Any] = {"methods": ["attnlrp"], "output": tmp_path, "settings": QUICK}
    lrptrain.audit(model, DataLoader(rows(columns), 8), max_samples=8, **options)
    assert seen
    assert all(isinstance(each, Tensor) for each in seen)
    del columns["numeric"]
    with pytest.raises(ValueError, match=r"needs 'numeric', which no entry of the batch is called") as raised:
        lrptrain.audit(Needy(bert(), width=4), DataLoader(rows(columns), 8), max_samples=8, **options)
    assert "\n" not in str(raised.value)


class Needy(Together):
    def forward(self, input_ids, numeric, attention_mask=None):
        return self.joined(self.state(0, input_ids, attention_mask), self.numbers(numeric))
