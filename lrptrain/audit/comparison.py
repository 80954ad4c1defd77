"""Every method on one model and one set of samples: localisation, faithfulness and time, side by side."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torchmetrics import Metric

from lrptrain.batch import model_inputs, token_annotations
from lrptrain.metrics import (
    Comprehensiveness,
    EnergyPointingGame,
    LocalizationAUPRC,
    PerturbationArea,
    PointingGame,
    Sufficiency,
    text_probability,
)
from lrptrain.metrics.deletion import ends
from lrptrain.relevance import Relevance, UnsupportedMethodError, UnsupportedModelError, UnsupportedOperationError
from lrptrain.relevance import attribute as explain
from lrptrain.relevance.explanation import explained_class
from lrptrain.relevance.recording import read_logits
from lrptrain.relevance.registry import Method, get_method

UNSUPPORTED = (UnsupportedMethodError, UnsupportedModelError, UnsupportedOperationError, ImportError)
Fill = float | Sequence[float]
FORWARDS = 18  # of the perturbation tests


@dataclass(frozen=True)
class Score:
    """A mean over samples with its 95 % interval.

    Attributes:
        value: The mean; nan without samples.
        low: Lower end, nan below two samples.
        high: Upper end.
        samples: How many had a value.
        chance: Mean chance level of the same samples, where the metric has one.
    """

    value: float
    low: float
    high: float
    samples: int
    chance: float | None = None


@dataclass(frozen=True)
class Row:
    """What one method scored.

    Attributes:
        method: Its name.
        class_specific: Whether its map depends on the class.
        scores: By the name of the metric; see `METRICS`.
        cost: Time of a map by that of one forward and backward pass of the same batch (median over batches).
        seconds: Time of a map per sample.
        problem: Why there are no scores; empty if there are.
    """

    method: str
    class_specific: bool = True
    scores: dict[str, Score] = field(default_factory=dict)
    cost: float = float("nan")
    seconds: float = float("nan")
    problem: str = ""


METRICS: dict[str, bool] = {
    "EPG": True,
    "AUPRC": True,
    "pointing game": True,
    "positive AUC": False,
    "negative AUC": True,
    "comprehensiveness": True,
    "sufficiency": False,
}
"""All metrics, and whether more of them is better."""


@dataclass(frozen=True)
class Case:
    """A batch made ready.

    Attributes:
        batch: In the contract of `lrptrain.monitor`.
        inputs: Arguments of the model's forward.
        logits: What it returns.
        target: The class to explain.
        seconds: Time of one forward and backward pass.
    """

    batch: Mapping[str, Tensor]
    inputs: Tensor | dict[str, Tensor]
    logits: Float[Tensor, "batch classes"]
    target: Int[Tensor, " batch"]
    seconds: float


def prepare(
    model: nn.Module, batches: Iterable[Mapping[str, Tensor]], target: Literal["predicted", "label"] = "predicted"
) -> list[Case]:
    """Run the model as it is: predictions, and what a forward and backward pass costs.

    Args:
        model: In evaluation mode; its output is logits or has `.logits`.
        batches: In the contract of `lrptrain.monitor`, where the model is.
        target: What to explain; samples without a label by the predicted class.

    Raises:
        UnsupportedModelError: If the model does not return logits.
    """
    cases = []
    for batch in batches:
        inputs = model_inputs(model, batch)
        with torch.no_grad():
            logits = predict_logits(model, inputs)
        wanted = explained_class(None, logits)
        if target == "label" and "label" in batch:
            wanted = torch.where(batch["label"] >= 0, batch["label"], wanted)
        runs = [_timed(lambda: _forward_backward(model, inputs, wanted), logits.device)[1] for _ in range(2)]  # noqa: B023
        cases.append(Case(batch, inputs, logits, wanted, min(runs)))
    return cases


def try_out(model: nn.Module, case: Case, methods: Sequence[str]) -> list[Row]:
    """Each method on the first sample of a batch: what it costs, or why it cannot serve; the cheapest first.

    Raises:
        UnsupportedMethodError: If a method is unknown; before any is run.
    """
    known = [get_method(name, {}) for name in methods]
    inputs = case.inputs[:1] if isinstance(case.inputs, Tensor) else {name: x[:1] for name, x in case.inputs.items()}
    first = replace(case, inputs=inputs, target=case.target[:1])
    rows = [_caught(method, lambda: _trial(model, first, method.name)) for method in known]  # noqa: B023
    return sorted(rows, key=lambda row: (bool(row.problem), row.seconds))


def expected_seconds(trial: Row, cases: Sequence[Case], faithfulness: bool) -> float:
    """At most about how long a method takes on all cases, by its trial: a batch costs less than its samples singly."""
    passes = FORWARDS / 3 * sum(case.seconds for case in cases) if faithfulness else 0.0
    return trial.seconds * sum(len(case.target) for case in cases) + passes


def compare(
    model: nn.Module, cases: Sequence[Case], methods: Sequence[str], fill: Fill = 0.0, faithfulness: bool = True
) -> Iterator[Row]:
    """One row per method, as soon as it is done.

    A method that cannot serve the model, or that fails, has a row that says why.

    Args:
        model: As for `prepare`.
        cases: From `prepare`.
        methods: Names.
        fill: What pixels become that the perturbation test removes; see `perturbation_curve`.
        faithfulness: Whether to run those tests too: 18 forward passes per image, 12 mostly shorter ones per text.

    Raises:
        UnsupportedMethodError: If a method is unknown; before any is run.
    """
    for method in [get_method(name, {}) for name in methods]:
        yield _caught(method, lambda: _row(model, cases, method.name, fill, faithfulness))  # noqa: B023


def _caught(method: Method, scored: Callable[[], Row]) -> Row:
    """The row, or one that says what went wrong: a method's failure must not cost the others."""
    try:
        return replace(scored(), class_specific=method.class_specific)
    except UNSUPPORTED as error:
        return Row(method.name, method.class_specific, problem=str(error))
    except Exception as error:
        return Row(method.name, method.class_specific, problem=f"failed: {type(error).__name__}: {error}")


