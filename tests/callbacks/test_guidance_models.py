"""Guidance in training steps of other forms, with models of other libraries, images and texts."""

import copy
import importlib
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from guided import annotated_data, by_hand, fit, guidance, sgd_module, weights
from hugging_face import small_sizes
from setting import PACKAGES
from test_guidance_gradients import assert_close


def assert_unlike(one, other):
    assert max((one[name] - other[name]).abs().max() for name in one) > 1e-6


def task_loss(self, batch):
    return F.cross_entropy(self(batch["image"]), batch["label"])


STEPS = {
    "(self, batch)": lambda self, batch: task_loss(self, batch),
    "a dict": lambda self, batch, batch_idx: {"loss": task_loss(self, batch), "mine": 1},
    "keywords": lambda self, batch, *, batch_idx=0: task_loss(self, batch),
    "other calls": lambda self, batch, batch_idx: (self(batch["image"][:2]), task_loss(self, batch))[1],
    "logs": lambda self, batch, batch_idx: (self.log("own", 1.0, batch_size=1), task_loss(self, batch))[1],
}


def with_step(pl_module, step):
    type(pl_module).training_step = step
    return pl_module


@pytest.mark.parametrize(("form", "package"), [(form, PACKAGES[i % 2]) for i, form in enumerate(STEPS)])
def test_forms_of_a_training_step(form, package, tmp_path):
    columns, pl_module = annotated_data(), with_step(sgd_module(package=package), STEPS[form])
    runner = fit(tmp_path, pl_module, columns, guidance(weight=0.5), package=package)
    assert_close(weights(pl_module.net), by_hand(columns, names="energy"))
    assert form != "logs" or runner.callback_metrics["own"] == 1


def of_the_whole_batch(pl_module):
    type(pl_module).forward = lambda self, batch: self.net(batch["image"])
    return with_step(pl_module, lambda self, batch, batch_idx: F.cross_entropy(self(batch), batch["label"]))


def test_the_only_part_that_is_given_the_samples_is_guided_from_the_second_step_on(tmp_path):
    first, second = ({name: x[rows] for name, x in annotated_data(12).items()} for rows in (slice(6), slice(6, 12)))
    pl_module, guided = of_the_whole_batch(sgd_module()), guidance(weight=0.5)
    said: list[str] = []
    guided.guidance.state.messages.send = said.append
    runner = fit(tmp_path, pl_module, annotated_data(12), guided)
    assert runner.callback_metrics["guidance/samples"] == 6
    assert said[-1:] == [
        "RelevanceGuidance: the training step calls its VisionTransformer itself, which is guided from now on"
    ]
    plain = sgd_module()
    fit(tmp_path, plain, first)
    fit(tmp_path, plain, second, guidance(weight=0.5, model="net"))
    assert_close(weights(pl_module.net), weights(plain.net))


def test_a_part_beside_weights_that_may_make_the_logits_is_not_taken_for_the_model(tmp_path):
    def step(self, batch, batch_idx):
        return F.cross_entropy(self.net(batch["image"]) @ self.head, batch["label"])

    pl_module = with_step(sgd_module(), step)
    pl_module.head = torch.nn.Parameter(torch.eye(pl_module.net.num_classes, dtype=torch.float64))
    with pytest.raises(ValueError, match="never called Classifier with the 6 samples of its batch"):
        fit(tmp_path, pl_module, annotated_data(), guidance())


def test_of_several_parts_that_are_given_the_samples_the_user_says_which(tmp_path):
    def step(self, batch, batch_idx):
        return F.cross_entropy(self.net(batch["image"]) + self.other(batch["image"]), batch["label"])

    pl_module = with_step(sgd_module(), step)
    pl_module.other = copy.deepcopy(pl_module.net)
    with pytest.raises(ValueError, match=r"never called Classifier with the 6 samples .* \['net', 'other'\]"):
        fit(tmp_path, pl_module, annotated_data(), guidance())


def test_a_step_that_leaves_a_batch_out(tmp_path):
    def step(self, batch, batch_idx):
        loss = task_loss(self, batch)
        return None if batch_idx == 0 else loss

    columns, guided = annotated_data(12), guidance(weight=0.5)
    found = with_step(sgd_module(), step)
    with pytest.warns(UserWarning, match="returned `None`"):
        fit(tmp_path, found, columns, guided)
    second = {name: x[6:] for name, x in columns.items()}
    assert_close(weights(found.net), by_hand(second, names="energy"))


class Bare:
    """A LightningModule without a forward of its own, around any model."""

    def __new__(cls, net, step):
        pl = importlib.import_module("pytorch_lightning")

        class Plain(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = net

            def training_step(self, batch, batch_idx):
                return step(self.net, batch)

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        return Plain()


def texts(samples=6):
    generator = torch.Generator().manual_seed(0)
    ids, mask = torch.randint(5, 50, (samples, 9), generator=generator), torch.ones(samples, 9, dtype=torch.long)
    rationale = torch.randint(0, 2, (samples, 9), generator=generator).to(torch.uint8)
    rationale[:, 0], mask[1::2, 6:] = 255, 0
    label = torch.randint(0, 2, (samples,), generator=generator)
    return {"input_ids": ids, "attention_mask": mask, "labels": label, "rationale": rationale}


HF: dict[str, Any] = {
    **small_sizes(16, layers=2, inner=32),
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.2,
}  # fmt: skip


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=16, **HF)).train()


def hf_vit():
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    config: Any = ViTConfig(image_size=16, patch_size=4, **HF)
    config.num_labels = 3
    return ViTForImageClassification(config).train()


def torchvision_vit():
    from torchvision.models import VisionTransformer

    torch.manual_seed(0)
    net = VisionTransformer(16, 4, 2, 2, 16, 32, num_classes=3)
    torch.nn.init.normal_(net.heads[-1].weight)  # 0 otherwise
    return net.train()


def with_labels(net, batch):
    given = {"pixel_values": batch["image"]} if "image" in batch else {}
    given |= {name: batch[name] for name in ("input_ids", "attention_mask") if name in batch}
    return net(**given, labels=batch["labels"] if "labels" in batch else batch["label"]).loss


def with_logits(net, batch):
    return F.cross_entropy(net(batch["image"]), batch["label"])


MODELS: dict[str, Any] = {
    "bert": (bert, with_labels, texts),
    "hugging face vit": (hf_vit, with_labels, partial(annotated_data, dtype=torch.float32)),
    "torchvision": (torchvision_vit, with_logits, partial(annotated_data, dtype=torch.float32)),
}


@pytest.mark.parametrize(
    ("kind", "losses"), [("bert", "consistency+energy"), ("bert", "rrr"), ("hugging face vit", "consistency+energy"),
                         ("torchvision", "rrr")]
)  # fmt: skip
def test_models_of_other_libraries(kind, losses, tmp_path):
    build, step, make = MODELS[kind]
    start, outcomes = build(), []
    for attached in ([], [guidance(losses, weight=0.5)], [guidance(losses, weight=0.5)]):
        pl_module: Any = Bare(build(), step)
        fit(tmp_path, pl_module, make(), *attached)
        outcomes.append(weights(pl_module.net))
        assert not attached or attached[0].failures == attached[0].skipped == 0
    assert_close(outcomes[1], outcomes[2], 0.0)
    assert_unlike(outcomes[0], outcomes[1])
    assert_unlike(weights(start), outcomes[1])
