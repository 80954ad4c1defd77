"""Do residuals and norms cancel what feed-forward blocks do to the attention maps (Kobayashi et al., ICLR 2024)?

    .venv/bin/python -m experiments.blocks.run

One JSON file per model in `results/`; a run that was cut off goes on with the models that are missing. The table is
written into this folder's README.md.
"""

import argparse
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from jaxtyping import Float
from PIL import Image
from scipy import stats
from torch import Tensor, nn

import lrptrain
from experiments.data import dataset
from experiments.intervals import estimate, paired, starred
from experiments.records import save
from experiments.table import markdown, mean_interval, write_between
from experiments.vision import MEAN, STD, vit
from lrptrain.data import TextSpans
from lrptrain.models import TextClassifier

HERE = Path(__file__).resolve().parent

SAMPLES, TEXTS = 100, 1100
SHOWN = {
    "attention_norm": "Attention", "atb_norm": "Atb", "attn_res_ln_norm": "Atb", "atb_ff_norm": "AtbFf",
    "atb_ff_res_norm": "AtbFfRes", "atb_ff_res_ln_norm": "AtbFfResLn",
}  # fmt: skip
COMPARED = ("AtbFf", "AtbFfRes", "AtbFfResLn")
Row = dict[str, float]
Result = dict[str, Any]


def change(before: Float[Tensor, "s s"], after: Float[Tensor, "s s"]) -> tuple[float, float]:
    """1 - Spearman's correlation of all entries; distance of the maps with rows of sum 1, relative to the first."""
    rank = 1 - float(stats.spearmanr(before.flatten().numpy(), after.flatten().numpy()).statistic)
    first, second = (one / one.sum(-1, keepdim=True) for one in (before, after))
    return rank, float((second - first).norm() / first.norm())


def measure(found: lrptrain.Decomposition, lengths: list[int]) -> list[list[Row]]:
    """Per sample and block: what each step does to the map, and how much every form mixes (mean over tokens)."""
    maps = {SHOWN[form]: norms.double() for form, norms in found.norms.items()}
    ratios = {SHOWN[form]: one.double() for form, one in found.mixing_ratios.items()}
    samples = []
    for sample, length in enumerate(lengths):
        rows = []
        for block in range(len(maps["Atb"])):
            cut = {name: one[block, sample, :length, :length] for name, one in maps.items()}
            row = {f"mixing {name}": float(one[block, sample, :length].mean()) for name, one in ratios.items()}
            for name in COMPARED:
                if name in cut:
                    row[f"rank {name}"], row[f"distance {name}"] = change(cut["Atb"], cut[name])
            rows.append(row)
        samples.append(rows)
    return samples


def batches_of_tweets(data: TextSpans) -> Iterable[tuple[Any, Tensor, list[int]]]:
    """Inputs, labels and lengths of the held-out tweets."""
    for batch in data.val_dataloader():
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        yield inputs, batch["label"], batch["attention_mask"].sum(1).tolist()


