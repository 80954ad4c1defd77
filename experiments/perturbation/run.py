"""Remove what a map calls relevant (or irrelevant) and see whether the class stays on top, for every method.

    .venv/bin/python -m experiments.perturbation.run

On the models and images of `experiments/pets.py`. One JSON file per seed in `results/`, saved after every
method; a run that was cut off goes on with what is missing. The table is written into this folder's README.md.
"""

from pathlib import Path

from jaxtyping import Float, Int
from torch import Tensor, nn

from experiments.command import no_options
from experiments.data import dataset
from experiments.per_method import Result, Row, absent, cell, fill, per_image, relevance, rows, supported
from experiments.pets import SIZE, accuracy, trained
from experiments.table import markdown, mean_interval, write_between
from experiments.vision import MEAN, STD, logits
from lrptrain.metrics.faithfulness import area_under_curve, perturbation_curve

HERE = Path(__file__).resolve().parent

COUNT, FEW = 64, 16
"""Test images, and those of them for the dear methods."""
GRID = (SIZE // 4, SIZE // 4)
FRACTIONS = tuple(step / 10 for step in range(1, 10))
BLACK = tuple(-mean / std for mean, std in zip(MEAN, STD, strict=True))
MEASURES = ("positive, predicted", "negative, predicted", "positive, target", "negative, target")
BESIDE = ("random", "transformer_attribution", "generic_attention", "attnlrp", "rollout")


def areas(
    model: nn.Module, images: Float[Tensor, "n 3 h w"], scores: Float[Tensor, "n tokens"], target: Int[Tensor, " n"]
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Positive (most relevant first) and negative (least relevant first) area under the top-1 curve of each image."""
    first, last = (
        area_under_curve(perturbation_curve(model, images, scores, GRID, target, FRACTIONS, order, BLACK), FRACTIONS)
        for order in (True, False)
    )
    return first, last


def run(seed: int) -> Result:
    """All methods on the model of one seed."""
    model, data = trained(seed)
    test = data["test"]
    head = {"seed": seed, "weights": dataset("vit").stem, "accuracy": accuracy(model, test)}

    def measure(row: Row) -> Result:
        images, labels = (part[: min(row.limit or COUNT, COUNT)] for part in (test.images, test.labels))
        predicted = logits(model, images).argmax(1)
        scores = relevance(model, images, predicted, row)
        positive, negative = areas(model, images, scores, predicted)
        columns = [positive, negative, positive.clone(), negative.clone()]
        wrong = predicted != labels  # the rest has the same map and the same curve
        if wrong.any():
            of_label = relevance(model, images[wrong], labels[wrong], row)
            columns[2][wrong], columns[3][wrong] = areas(model, images[wrong], of_label, labels[wrong])
        found = dict(zip(MEASURES, columns, strict=True))
        parts = {"all": len(images), "few": FEW}
        return {
            part: {"images": count} | {name: per_image(area[:count]) for name, area in found.items()}
            for part, count in parts.items()
        }

    return fill(HERE / "results" / f"seed_{seed}.json", head, rows(FEW), measure)


def ranked(results: list[Result], names: list[str], part: str) -> str:
    """A table, the greatest distance between the curves of the predicted class first."""
    gap = {
        name: cell(results, name, part, "negative, predicted")[0] - cell(results, name, part, "positive, predicted")[0]
        for name in names
    }
    return markdown(
        [
            {"method": f"`{name}`"} | {measure: cell(results, name, part, measure)[1] for measure in MEASURES}
            for name in sorted(names, key=gap.get, reverse=True)
        ]
    )


def table(results: list[Result]) -> str:
    """All methods on all images, and the dear ones beside a few others on a few images."""
    names = supported(results)
    images = {name: results[0]["methods"][name]["all"]["images"] for name in names}
    most = max(images.values())
    test = "{:.1%} ± {:.1%}".format(*mean_interval([result["head"]["accuracy"] for result in results]))
    text = f"{len(results)} seeds, {most} test images; accuracy on the whole test list {test} (over seeds).\n\n"
    text += ranked(results, [name for name in names if images[name] == most], "all")
    dear = [name for name in names if images[name] < most]
    if dear:
        text += f"\n\nThe dear methods, on the first {FEW} test images, with others on the same images:\n\n"
        text += ranked(results, dear + [name for name in names if name in BESIDE], "few")
    return text + absent(results)


def main() -> None:
    no_options(__doc__)
    text = table([run(seed) for seed in range(3)])
    write_between(HERE / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
