"""From scored samples to numbers: scalars, findings and a table."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from lrptrain.loggers.local import RECORD_METRICS
from lrptrain.loggers.metrics import CLASSES, COST, FINDINGS, WHERE_IT_LOOKS, LoggedMetric, find_metric, key_names
from lrptrain.metrics.localization import LOCALIZATION_METRICS, EnergyPointingGame
from lrptrain.monitor.config import TARGETS
from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.monitor.skill import sharpness
from lrptrain.terminal import give_warning
from lrptrain.trainers.failures import describe_error

FOCUS = EnergyPointingGame.key


@dataclass(frozen=True, kw_only=True)
class SampleMetric(LoggedMetric):
    """Scalars that are computed from the scored samples.

    Attributes:
        compute: Takes the scored samples and the names of the classes. Returns values by key, without the prefix; a
            key that is not defined for these samples is left out.
    """

    compute: Callable[[Sequence[ExplainedSample], Sequence[str]], dict[str, float]]


def scalars(scored: Sequence[ExplainedSample], class_names: Sequence[str]) -> dict[str, float]:
    """Return the values of all `METRICS` by `relevance/<key>`: means over the samples in which a value is defined."""
    values: dict[str, float] = {}
    for metric in METRICS:
        values |= {f"relevance/{key}": value for key, value in metric.compute(scored, class_names).items()}
    return values


def logged_metrics() -> list[LoggedMetric]:
    """Return everything that a monitor logs: titles, units and directions of its scalars."""
    return [*METRICS, *FINDING_METRICS, *COST_METRICS, *RECORD_METRICS, FAILURES, LEFT_OUT]


def _means(names: Iterable[str], scored: Sequence[ExplainedSample]) -> dict[str, float]:
    """Return the mean of the samples' values by name, where there are any."""
    columns = {name: _column(scored, name) for name in names}
    return {name: float(column.mean()) for name, column in columns.items() if len(column)}


def _column(scored: Iterable[ExplainedSample], name: str) -> np.ndarray:
    """Return the defined values of one name."""
    values = np.array([each.values.get(name, np.nan) for each in scored], dtype=float)
    return values[~np.isnan(values)]


def _measured(measure: str, scored: Sequence[ExplainedSample], class_names: Sequence[str]) -> dict[str, float]:
    return _means([f"{target}/{measure}" for target in TARGETS], scored)


def _focus_by_class(scored: Sequence[ExplainedSample], class_names: Sequence[str]) -> dict[str, float]:
    means = {}
    names = key_names(class_names)
    for target in TARGETS:
        name = f"{target}/{FOCUS}"
        for label in sorted({each.sample.label for each in scored if each.sample.label >= 0}):
            column = _column((each for each in scored if each.sample.label == label), name)
            if len(column):
                means[f"{name}_per_class/{names[label]}"] = float(column.mean())
    return means


def _regions(scored: Sequence[ExplainedSample], class_names: Sequence[str]) -> dict[str, float]:
    means: dict[str, float] = {}
    for target in TARGETS:
        folder = f"{target}/region/"
        names = [name for name in _value_names(scored) if name.startswith(folder)]
        keys = key_names([name.removeprefix(folder) for name in names])
        values = _means(names, scored)
        means |= {f"{folder}{key}": values[name] for name, key in zip(names, keys, strict=True) if name in values}
    return means


def _mixing_ratios(scored: Sequence[ExplainedSample], class_names: Sequence[str]) -> dict[str, float]:
    return _means([name for name in _value_names(scored) if name.startswith("mixing/")], scored)


def _chance(scored: Sequence[ExplainedSample], class_names: Sequence[str]) -> dict[str, float]:
    shares = np.array([each.chance for each in scored])
    defined = shares[~np.isnan(shares)]
    return {"chance": float(defined.mean())} if len(defined) else {}


def _accuracies(scored: Sequence[ExplainedSample], class_names: Sequence[str]) -> dict[str, float]:
    """Return the accuracy of the labelled samples, and the lowest of any group."""
    labelled = [each for each in scored if len(each.is_right)]
    groups = _group_accuracies(scored, class_names)
    values = {"accuracy": _accuracy(labelled)} if labelled else {}
    return values | ({"worst_group_accuracy": min(groups.values())} if groups else {})


def _confidence(scored: Sequence[ExplainedSample], class_names: Sequence[str]) -> dict[str, float]:
    return {"confidence": float(np.mean([each.probability for each in scored]))} if scored else {}