def _trial(model: nn.Module, case: Case, name: str) -> Row:
    _, seconds = _timed(lambda: explain(model, case.inputs, case.target, name), case.target.device)
    return Row(name, seconds=seconds)


def _row(model: nn.Module, cases: Sequence[Case], name: str, fill: Fill, faithfulness: bool) -> Row:
    metrics: dict[str, Metric] = {}
    costs, seconds = [], 0.0
    for case in cases:
        relevance, took = _timed(lambda: explain(model, case.inputs, case.target, name), case.target.device)  # noqa: B023
        costs.append(took / case.seconds)
        seconds += took
        _localise(metrics, case, relevance)
        if faithfulness:
            _test_faithfulness(metrics, model, case, relevance, fill)
    samples = sum(len(case.target) for case in cases)
    scores = {metric: _score(instance.compute()) for metric, instance in metrics.items()}
    return Row(name, scores=scores, cost=median(costs), seconds=seconds / samples)


def _localise(metrics: dict[str, Metric], case: Case, relevance: Relevance) -> None:
    mask = case.batch.get("mask")
    regions = tuple(map(str, range(mask.shape[1]))) if mask is not None and mask.ndim == 4 else ()
    evidence, _ = token_annotations(case.batch, relevance.grid, regions)
    if evidence is None:
        return
    for name, kind in (("EPG", EnergyPointingGame), ("AUPRC", LocalizationAUPRC), ("pointing game", PointingGame)):
        metric = metrics.setdefault(name, kind().to(case.target.device))
        metric.update(relevance.scores.detach(), evidence)


def _test_faithfulness(
    metrics: dict[str, Metric], model: nn.Module, case: Case, relevance: Relevance, fill: Fill
) -> None:
    scores, device = relevance.scores.detach(), case.target.device
    if relevance.grid is not None:
        key, images = image_of(case.inputs)

        def predict(changed: Tensor) -> Tensor:
            return predict_logits(model, {**case.inputs, key: changed} if isinstance(case.inputs, dict) else changed)

        for name, first in (("positive AUC", True), ("negative AUC", False)):
            metric = metrics.setdefault(name, PerturbationArea(first, fill=fill).to(device))
            metric.update(predict, images, scores, relevance.grid, case.target)
    elif isinstance(case.inputs, dict) and "attention_mask" in case.inputs:
        attended = case.inputs["attention_mask"] != 0
        probability = text_probability(lambda **inputs: predict_logits(model, inputs), case.inputs, case.target)
        for name, kind in (("comprehensiveness", Comprehensiveness), ("sufficiency", Sufficiency)):
            metric = metrics.setdefault(name, kind().to(device))
            metric.update(probability, scores, attended & ~ends(attended))


def image_of(inputs: Tensor | Mapping[str, Tensor]) -> tuple[str, Tensor]:
    """The images among the inputs, and under which name (none)."""
    if isinstance(inputs, Tensor):
        return "", inputs
    return next((name, value) for name, value in inputs.items() if value.ndim == 4)


def predict_logits(model: nn.Module, inputs: Tensor | Mapping[str, Tensor]) -> Float[Tensor, "batch classes"]:
    """What the model returns for arguments of its forward."""
    given = inputs if isinstance(inputs, Tensor) else next(iter(inputs.values()))
    output = model(inputs) if isinstance(inputs, Tensor) else model(**inputs)
    return read_logits(output, given.shape[0])


def _forward_backward(model: nn.Module, inputs: Tensor | dict[str, Tensor], target: Tensor) -> None:
    """As a training step does it, but the gradients go nowhere."""
    with torch.enable_grad():
        explained = predict_logits(model, inputs).gather(1, target[:, None]).sum()
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        torch.autograd.grad(explained, parameters, allow_unused=True)


def _timed(function: Callable[[], Any], device: torch.device) -> tuple[Any, float]:
    """What a function returns, and the seconds it took on its device."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    started = time.perf_counter()
    result = function()
    wait()
    return result, time.perf_counter() - started


def _score(computed: Mapping[str, Tensor]) -> Score:
    chance = float(computed["chance"]) if "chance" in computed else None
    value, low, high = (float(computed[name]) for name in ("value", "low", "high"))
    return Score(value, low, high, int(computed["samples"]), chance)
