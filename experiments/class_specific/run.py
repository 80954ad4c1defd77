"""Two objects in one image: does the map of each object's class lie on that object? Two digits, and two pets.

    .venv/bin/python -m experiments.class_specific.run

One JSON file per seed and kind of scene in `results/`, saved after every method; a run that was cut off goes on with
what is missing. The tables are written into this folder's README.md, and the figure beside it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

import lrptrain
from experiments.class_specific.digit_model import digit_model
from experiments.class_specific.figure import draw
from experiments.class_specific.scenes import Scenes, digit_pools, digit_scenes, own_and_other, pet_scenes
from experiments.intervals import compared
from experiments.per_method import Result, Row, absent, cell, fill, per_image, rows, runs, supported
from experiments.pets import SIZE, checkpoint, parser, trained, with_data
from experiments.table import markdown, mean_interval, write_between
from experiments.vision import logits, vit
from lrptrain.batch.annotations import mask_to_tokens
from lrptrain.metrics import energy_pointing_game, pointing_game
from lrptrain.relevance.registry import get_method

HERE = Path(__file__).resolve().parent

COUNT = {"digits": 100, "pets": 40}
"""Scenes that are explained, of those in which the model recognises both."""
FEW = {"digits": 12, "pets": 6}
"""The first of them, for the dear methods."""
MEASURES = ("own / (own + other)", "EPG", "pointing game")
BESIDE = ("random", "rollout", "transformer_attribution", "generic_attention", "attnlrp")
HELD_AGAINST = "attnlrp"
CONTRASTED = ("attnlrp", "generic_attention", "input_x_gradient", "transformer_attribution")


def digits(seed: int, arguments: Any) -> tuple[nn.Module, dict[str, Scenes], Result]:
    """A model that knows one or two digits, and scenes of unseen digits."""
    pools = digit_pools(seed)
    scenes = {name: digit_scenes(pools[name], 500, drawn_by(9)) for name in ("val", "test")}
    return digit_model(pools["train"], seed), scenes, {}


def pets(seed: int, arguments: Any) -> tuple[nn.Module, dict[str, Scenes], Result]:
    """The fine-tuned model, its position embedding resampled for images twice as wide, and scenes of two pets."""
    _, data = trained(arguments.data, arguments.weights, seed)
    model = vit(3, (SIZE, 2 * SIZE), checkpoint(arguments.weights, seed)).eval()
    scenes = {name: pet_scenes(data[name], 200, drawn_by(9)) for name in ("val", "test")}
    return model, scenes, {"weights": arguments.weights.stem}


def drawn_by(seed: int) -> torch.Generator:
    """A generator for what is drawn once."""
    return torch.Generator().manual_seed(seed)


def first(scenes: Scenes, count: int) -> Scenes:
    """The first of them."""
    return chosen(scenes, torch.arange(min(count, len(scenes.labels))))


def chosen(scenes: Scenes, index: Tensor) -> Scenes:
    """Those of an index or a boolean mask."""
    return Scenes(scenes.images[index], scenes.masks[index], scenes.labels[index])


def recognised(model: nn.Module, scenes: Scenes) -> Bool[Tensor, " n"]:
    """Whether a scene's two classes have the two highest logits."""
    found = logits(model, scenes.images)
    top = torch.zeros_like(found).scatter(1, found.topk(2).indices, 1.0)
    return (top == scenes.present(found.shape[1])).all(1)


def maps(model: nn.Module, scenes: Scenes, row: Row) -> list[Float[Tensor, "n tokens"]]:
    """One map per object, both from one forward pass; with `contrast`, of its class against the other one's."""
    parts: list[list[Tensor]] = [[], []]
    for images, labels in zip(scenes.images.split(16), scenes.labels.split(16), strict=True):
        recorded = lrptrain.record(model, images)
        for index, part in enumerate(parts):
            other = labels[:, 1 - index] if row.contrast else None
            part.append(recorded.attribute(labels[:, index], row.method, other=other, **row.options).scores)
    return [torch.cat(part) for part in parts]


