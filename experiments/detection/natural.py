"""How far do answers on natural photographs follow properties of whole images, with a lamp and without? See README.md.

    .venv/bin/python -m experiments.detection.natural

Scenes have a light, a sharpness and colours of their own, which clean models may use: what they do sets how large an
effect has to be.
"""

import numpy as np
import pytorch_lightning as pl
import torch
from jaxtyping import Float, Int
from torch import Tensor

from experiments.command import no_options
from experiments.data import dataset
from experiments.detection.photographs import BLOCKS, EPOCHS, LR, VIT, classes_of, loader, photographs
from experiments.detection.shading import LAMPS
from experiments.table import markdown
from lrptrain.batch import Sample
from lrptrain.intervention import InterventionConfig, Region, effects
from lrptrain.models import ImageClassifier

CLEAN, LIT = "clean", "lamp"
PLAN = ((CLEAN, 0, CLEAN), (CLEAN, 1, CLEAN), (CLEAN, 0, LIT), ("clean10", 0, CLEAN), ("clean10", 1, CLEAN))
"""Which photographs, the seed, and the light."""
PROPERTIES = ("shading", "detail", "statistics")
JUDGED = 400


def lit(images: Float[np.ndarray, "n height width 3"], labels: Int[np.ndarray, " n"]) -> np.ndarray:
    """Brightest below the lamp of the class, and darker with the distance from it."""
    side = images.shape[1]
    down, across = (side * np.array(LAMPS)[labels].T)[:, :, None, None]
    rows, columns = np.mgrid[:side, :side]
    squares = ((rows - down) ** 2 + (columns - across) ** 2) / side**2
    return np.asarray((images * (1.4 / (1 + 2 * squares))[..., None]).clip(0, 1), np.float32)


def trained(kind: str, seed: int, light: str) -> tuple[ImageClassifier, Tensor, Tensor]:
    """A small ViT, and held-out images with their labels."""
    pl.seed_everything(seed, verbose=False)
    classes = classes_of(kind)
    images, labels = photographs("train", 250 if len(classes) == 10 else 400, classes)
    train = loader(lit(images, labels) if light == LIT else images, labels, shuffle=True)
    images, labels = photographs("test", 100, classes)
    shown = list(loader(lit(images, labels) if light == LIT else images, labels))
    module = ImageClassifier(len(classes), pretrained=str(dataset("vit")), model_kwargs=VIT, lr=LR)
    module.net.blocks = module.net.blocks[:BLOCKS]
    trainer = pl.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, gradient_clip_val=1.0,
    )  # fmt: skip
    trainer.fit(module, train)
    return module.eval(), torch.cat([each["image"] for each in shown]), torch.cat([each["label"] for each in shown])


def measured(kind: str, seed: int, light: str) -> dict[str, str]:
    """A row of the table."""
    module, images, labels = trained(kind, seed, light)
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:JUDGED]
    images, labels = images[chosen], labels[chosen]
    with torch.no_grad():
        probabilities = torch.cat([module(part).softmax(1) for part in images.split(64)]).numpy()
    predicted = probabilities.argmax(1)
    rows = np.arange(len(images))
    samples = [
        Sample(i, int(label), {"image": image}) for i, (image, label) in enumerate(zip(images, labels, strict=True))
    ]
    row = {"classes": str(len(classes_of(kind))), "light": light, "seed": str(seed)}
    row["accuracy"] = f"{(predicted == labels.numpy()).mean():.2f}"
    for name in PROPERTIES:
        change, control = effects(
            module, samples, rows=rows, computed_rows=rows, region=Region(name), probabilities=probabilities,
            grid=(8, 8), config=InterventionConfig(batch_size=32),
        )  # fmt: skip
        effect = change - control
        of_class = [np.nanmean(effect[predicted == label]) for label in np.unique(predicted)]
        row[name] = f"{np.nanmean(effect):.3f} ({min(of_class):.2f} to {max(of_class):.2f})"
    return row


def main() -> None:
    no_options(__doc__)
    torch.set_num_threads(1)
    rows = []
    for each in PLAN:
        rows.append(measured(*each))
        print(rows[-1], flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
