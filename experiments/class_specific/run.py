"""Two digits in one image: does the map of each digit's class lie on that digit?

    .venv/bin/python -m experiments.class_specific.run

One JSON file per seed in `results/`, saved after every method; a run that was cut off goes on with
what is missing. The table is written into this folder's README.md, and the figure beside it.
"""

from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

import lrptrain
from experiments.class_specific.figure import draw
from experiments.class_specific.scenes import CANVAS, Digits, Scenes, digit_pools, digit_scenes, own_and_other
from experiments.command import no_options
from experiments.intervals import compared
from experiments.per_method import Result, Row, absent, cell, fill, per_image, rows, runs, supported
from experiments.pets import RUNS
from experiments.table import markdown, mean_interval, write_between
from experiments.vision import fit, logits, vit
from lrptrain.batch.annotations import mask_to_tokens
from lrptrain.metrics import energy_pointing_game, pointing_game
from lrptrain.relevance.registry import get_method

HERE = Path(__file__).resolve().parent

COUNT, FEW = 100, 12
"""Scenes that are explained, of those in which the model recognises both; the first of them, for the dear methods."""
MEASURES = ("own / (own + other)", "EPG", "pointing game")
BESIDE = ("random", "rollout", "transformer_attribution", "generic_attention", "attnlrp")
HELD_AGAINST = "attnlrp"
SEEDS = range(3)
CONTRASTED = ("attnlrp", "generic_attention", "input_x_gradient", "transformer_attribution")


def digit_model(train: Digits, seed: int) -> nn.Module:
    """A ViT that knows one or two digits, trained once and kept: cross-entropy against equal shares for all present."""
    path = RUNS / f"digits_{seed}.pt"
    torch.manual_seed(seed)
    model = vit(10, CANVAS, width=64, depth=4)

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        drawn = digit_scenes(train, 32, generator, alone=0.5)
        return drawn.images, F.normalize(drawn.present(10), p=1, dim=1)

    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
    else:
        fit(model, batch, 1500, 1.5e-3, seed=seed)
        RUNS.mkdir(exist_ok=True)
        torch.save(model.state_dict(), path)
    return model.eval()


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


def run(seed: int) -> Result:
    """All methods on the model of one seed."""
    pools = digit_pools(seed)
    splits = {name: digit_scenes(pools[name], 500, torch.Generator().manual_seed(9)) for name in ("val", "test")}
    model = digit_model(pools["train"], seed)
    known = {name: recognised(model, scenes) for name, scenes in splits.items()}
    head = {"seed": seed} | {name: found.float().mean().item() for name, found in known.items()}
    scenes = first(chosen(splits["test"], known["test"]), COUNT)
    every = rows(FEW)
    every += [replace(row, contrast=True) for row in every if row.name in CONTRASTED]

    def measure(row: Row) -> Result:
        shown = first(scenes, row.limit or len(scenes.labels))
        found = maps(model, shown, row)
        few = scored(found, shown, FEW)
        return {"few": few} if row.limit else {"few": few, "all": scored(found, shown, len(shown.labels))}

    if seed == 0:
        draw(model, first(scenes, 3), maps, HERE / "digits.png")
    return fill(HERE / "results" / f"digits_{seed}.json", head, every, measure)


def table(results: list[Result]) -> str:
    """How well the model knows both digits; all methods; the dear ones on a few scenes."""
    known = "; ".join(
        "{} {:.1%} ± {:.1%}".format(name, *mean_interval([result["head"][name] for result in results]))
        for name in ("val", "test")
    )
    names = supported(results)
    cheap = [name for name in names if "all" in results[0]["methods"][name]]
    text = f"{len(results)} seeds. The two classes of a scene have the two highest logits: {known} (over seeds).\n\n"
    text += ranked(results, cheap, "all")
    dear = [name for name in names if name not in cheap]
    text += f"\n\nThe dear methods, on the first {FEW} scenes, with others on the same scenes:\n\n"
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
    no_options(__doc__)
    text = table([run(seed) for seed in SEEDS])
    write_between(HERE / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