def batches_of_images(path: Path) -> Iterable[tuple[Any, Tensor, list[int]]]:
    """Normalised images of CIFAR-10's test part, ten per class."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.startswith("test/") and name.endswith(".jpg"))
        classes = sorted({name.split("/")[1] for name in names})
        names = names[:: len(names) // SAMPLES]
        pixels = [np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB")) for name in names]
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    images = (torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2) / 255 - mean) / std
    labels = torch.tensor([classes.index(name.split("/")[1]) for name in names])
    for part, label in zip(images.split(20), labels.split(20), strict=True):
        yield part, label, [65] * len(part)


def run(model: nn.Module, batches: Iterable[tuple[Any, Tensor, list[int]]]) -> dict[str, Any]:
    """Decompose the first samples."""
    started, right, samples = time.monotonic(), 0, []
    for inputs, labels, lengths in batches:
        found = lrptrain.decompose(model, inputs)
        samples += measure(found, lengths)
        right += int((found.logits.argmax(1) == labels).sum())
        if len(samples) >= SAMPLES:
            break
    return {
        "samples": len(samples),
        "accuracy": right / len(samples),
        "seconds": time.monotonic() - started,
        "blocks": [[{name: round(x, 5) for name, x in row.items()} for row in rows] for rows in samples],
    }


def minilm(seed: int) -> dict[str, Any]:
    """Fine-tune MiniLM on tweets for one short epoch, then decompose held-out ones."""
    pl.seed_everything(seed, verbose=False)
    data = TextSpans(
        path=str(dataset("tweets")),
        label_column="sentiment",
        labels=["negative", "positive"],
        max_length=64,
        batch_size=25,
        limit=TEXTS,
        val_share=SAMPLES / TEXTS,
        seed=seed,
    )
    module = TextClassifier(num_classes=2, lr=3e-4)
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", default_root_dir=HERE / "runs", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, limit_val_batches=0,
    )  # fmt: skip
    trainer.fit(module, datamodule=data)
    return run(module.eval(), batches_of_tweets(data))


def values(results: Sequence[Result], name: str, block: int | None) -> list[Float[np.ndarray, " samples"]]:
    """Per result a number of every sample: of one block, or the mean over blocks."""
    chosen = slice(None) if block is None else slice(block, block + 1)
    return [np.array([np.mean([row[name] for row in rows[chosen]]) for rows in run["blocks"]]) for run in results]


def table(results: Sequence[Result]) -> str:
    """One line per block, and one for the mean over them; mean and 95 % interval over seeds and samples."""
    names = results[0]["blocks"][0][0]
    lines = []
    for block in [*range(len(results[0]["blocks"][0])), None]:
        line = {"block": "all" if block is None else str(block + 1)}
        for kind, head in (("rank", "1 - r_s to Atb:"), ("distance", "distance to Atb:"), ("mixing", "mixing:")):
            for form in ("Attention", "Atb", *COMPARED):
                if (name := f"{kind} {form}") in names:
                    line[f"{head} {form}"] = str(estimate(values(results, name, block), same_samples=False))
        lines.append(line)
    return markdown(lines)


def steps_table(models: Mapping[str, Sequence[Result]]) -> str:
    """What each further step adds to the change of the map, over all blocks: negative where it undoes some."""
    found = {
        (model, kind, before, after): estimate(
            paired(values(results, f"{kind} {after}", None), values(results, f"{kind} {before}", None)), False
        )
        for model, results in models.items()
        for kind in ("rank", "distance")
        for before, after in pairwise(form for form in COMPARED if f"{kind} {form}" in results[0]["blocks"][0][0])
    }
    stars = starred(found)
    return markdown(
        [
            {
                "model": key[0],
                "measure": {"rank": "1 - r_s to Atb", "distance": "distance to Atb"}[key[1]],
                "step": f"{key[3]} minus {key[2]}",
                "difference": f"{each.mean:+.3f} ± {each.half:.3f}{' *' if key in stars else ''}",
            }
            for key, each in found.items()
        ]
    )


def tables(texts: Sequence[Result], images: Result) -> str:
    """Everything between the marks of the README."""
    accuracy = "{:.0%} ± {:.0%}".format(*mean_interval([result["accuracy"] for result in texts]))
    return (
        f"MiniLM (post-LN), {len(texts)} seeds, {SAMPLES} tweets each, accuracy on them {accuracy} (over seeds); "
        f"mean ± 95 % interval over seeds and tweets:\n\n{table(texts)}\n\n"
        f"ViT (pre-LN), {images['samples']} images, accuracy on them {images['accuracy']:.0%}; mean ± 95 % "
        f"interval over images:\n\n{table([images])}\n\n"
        "What each step does to the change of the map, sample by sample, mean over blocks; `*`: it is not 0, p <= 0.05 "
        f"after Holm's correction over the table:\n\n{steps_table({'MiniLM': texts, 'ViT': [images]})}"
    )


def kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result in a file, made if it is missing."""
    if not path.exists():
        save(path, make())
    result = json.loads(path.read_text(encoding="utf-8"))
    print(f"{path.stem}: accuracy {result['accuracy']:.2f}, decomposed in {result['seconds']:.0f} s", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    seeds = range(arguments.seeds)
    texts = [kept(HERE / "results" / f"minilm_{seed}.json", lambda seed=seed: minilm(seed)) for seed in seeds]

    def photographs() -> dict[str, Any]:
        return run(vit(10, 32, dataset("vit")).eval(), batches_of_images(dataset("cifar10")))

    images = kept(HERE / "results" / "vit.json", photographs)
    text = tables(texts, images)
    write_between(HERE / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
