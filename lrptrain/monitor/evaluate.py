"""Relevance and scores of a sample under the current weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.batch import Sample, collate, model_inputs, token_annotations
from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.batch.content import content_tokens
from lrptrain.batch.logits import class_probabilities
from lrptrain.metrics import energy_pointing_game
from lrptrain.metrics.localization import LOCALIZATION_METRICS
from lrptrain.relevance import Relevance, attribute, decompose

TARGETS = ("label", "predicted")
MEASURES: dict[str, Callable[[Tensor, TokenAnnotation], Tensor]] = {
    metric.key: metric.function for metric in LOCALIZATION_METRICS
}


@dataclass(frozen=True)
class Explainer:
    """How to explain: everything but the model and the samples.

    Attributes:
        method: One of `lrptrain.methods()`.
        options: Of the method.
        targets: Which classes to explain, of "label" and "predicted"; samples without a label always by the latter.
        batch_size: Samples per forward pass.
        region_names: Names of the regions of a `mask` `[batch, regions, height, width]`; the first is the evidence.
        mixing_ratios: Measure, too, what share of a token's state each block takes from other tokens.
        class_maps: For how many classes the samples shown are explained; see `lrptrain.monitor.class_maps`.
    """

    method: str = "transformer_attribution"
    options: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = TARGETS
    batch_size: int = 16
    region_names: tuple[str, ...] = ()
    mixing_ratios: bool = False
    class_maps: int = 10


@dataclass(frozen=True)
class Scored:
    """A sample with its prediction, its maps and what they score.

    Attributes:
        sample: The sample.
        predicted: Class with the largest logit.
        probabilities: Of all classes; of a single logit, of the class it speaks against and of its own.
        maps: Relevance per target name, `[tokens]`, on the CPU.
        grid: Rows and columns of the patches, None for text.
        classes: Number of logits.
        chance: Annotated share of the area, nan without annotation.
        values: Value by "target/measure"; nan where undefined.
        inside: Tokens that hold any evidence; None without annotation.
        areas: Share of the area of every named region.
        words: Token ids of a text, -1 where a token is no content; None of an image.
    """

    sample: Sample
    predicted: int
    probabilities: Float[np.ndarray, " classes"]
    maps: dict[str, Float[Tensor, " tokens"]]
    grid: tuple[int, int] | None
    classes: int
    chance: float
    values: dict[str, float]
    inside: Bool[np.ndarray, " tokens"] | None = None
    areas: dict[str, float] = field(default_factory=dict)
    words: Int[np.ndarray, " tokens"] | None = None

    @property
    def probability(self) -> float:
        """Of the predicted class."""
        return float(self.probabilities.max())


def evaluate(
    model: nn.Module,
    samples: Sequence[Sample],
    explainer: Explainer,
    device: torch.device | str = "cpu",
    forward_context: Callable[[], AbstractContextManager] = nullcontext,
) -> Iterator[Scored]:
    """Explain and score samples, batch by batch.

    Args:
        model: As for `lrptrain.attribute`.
        samples: Of one kind, images or texts.
        explainer: How.
        device: Where the model is.
        forward_context: Entered around forward passes (autocast).
    """
    for chunk in _chunks(samples, explainer.batch_size):
        batch = collate(chunk, device)
        with forward_context():
            relevance = _explain(model, batch, chunk, explainer)
            mixing = _mixing(model, batch) if explainer.mixing_ratios else {}
        yield from _score(chunk, batch, relevance, explainer, mixing)


def evaluate_all(
    model: nn.Module,
    samples: Sequence[Sample],
    explainer: Explainer,
    device: torch.device | str,
    forward_context: Callable[[], AbstractContextManager],
    hidden: bool,
) -> list[Scored]:
    """The same at once, with a progress bar unless it is `hidden`."""
    from tqdm.auto import tqdm

    found = evaluate(model, samples, explainer, device, forward_context)
    return list(tqdm(found, total=len(samples), desc="Relevance", leave=False, disable=hidden))


def _chunks(samples: Sequence[Sample], size: int) -> Iterator[Sequence[Sample]]:
    """Batches of samples, those with a label apart from those without."""
    for labelled in (True, False):
        alike = [sample for sample in samples if (sample.label >= 0) == labelled]
        yield from (alike[start : start + size] for start in range(0, len(alike), size))


def _explain(
    model: nn.Module, batch: Mapping[str, Tensor], chunk: Sequence[Sample], explainer: Explainer
) -> dict[str, Relevance]:
    """Maps per target. The predicted class is explained anew only where it is not the label."""
    labels = torch.tensor([sample.label for sample in chunk], device=next(iter(batch.values())).device)
    inputs, labelled = model_inputs(model, batch), bool((labels >= 0).all())

    def explain(rows: Tensor | None, target: Tensor | None) -> Relevance:
        return attribute(model, _rows(inputs, rows), target, explainer.method, **explainer.options)

    if not labelled or "label" not in explainer.targets:
        return {"predicted": explain(None, None)}
    first = explain(None, labels)
    if "predicted" not in explainer.targets:
        return {"label": first}
    predicted = first.logits.argmax(1)
    wrong = (predicted != labels).nonzero().flatten()
    scores = first.scores.clone()
    if len(wrong):
        scores[wrong] = explain(wrong, predicted[wrong]).scores
    return {"label": first, "predicted": Relevance(scores, first.logits, predicted, explainer.method, first.grid)}


def _rows(inputs: Tensor | dict[str, Tensor], rows: Tensor | None) -> Tensor | dict[str, Tensor]:
    if rows is None:
        return inputs
    return inputs[rows] if isinstance(inputs, Tensor) else {name: value[rows] for name, value in inputs.items()}


def _mixing(model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Mean mixing ratio over a sample's tokens behind the attention of every block (Kobayashi et al. 2021)."""
    found = decompose(model, model_inputs(model, batch), "atb")
    (ratios,) = found.mixing_ratios.values()
    mask = batch.get("attention_mask")
    kept = torch.ones_like(ratios[0]) if mask is None else mask.to(ratios.dtype)
    means = (ratios * kept).sum(-1) / kept.sum(-1)
    return {f"mixing/block_{number}": row.tolist() for number, row in enumerate(means)}


