"""Fine-tune a small ViT on pets and compare every method's map, taken as a segmentation, with the pet's mask.

    .venv/bin/python -m experiments.segmentation.run

One JSON file per seed in `results/`, saved after every method; a run that was cut off goes on with what is missing. The
table is written into this folder's README.md.
"""

from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from experiments.intervals import Estimate, estimate
from experiments.per_method import Result, Row, absent, fill, per_image, rows, supported
from experiments.pets import RUNS, SIZE, Split, accuracy, of_prediction, parser, trained, with_data
from experiments.table import markdown, mean_interval, write_between
from lrptrain.batch.annotations import mask_to_tokens
from lrptrain.metrics import (
    energy_pointing_game,
    mean_iou,
    pixel_accuracy,
    pointing_game,
    segmentation_average_precision,
    segmentation_confusion,
)

HERE = Path(__file__).resolve().parent

FEW = 16
"""Test images for the dear methods."""
GRID = (SIZE // 4, SIZE // 4)
BESIDE = ("random", "transformer_attribution", "generic_attention", "attnlrp", "rollout")
COUNTS = "pixels by truth and prediction"
POOLED = {"pixel accuracy": pixel_accuracy, "mIoU": mean_iou}
"""Of the pixels of all images together."""
MEASURES = ("pixel accuracy", "mAP", "mIoU", "EPG", "pointing game")
PRIOR = "centre prior, widths of the best mIoU"
PAIRS = (
    ("rollout (start_layer=1)", PRIOR),
    ("transformer_attribution", "rollout"),
    ("input_x_gradient", "random"),
)
"""Rows that are held against each other."""
WIDTHS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7)
"""Standard deviations of the centre prior that are tried, as shares of the image."""


def scored(scores: Float[Tensor, "n tokens"], split: Split) -> Result:
    """The protocol of Chefer et al., EPG and the pointing game, image by image.

    Pixel accuracy and mIoU are of the pixels of all images together, so that counts are kept of each.
    """
    masks = split.masks[: len(scores)]
    annotation = mask_to_tokens(masks, GRID)
    return {
        "images": len(scores),
        COUNTS: segmentation_confusion(scores, GRID, masks).flatten(1).tolist(),
        "mAP": per_image(segmentation_average_precision(scores, GRID, masks)),
        "EPG": per_image(energy_pointing_game(scores, annotation)),
        "pointing game": per_image(pointing_game(scores, annotation)),
        "area": per_image(annotation.chance),
    }


def pooled(measure: str, counts: Float[np.ndarray, "sets 4"]) -> Float[np.ndarray, " sets"]:
    """Pixel accuracy or mIoU of counts of pixels that were added up, or averaged, over images."""
    found: np.ndarray = POOLED[measure](torch.from_numpy(counts).unflatten(1, (2, 2))).numpy()
    return found


def estimated(results: Sequence[Result], name: str, part: str, measure: str) -> Estimate:
    """A measure over seeds and images; over seeds alone where results kept no more than the mean over images."""
    rows = [result["methods"][name][part] for result in results]
    if COUNTS in rows[0] and measure in POOLED:
        return estimate([row[COUNTS] for row in rows], True, partial(pooled, measure))
    return estimate([np.atleast_1d(row[measure]) for row in rows], same_samples=True)


def both(scores: Float[Tensor, "n tokens"], split: Split) -> Result:
    """Over all images that were explained, and over the first few."""
    return {"all": scored(scores, split), "few": scored(scores[:FEW], split)}


def gaussian(width: float, height: float) -> Float[Tensor, " tokens"]:
    """Around the image's centre."""
    y, x = ((torch.arange(n) + 0.5) / n - 0.5 for n in GRID)
    return torch.exp(-((y / height) ** 2)[:, None] / 2 - ((x / width) ** 2)[None] / 2).flatten()


