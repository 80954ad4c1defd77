"""How far the answers of a small ViT follow a property of images that no map shows, beyond the control."""

import numpy as np
import torch

from experiments.benchmark.cases import Case
from experiments.benchmark.images import look
from experiments.benchmark.watch import MOMENTS, Run, answers, prepared, right, trained
from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Evaluation, ExplainedSample
from lrptrain.findings.detectors.unlocated import UnlocatedReliance
from lrptrain.intervention import InterventionConfig, effects

GRID = (6, 6)


def measured(case: Case, *detectors: UnlocatedReliance) -> list[dict[str, str]]:
    """Train a small ViT, and return a row of the table for each kind of finding.

    Args:
        case: The run.
        detectors: They say whether a property is tested, and on which images.
    """
    run = prepared(case)
    trained(run, MOMENTS[-1], case.randomness)(MOMENTS[-1])
    probabilities = answers(run.net, run.shown).softmax(1).numpy()
    evaluation = _evaluation(run, probabilities)
    config = DetectionConfig(look(case)["class_names"], lambda tokens: [str(token) for token in tokens])
    return [_row(case, run, evaluation, probabilities, detector, config) for detector in detectors]


def _evaluation(run: Run, probabilities: np.ndarray) -> Evaluation:
    """The held-out images, without a map."""
    columns = zip(run.shown["image"], run.shown["mask"], run.shown["label"].tolist(), strict=True)
    samples = [Sample(i, label, {"image": image, "mask": mask}) for i, (image, mask, label) in enumerate(columns)]
    maps = {"label": torch.zeros(GRID[0] * GRID[1])}
    explained = [
        ExplainedSample(sample, int(each.argmax()), each, maps, GRID, len(each), float("nan"), {})
        for sample, each in zip(samples, probabilities, strict=True)
    ]
    return Evaluation(explained, samples)


def _row(
    case: Case,
    run: Run,
    evaluation: Evaluation,
    probabilities: np.ndarray,
    detector: UnlocatedReliance,
    config: DetectionConfig,
) -> dict[str, str]:
    row = {
        "images": case.task,
        "shortcut": case.kind,
        "correlation": "-" if case.correlation is None else f"{case.correlation:g}",
        "accuracy": f"{right(run.net, run.shown).mean():.2f}",
        "with marks of any class": f"{right(run.net, run.unbiased).mean():.2f}",
        "finding": f"`{detector.kind}`",
    }
    candidates = list(detector.detect(evaluation, config))
    if not candidates:
        return row | {"tested": "no", "association": "", "effect beyond the control": "", "large enough": "no"}
    rows = candidates[0].rows
    assert evaluation.inputs is not None
    change, control = effects(
        run.net, evaluation.inputs, rows=rows, computed_rows=rows, region=candidates[0].region,
        probabilities=probabilities, grid=GRID, config=InterventionConfig(),
    )  # fmt: skip
    effect = float(np.nanmean(change - control))
    finding = candidates[0].finding
    is_large = effect >= detector.least_effect_of(finding)
    return row | {
        "tested": "yes",
        "association": "" if finding.association is None else f"{finding.association:.2f}",
        "effect beyond the control": f"{effect:.3f}",
        "large enough": "yes" if is_large else "no",
    }
