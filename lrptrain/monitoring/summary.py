"""From scored samples to what is logged: scalars, findings, a table, pictures and highlighted texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lrptrain.findings import Finding, focus_findings
from lrptrain.findings.finding import OVERALL
from lrptrain.loggers.record import Highlight, Picture
from lrptrain.monitoring.batch import IMAGES
from lrptrain.monitoring.evaluate import Scored
from lrptrain.render import enlarge, overlay, to_picture, token_html, token_markdown

FOCUS = "energy_pointing_game"


@dataclass(frozen=True)
class Look:
    """How samples are shown.

    Attributes:
        class_names: Name of each class.
        tokens: Token ids to token strings.
        mean: Per channel, as images were normalised with; without it they are stretched from minimum to maximum.
        std: Per channel.
        most: Pictures or texts per epoch at the most.
    """

    class_names: Sequence[str]
    tokens: Callable[[list[int]], list[str]]
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    most: int = 16


def targets_of(scored: Sequence[Scored]) -> list[str]:
    """The explained targets, "label" first."""
    return list(scored[0].maps) if scored else []


def scalars(scored: Sequence[Scored], class_names: Sequence[str]) -> dict[str, float]:
    """Means over the samples in which a value is defined.

    Keys: `relevance/<target>/<measure>`, `relevance/<target>/energy_pointing_game/<class>`,
    `relevance/<target>/region/<name>`, `relevance/chance`, `relevance/accuracy` (of the sample), `relevance/samples`.
    """
    found = {"relevance/samples": float(len(scored))}
    columns = {name: np.array([one.values[name] for one in scored]) for name in (scored[0].values if scored else ())}
    labels = np.array([one.sample.label for one in scored])
    for name, column in columns.items():
        _add_mean(found, f"relevance/{name}", column)
        if name.endswith(FOCUS):
            for label in np.unique(labels[labels >= 0]):
                _add_mean(found, f"relevance/{name}/{class_names[label]}", column[labels == label])
    _add_mean(found, "relevance/chance", np.array([one.chance for one in scored]))
    labelled = [one for one in scored if one.sample.label >= 0]
    if labelled:
        found["relevance/accuracy"] = float(np.mean([one.predicted == one.sample.label for one in labelled]))
    return found


def _add_mean(found: dict[str, float], key: str, values: np.ndarray) -> None:
    defined = values[~np.isnan(values)]
    if len(defined):
        found[key] = float(defined.mean())


def findings(
    scored: Sequence[Scored],
    class_names: Sequence[str],
    *,
    bound: float | str,
    confidence: float,
    epoch: int,
    step: int,
) -> list[Finding]:
    """Findings on the focus: per class and overall for the first target, overall for the others.

    Maps for the predicted class differ from those for the label in misread samples only, so that telling each class twice
    would say little.
    """
    flagged: list[Finding] = []
    for place, target in enumerate(targets_of(scored)):
        column = f"{target}/{FOCUS}"
        rows = [one for one in scored if column in one.values and one.sample.label >= 0]
        if not rows:
            continue
        found = focus_findings(
            np.array([one.values[column] for one in rows]),
            np.array([one.chance for one in rows]),
            np.array([one.sample.label for one in rows]),
            [one.sample.sample_id for one in rows],
            class_names,
            target=target,
            bound=bound,
            confidence=confidence,
            epoch=epoch,
            step=step,
        )
        flagged += [finding for finding in found if place == 0 or finding.scope == OVERALL]
    return flagged


def table(scored: Sequence[Scored], class_names: Sequence[str]) -> dict[str, list[Any]]:
    """One row per sample: id, classes, probability, annotated share, every measure, and the maps themselves."""
    columns: dict[str, list[Any]] = {
        "sample_id": [one.sample.sample_id for one in scored],
        "label": [_name(one.sample.label, class_names) for one in scored],
        "predicted": [_name(one.predicted, class_names) for one in scored],
        "probability": [one.probability for one in scored],
        "chance": [one.chance for one in scored],
    }
    if any(one.sample.group is not None for one in scored):
        columns["group"] = [one.sample.group for one in scored]
    names = list(dict.fromkeys(name for one in scored for name in one.values))
    columns |= {name.replace("/", "_"): [one.values.get(name) for one in scored] for name in names}
    columns |= {f"map_{target}": [one.maps[target].tolist() for one in scored] for target in targets_of(scored)}
    return columns


def shown_first(scored: Sequence[Scored], most: int) -> list[Scored]:
    """The same few samples in every epoch, classes in turn."""
    by_class: dict[int, list[Scored]] = {}
    for one in scored:
        by_class.setdefault(one.sample.label, []).append(one)
    longest = max(map(len, by_class.values()), default=0)
    turns = [members[i] for i in range(longest) for _, members in sorted(by_class.items()) if i < len(members)]
    return turns[:most]


def pictures(scored: Sequence[Scored], look: Look) -> list[Picture]:
    """Overlays of the relevance for the first target, the label where there is one."""
    return [_picture(one, look) for one in shown_first(scored, look.most) if one.grid is not None]


def _picture(one: Scored, look: Look) -> Picture:
    image = next(one.sample.tensors[name] for name in IMAGES if name in one.sample.tensors).float()
    grid = one.grid
    assert grid is not None
    heat = next(iter(one.maps.values())).unflatten(0, grid)
    mask = one.sample.tensors.get("mask")
    mask = mask[0] if mask is not None and mask.ndim == 3 else mask
    fits = mask is not None and tuple(mask.shape) == tuple(image.shape[-2:])
    outline = mask.to(int).numpy().astype(np.uint8) if mask is not None and fits else None
    return Picture(
        sample_id=one.sample.sample_id,
        caption=caption(one, look.class_names),
        image=overlay(image, heat, outline, mean=look.mean, std=look.std),
        original=to_picture(image, mean=look.mean, std=look.std),
        mask=None if outline is None else enlarge(outline),
    )


def highlights(scored: Sequence[Scored], look: Look) -> list[Highlight]:
    """Texts with the relevance for the first target."""
    return [_highlight(one, look) for one in shown_first(scored, look.most) if "input_ids" in one.sample.tensors]


def _highlight(one: Scored, look: Look) -> Highlight:
    tensors = one.sample.tensors
    real = tensors["attention_mask"].bool() if "attention_mask" in tensors else tensors["input_ids"] >= 0
    tokens = look.tokens(tensors["input_ids"][real].tolist())
    scores = next(iter(one.maps.values()))[real].numpy()
    rationale = tensors["rationale"][real].numpy() if "rationale" in tensors else None
    return Highlight(
        sample_id=one.sample.sample_id,
        caption=caption(one, look.class_names),
        html=token_html(tokens, scores, rationale),
        text=token_markdown(tokens, scores, rationale),
    )


def caption(one: Scored, class_names: Sequence[str]) -> str:
    """One line: id, label, prediction, and the share of relevance on the annotation."""
    said = f"{_name(one.predicted, class_names)} ({one.probability:.0%})"
    parts = [f"#{one.sample.sample_id}", f"{_name(one.sample.label, class_names)} read as {said}"]
    share = next((value for name, value in one.values.items() if name.endswith(FOCUS)), float("nan"))
    if not np.isnan(share):
        parts.append(f"{share:.0%} on the annotation ({one.chance:.0%} of the area)")
    return ", ".join(parts)


def _name(label: int, class_names: Sequence[str]) -> str:
    return "?" if label < 0 else class_names[label]