def centre_prior(split: Split, measure: str) -> Float[Tensor, " tokens"]:
    """The Gaussian that is best on these masks."""
    candidates = [gaussian(*widths) for widths in product(WIDTHS, WIDTHS)]

    def reached(prior: Float[Tensor, " tokens"]) -> float:
        row = scored(prior.expand(len(split.masks), -1), split)
        return estimated([{"methods": {"prior": {"val": row}}}], "prior", "val", measure).mean

    return max(candidates, key=reached)


def run(seed: int, arguments: Any) -> Result:
    """Train with one seed, then score every method and the centre prior."""
    model, data = trained(arguments.data, arguments.weights, seed)
    test, keep = data["test"], RUNS / f"maps_{arguments.weights.stem}_{seed}"
    head = {"seed": seed, "weights": arguments.weights.stem, "accuracy": accuracy(model, test)}
    head |= {"val accuracy": accuracy(model, data["val"])}

    def measure(row: Row) -> Result:
        if row.method.startswith("centre prior"):
            prior = centre_prior(data["val"], "EPG" if "EPG" in row.method else "mIoU")
            return both(prior.expand(len(test.labels), -1), test)
        return both(of_prediction(model, test, row, keep)[0], test)

    priors = [Row(PRIOR), Row("centre prior, widths of the best EPG")]
    return fill(HERE / "results" / f"seed_{seed}.json", head, [*priors, *rows(FEW)], measure)


def table(results: list[Result]) -> str:
    """All methods on all images, and the dear ones beside a few others on a few images; best mIoU first."""
    test, val = (
        "{:.1%} ± {:.1%}".format(*mean_interval([result["head"][name] for result in results]))
        for name in ("accuracy", "val accuracy")
    )
    names = supported(results)
    images = {name: results[0]["methods"][name]["all"]["images"] for name in names}
    most = max(images.values())
    everything = [name for name in names if images[name] == most]
    dear = [name for name in names if images[name] < most]
    beside = [name for name in names if name in BESIDE or name.startswith("centre")]
    area = estimated(results, everything[0], "all", "area").mean
    text = (
        f"{len(results)} seeds; accuracy on the {most} test images {test} (validation {val}; over seeds; "
        f"guessing 33.3 %). The pet's share of the area, which is the chance level of EPG: {area:.3f}.\n\n"
    )
    text += f"{ranked(results, everything, 'all')}\n\n{in_pairs(results)}"
    if dear:
        text += f"\n\nThe dear methods, on the first {FEW} test images, with others on the same images:\n\n"
        text += ranked(results, dear + beside, "few")
    return text + absent(results)


def in_pairs(results: list[Result]) -> str:
    """What the text says of one row and another, image by image."""
    differences = [
        f"`{name}` less {other}: {difference(results, name, other)}"
        for name, other in PAIRS
        if all(each in result["methods"] for result in results for each in (name, other))
    ]
    return f"mIoU, paired by image and seed, not corrected: {'; '.join(differences)}."


def difference(results: Sequence[Result], name: str, other: str) -> Estimate:
    """The mIoU of a row less that of another, on the same images of the same seeds."""
    counts = [
        np.hstack([result["methods"][row]["all"][COUNTS] for row in (name, other)]).astype(float) for result in results
    ]

    def gap(totals: Float[np.ndarray, "sets 8"]) -> Float[np.ndarray, " sets"]:
        return pooled("mIoU", totals[:, :4]) - pooled("mIoU", totals[:, 4:])

    return estimate(counts, True, gap)


def ranked(results: list[Result], names: list[str], part: str) -> str:
    """A table, best mIoU first."""
    names = sorted(names, key=lambda name: -estimated(results, name, part, "mIoU").mean)
    return markdown(
        [
            {"method": f"`{name}`" if not name.startswith("centre") else name}
            | {measure: str(estimated(results, name, part, measure)) for measure in MEASURES}
            for name in names
        ]
    )


def main() -> None:
    arguments = with_data(parser(__doc__).parse_args())
    text = table([run(seed, arguments) for seed in range(arguments.seeds)])
    write_between(HERE / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