def _score(
    chunk: Sequence[Sample],
    batch: Mapping[str, Tensor],
    relevance: Mapping[str, Relevance],
    explainer: Explainer,
    mixing: Mapping[str, list[float]],
) -> Iterator[Scored]:
    one = next(iter(relevance.values()))
    evidence, regions = token_annotations(batch, one.grid, explainer.region_names)
    values: dict[str, list[float]] = dict(mixing)
    for target, found in relevance.items():
        scores = found.scores.double()
        if evidence is not None:
            values |= {f"{target}/{name}": measure(scores, evidence).tolist() for name, measure in MEASURES.items()}
        for name, region in regions.items():
            values[f"{target}/region/{name}"] = energy_pointing_game(scores, region).tolist()
    chance = evidence.chance.tolist() if evidence is not None else [float("nan")] * len(chunk)
    present = evidence.present.tolist() if evidence is not None else [False] * len(chunk)
    areas = {name: region.chance.tolist() for name, region in regions.items()}
    probabilities, predicted = class_probabilities(one.logits).cpu().numpy(), one.logits.argmax(1).tolist()
    words = _words(batch) if one.grid is None and "input_ids" in batch else None
    maps = {target: found.scores.detach().cpu().double() for target, found in relevance.items()}
    for i, sample in enumerate(chunk):
        length = len(sample.tensors["input_ids"]) if one.grid is None and "input_ids" in sample.tensors else None
        yield Scored(
            sample=sample,
            predicted=predicted[i],
            probabilities=probabilities[i],
            maps={target: scores[i, :length] for target, scores in maps.items()},
            grid=one.grid,
            classes=one.logits.shape[1],
            chance=chance[i],
            values={name: column[i] for name, column in values.items()},
            inside=(evidence.evidence[i, :length] > 0).cpu().numpy() if evidence is not None and present[i] else None,
            areas={name: column[i] for name, column in areas.items()},
            words=words[i, :length] if words is not None else None,
        )


def _words(batch: Mapping[str, Tensor]) -> Int[np.ndarray, "batch tokens"]:
    """Ids of the content tokens, -1 elsewhere."""
    return torch.where(content_tokens(batch), batch["input_ids"], -1).cpu().numpy()