def _sharpness(scored: Sequence[ExplainedSample], class_names: Sequence[str]) -> dict[str, float]:
    """Return the power that probabilities are sharpened by, where they are."""
    if not scored:
        return {}
    labels = np.array([each.sample.label for each in scored])
    power = sharpness(np.stack([each.probabilities for each in scored]), labels)
    return {"sharpness": power} if power > 1 else {}


def _group_accuracies(scored: Sequence[ExplainedSample], class_names: Sequence[str]) -> dict[str, float]:
    by_group: dict[int, list[ExplainedSample]] = {}
    for each in scored:
        if len(each.is_right) and each.sample.group is not None:
            by_group.setdefault(each.sample.group, []).append(each)
    return {f"accuracy_per_group/{group}": _accuracy(members) for group, members in sorted(by_group.items())}


def _accuracy(labelled: Sequence[ExplainedSample]) -> float:
    return float(np.concatenate([each.is_right for each in labelled]).mean())


def _of_targets(key: str) -> tuple[str, ...]:
    return tuple(f"{target}/{key}" for target in TARGETS)


# A new scalar of the samples is one entry here, and a user's by `register_metric`; a new score of maps is a metric that
# is `logged` in lrptrain/metrics/localization.py.
METRICS: list[SampleMetric] = [
    *(
        SampleMetric(
            _of_targets(measure.key),
            measure.title,
            WHERE_IT_LOOKS,
            higher_is_better=measure.higher_is_better,
            bounds=(0, 1),
            references=("chance",) if measure.key == FOCUS else (),
            explanation=measure.explanation,
            is_main=measure.key == FOCUS,
            compute=partial(_measured, measure.key),
        )
        for measure in LOCALIZATION_METRICS
    ),
    SampleMetric(
        ("chance",),
        "Annotated share of the area",
        WHERE_IT_LOOKS,
        bounds=(0, 1),
        explanation="Annotated share of the area: as much of the relevance of an even map lies on the annotation.",
        is_main=True,
        compute=_chance,
    ),
    SampleMetric(
        ("accuracy", "worst_group_accuracy"),
        "Accuracy on the sample",
        CLASSES,
        higher_is_better=True,
        bounds=(0, 1),
        explanation="Accuracy over all samples, or over the worst group.",
        is_main=True,
        compute=_accuracies,
    ),
    SampleMetric(
        ("sharpness",),
        "What logits are multiplied by before effects are measured",
        FINDINGS,
        unit="number",
        explanation=(
            "What logits are multiplied by before effects are measured, more than 1 if accuracy exceeds confidence."
        ),
        compute=_sharpness,
    ),
    SampleMetric(
        ("confidence",),
        "Mean probability of the predicted class",
        CLASSES,
        bounds=(0, 1),
        explanation="The mean probability of the predicted class.",
        compute=_confidence,
    ),
    SampleMetric(
        ("accuracy_per_group/*",),
        "Accuracy of each group",
        CLASSES,
        higher_is_better=True,
        bounds=(0, 1),
        explanation="Accuracy over the samples of one group.",
        compute=_group_accuracies,
    ),
    SampleMetric(
        _of_targets(f"{FOCUS}_per_class/*"),
        "Relevance on the annotation of each class",
        CLASSES,
        higher_is_better=True,
        bounds=(0, 1),
        explanation="Share of the positive relevance that lies on the annotation, in samples of one class.",
        compute=_focus_by_class,
    ),
    SampleMetric(
        _of_targets("region/*"),
        "Relevance on regions",
        CLASSES,
        bounds=(0, 1),
        explanation="Share of the positive relevance that lies in a named region.",
        compute=_regions,
    ),
    SampleMetric(
        ("mixing/*",),
        "Mixing ratio of each block",
        CLASSES,
        bounds=(0, 1),
        explanation="Share of a token's state behind a block that comes from other tokens.",
        compute=_mixing_ratios,
    ),
    SampleMetric(
        ("samples",),
        "Samples",
        COST,
        unit="count",
        explanation="Number of samples that were evaluated.",
        compute=lambda scored, _: {"samples": float(len(scored))},
    ),
]
# Of cues. All of it is lowest where a model guesses, and is nan there: nothing is known of what it relies on.
FINDING_METRICS = (
    LoggedMetric(
        ("reliance",),
        "Reliance on shortcuts",
        FINDINGS,
        higher_is_better=False,
        bounds=(0, 1),
        explanation=(
            "The lower bound of the largest effect among shortcuts, 0 without any, and nan without annotations or for "
            "a model no better than guessing."
        ),
        is_main=True,
    ),
    LoggedMetric(
        ("any_reliance",),
        "Reliance on any cue",
        FINDINGS,
        bounds=(0, 1),
        explanation="The same over all cues that are named, those that should decide included.",
        is_main=True,
    ),
    LoggedMetric(
        ("input/*",),
        "What each input does to the answers",
        FINDINGS,
        bounds=(-1, 1),
        explanation="How far the answer's probability moves when one of several inputs is swapped as a whole.",
    ),
    LoggedMetric(
        ("findings",),
        "Shortcuts",
        FINDINGS,
        higher_is_better=False,
        unit="count",
        explanation="Number of shortcuts that the model relies on.",
        is_main=True,
    ),
)
COST_METRICS = (
    LoggedMetric(
        ("seconds",),
        "Seconds per evaluation",
        COST,
        unit="seconds",
        kept="mean,max,last",
        explanation="Time that the monitor took since its last point.",
    ),
    LoggedMetric(
        ("cost_share",),
        "Share of the run",
        COST,
        bounds=(0, 1),
        kept="mean,max,last",
        explanation="The monitor's share of the time since its last point.",
        is_main=True,
    ),
)
FAILURES = LoggedMetric(
    ("failures",), "Failures", COST, unit="count", explanation="How often the monitor has failed so far.", is_main=True
)
LEFT_OUT = LoggedMetric(
    ("left_out",), "Samples left out", COST, unit="count", explanation="Number of samples that could not be used."
)