def scored(maps: list[Float[Tensor, "n tokens"]], scenes: Scenes, count: int) -> Result:
    """Every measure of the first scenes: a number per object, all first objects before the second ones."""
    columns: dict[str, list[Tensor]] = {name: [] for name in MEASURES}
    for index, scores in enumerate(maps):
        own = mask_to_tokens(scenes.masks[:, index], scenes.grid)
        either = mask_to_tokens(own_and_other(scenes, index), scenes.grid)
        values = (energy_pointing_game(scores, either), energy_pointing_game(scores, own), pointing_game(scores, own))
        for name, value in zip(MEASURES, values, strict=True):
            columns[name].append(value[:count])
    return {name: per_image(torch.cat(values)) for name, values in columns.items()}


def run(kind: str, seed: int, arguments: Any) -> Result:
    """All methods on the model of one seed and one kind of scene."""
    model, splits, head = {"digits": digits, "pets": pets}[kind](seed, arguments)
    known = {name: recognised(model, scenes) for name, scenes in splits.items()}
    head = {"seed": seed} | head | {name: found.float().mean().item() for name, found in known.items()}
    scenes = first(chosen(splits["test"], known["test"]), COUNT[kind])
    every = rows(FEW[kind])
    every += [replace(row, contrast=True) for row in every if row.name in CONTRASTED]

    def measure(row: Row) -> Result:
        shown = first(scenes, row.limit or len(scenes.labels))
        found = maps(model, shown, row)
        few = scored(found, shown, FEW[kind])
        return {"few": few} if row.limit else {"few": few, "all": scored(found, shown, len(shown.labels))}

    if seed == 0 and kind == "digits":
        draw(model, first(scenes, 3), maps, HERE / "digits.png")
    return fill(HERE / "results" / f"{kind}_{seed}.json", head, every, measure)


def table(kind: str, results: list[Result]) -> str:
    """How well the model knows both objects; all methods; the dear ones on a few scenes."""
    shares = [name for name, value in results[0]["head"].items() if isinstance(value, float)]
    known = "; ".join(
        "{} {:.1%} ± {:.1%}".format(name, *mean_interval([result["head"][name] for result in results]))
        for name in shares
    )
    names = supported(results)
    cheap = [name for name in names if "all" in results[0]["methods"][name]]
    text = (
        f"### Two {kind}\n\n{len(results)} seeds. The two classes of a scene have the two highest logits: {known} "
        "(over seeds).\n\n"
    )
    text += ranked(results, cheap, "all")
    dear = [name for name in names if name not in cheap]
    text += f"\n\nThe dear methods, on the first {FEW[kind]} scenes, with others on the same scenes:\n\n"
    return text + ranked(results, dear + [name for name in names if name in BESIDE], "few") + absent(results)


def ranked(results: list[Result], names: list[str], part: str) -> str:
    """A table, the greatest share on the own object first; scenes differ by seed, as models recognise other ones."""
    names = sorted(names, key=lambda name: -cell(results, name, part, MEASURES[0], same_samples=False)[0])
    shares = {name: runs(results, name, part, MEASURES[0]) for name in names}
    differences = compared(shares, HELD_AGAINST, same_samples=False)
    return markdown(
        [
            {
                "method": f"`{name}`",
                "class-specific": "yes" if get_method(name.split(" ")[0], {}).class_specific else "no",
            }
            | {measure: cell(results, name, part, measure, same_samples=False)[1] for measure in MEASURES}
            | {f"own share minus `{HELD_AGAINST}`": differences[name]}
            for name in names
        ]
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--kinds", nargs="+", choices=["digits", "pets"], default=["digits", "pets"])
    given = arguments.parse_args()
    if "pets" in given.kinds:
        given = with_data(given)
    texts = [table(kind, [run(kind, seed, given) for seed in range(given.seeds)]) for kind in given.kinds]
    if len(texts) == 2:
        write_between(HERE / "README.md", "\n\n".join(texts))
    print("\n\n".join(texts))


if __name__ == "__main__":
    main()
