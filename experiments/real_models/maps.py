"""Maps of pretrained models with a new head: do they follow the model, and do they lie where people would look?"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from jaxtyping import Float, Int
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lrptrain
from experiments import weights
from experiments.real_models.samples import BREEDS, MEAN, STD, Pets, pets, tweets
from lrptrain.batch.annotations import mask_to_tokens, rationale_to_tokens
from lrptrain.batch.content import content_tokens
from lrptrain.metrics import (
    area_under_curve,
    comprehensiveness,
    energy_pointing_game,
    perturbation_curve,
    pointing_game,
    text_probability,
)
from lrptrain.models import ImageClassifier

METHODS = ("attnlrp", "input_x_gradient", "random")
SIZE, IMAGES, BATCH = 96, 16, 8
TUNED_EPOCHS, TUNED_BATCH, LR = 20, 26, 5e-4
TRAIN_TEXTS, TEXTS = 120, 24
FRACTIONS = (0.1, 0.3, 0.5, 0.7)
BLACK = tuple((-MEAN / STD).tolist())
Row = dict[str, list[float]]


def fit_head(head: nn.Linear, features: Float[Tensor, "n width"], labels: Int[Tensor, " n"]) -> None:
    """Set a linear head to the logistic regression on frozen features; of two classes, the logits are its halves."""
    scaler = StandardScaler().fit(features)
    regression = LogisticRegression(C=0.01, max_iter=2000).fit(scaler.transform(features), labels)
    weight = regression.coef_ / scaler.scale_
    bias = regression.intercept_ - weight @ scaler.mean_
    if len(weight) == 1:
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(weight))
        head.bias.copy_(torch.from_numpy(bias))


def images(make: Callable[..., nn.Module]) -> dict[str, Any]:
    """A frozen vision model with a new head for three breeds: every measure of the first test images, by method."""
    torch.manual_seed(0)
    data, model = pets(SIZE, seed=0, val_share=0.2), make(3).eval()
    train = data["train"]

    @torch.no_grad()
    def features(images: Tensor) -> Tensor:
        parts = images.split(BATCH)
        return torch.cat([model.forward_head(model.forward_features(part), pre_logits=True) for part in parts])

    fit_head(model.get_classifier(), features(train.normalised), train.label)
    return _of_images(model, data["test"], IMAGES)


def tuned_images() -> dict[str, Any]:
    """TinyViT, all of its weights trained on the breeds: every measure of all test images, by method."""
    pl.seed_everything(0, verbose=False)
    data = pets(SIZE, seed=0, val_share=0.2)
    module = ImageClassifier(len(BREEDS), "tiny_vit_5m_224", pretrained=str(weights.fetch("tiny_vit")), lr=LR)
    trainer = pl.Trainer(
        max_epochs=TUNED_EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(data["train"].samples(), TUNED_BATCH, shuffle=True))  # type: ignore[arg-type]
    return _of_images(module.net.eval(), data["test"], len(data["test"].label))


def _of_images(model: nn.Module, test: Pets, count: int) -> dict[str, Any]:
    """Every measure of the first so many images, by method."""
    x = test.normalised
    with torch.no_grad():
        logits = torch.cat([model(part) for part in x.split(BATCH)])
    target = logits.argmax(1)
    accuracy = (target == test.label).float().mean().item()

    def rows(method: str) -> Iterator[Row]:
        for first in range(0, count, BATCH):
            part = slice(first, min(first + BATCH, count))
            found = lrptrain.attribute(model, x[part], target[part], method)
            grid, scores = found.grid, found.scores.detach()
            annotation = mask_to_tokens(test.mask[part], grid)
            most, least = (
                area_under_curve(
                    perturbation_curve(model, x[part], scores, grid, target[part], FRACTIONS, order, BLACK), FRACTIONS
                )
                for order in (True, False)
            )
            yield {
                "faithfulness": (least - most).tolist(),
                "EPG": energy_pointing_game(scores, annotation).tolist(),
                "pointing game": pointing_game(scores, annotation).tolist(),
                "chance": annotation.chance.tolist(),
                "logits moved": (found.logits - logits[part]).abs().amax(1).tolist(),
            }

    return {"accuracy": accuracy, "tested": len(test.label), **_methods(rows)}


def texts(make: Callable[..., nn.Module]) -> dict[str, Any]:
    """A text model with a head for two moods: every measure of held-out tweets, by method."""
    torch.manual_seed(0)
    data, model = tweets(TRAIN_TEXTS, TEXTS), make(2).eval()
    frozen, labels = [], []
    with torch.no_grad():
        for batch in data.train_dataloader():
            inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
            state = model.base_model(**inputs).last_hidden_state[:, 0]
            frozen.append(torch.tanh(model.classifier.dense(state)))
            labels.append(batch["label"])
    fit_head(model.classifier.out_proj, torch.cat(frozen), torch.cat(labels))
    batches = list(data.val_dataloader())
    answers = []
    with torch.no_grad():
        for batch in batches:
            inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
            answers.append(model(**inputs).logits)
    right = [logits.argmax(1) == batch["label"] for logits, batch in zip(answers, batches, strict=True)]

    def rows(method: str) -> Iterator[Row]:
        for batch, logits in zip(batches, answers, strict=True):
            inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
            attended, target = inputs["attention_mask"] != 0, logits.argmax(1)
            found = lrptrain.attribute(model, inputs, target, method)
            scores = found.scores.detach()
            annotation = rationale_to_tokens(batch["rationale"], attended)
            probability = text_probability(lambda **kept: model(**kept).logits, inputs, target)
            content = content_tokens(batch)
            yield {
                "faithfulness": comprehensiveness(probability, scores, content, FRACTIONS[:3]).tolist(),
                "EPG": energy_pointing_game(scores, annotation).tolist(),
                "pointing game": pointing_game(scores, annotation).tolist(),
                "chance": annotation.chance.tolist(),
                "logits moved": (found.logits - logits).abs().amax(1).tolist(),
            }

    return {"accuracy": torch.cat(right).float().mean().item(), "tested": len(torch.cat(right)), **_methods(rows)}


def _methods(rows: Callable[[str], Iterator[Row]]) -> dict[str, Any]:
    """What `rows` yields of every method, joined, with the seconds it took; or why it does not serve the model."""
    found: dict[str, Any] = {}
    for method in METHODS:
        started = time.process_time()
        columns: Row = {}
        try:
            for row in rows(method):
                for name, values in row.items():
                    columns.setdefault(name, []).extend(round(value, 5) for value in values)
        except (lrptrain.UnsupportedMethodError, lrptrain.UnsupportedModelError) as error:
            found[method] = {"unsupported": str(error)}
            continue
        found[method] = columns | {"seconds": time.process_time() - started}  # type: ignore[dict-item]
    return {"methods": found}


MODELS: dict[str, Callable[[], dict[str, Any]]] = {
    "TinyViT-5M": lambda: images(weights.tiny_vit),
    "TinyViT-5M, fine-tuned": tuned_images,
    "Hiera-Tiny": lambda: images(weights.hiera_tiny),
    "MPNet": lambda: texts(weights.mpnet),
}