def register_metric(
    key: str,
    compute: Callable[[Sequence[ExplainedSample]], float],
    explanation: str = "",
    higher_is_better: bool | None = None,
    bounds: tuple[float, float] | None = None,
) -> None:
    """Let every monitor log a value of your own as `relevance/<key>`; the page and the loggers show it.

    Examples:
        >>> import lrptrain
        >>> def largest(samples):
        ...     return max(float(sample.maps["predicted"].max()) for sample in samples)
        >>> lrptrain.register_metric("largest", largest, "The largest relevance of any patch.")

    Args:
        key: The name of the value, such as `corner_share`.
        compute: Takes the explained samples of an evaluation. Of each, `maps["predicted"]` `[tokens]` is the relevance,
            `grid` the rows and columns of its patches, `sample.label` and `predicted` are classes. It returns a number;
            nan where there is none, or where it fails, which is warned of.
        explanation: What the value means, in a sentence.
        higher_is_better: Whether a higher value is better; None if neither is.
        bounds: The least and the largest value; None where there are none.

    Raises:
        ValueError: If another value has that name.
    """
    if any(find_metric([metric], key) for metric in logged_metrics()):
        raise ValueError(f"relevance/{key} is logged already: give the value another name")

    def named(scored: Sequence[ExplainedSample], _: Sequence[str]) -> dict[str, float]:
        try:
            return {key: float(compute(scored))}
        except Exception as error:
            give_warning(f"relevance/{key} could not be computed ({describe_error(error)}): it is nan")
            return {key: math.nan}

    title = key.replace("_", " ").capitalize()
    unit: Literal["share", "number"] = "share" if bounds == (0, 1) else "number"
    METRICS.append(
        SampleMetric(
            (key,),
            title,
            WHERE_IT_LOOKS,
            higher_is_better=higher_is_better,
            unit=unit,
            bounds=bounds,
            explanation=explanation,
            is_main=True,
            compute=named,
        )
    )


def without_verdicts(values: dict[str, float]) -> dict[str, float]:
    """Return scalars, of which those that a verdict rests on are nan."""
    unknown = {key for key in values if find_metric(FINDING_METRICS, key.removeprefix("relevance/"))}
    return {key: math.nan if key in unknown else value for key, value in values.items()}


def table(scored: Sequence[ExplainedSample], class_names: Sequence[str]) -> dict[str, list[Any]]:
    """Return one row per sample: id, classes, probability, annotated share, every measure, and the maps themselves."""
    columns: dict[str, list[Any]] = {
        "sample_id": [each.sample.sample_id for each in scored],
        "label": [each.label_in(class_names) for each in scored],
        "predicted": [each.answer_in(class_names) for each in scored],
        "probability": [each.probability for each in scored],
        "chance": [each.chance for each in scored],
    }
    if any(each.sample.group is not None for each in scored):
        columns["group"] = [each.sample.group for each in scored]
    columns |= {name.replace("/", "_"): [each.values.get(name) for each in scored] for name in _value_names(scored)}
    targets = sorted({target for each in scored for target in each.maps})
    maps = {target: [each.maps.get(target) for each in scored] for target in targets}
    columns |= {f"map_{name}": [None if x is None else x.tolist() for x in column] for name, column in maps.items()}
    return columns


def _value_names(scored: Sequence[ExplainedSample]) -> list[str]:
    return list(dict.fromkeys(name for each in scored for name in each.values))
