"""Boxes around objects that nobody annotated: MobileSAM is shown the middle of a photo, and outlines the object.

.venv/bin/python -m experiments.real_models.outlines    # overlap with people's boxes, of training and validation
"""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from experiments import weights
from experiments.command import no_options
from lrptrain.batch.annotations import boxes_to_mask

MIDDLE = 0.7
"""Height and width of the box that MobileSAM is shown, in shares of the photograph's. Of 0.6, 0.7, 0.8, 0.9, the middle
point, five points and 25 points, this one's boxes overlap best with people's on 22 photographs of birds."""


def outlined(files: Sequence[Path], size: int, kept: Path) -> UInt8[Tensor, "n size size"]:
    """Return 1 in the box around what MobileSAM is surest of, of photographs squeezed to squares; kept in a file."""
    if not kept.exists():
        folder = weights.fetch("mobile_sam")
        spec = importlib.util.spec_from_file_location("mobile_sam", folder / "mobile_sam" / "__init__.py")
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot load {folder}")
        code = sys.modules["mobile_sam"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(code)
        with torch.random.fork_rng():  # the training that follows is the same as one that finds the file
            predictor = code.SamPredictor(code.sam_model_registry["vit_t"](str(folder / "mobile_sam.pt")).eval())
        kept.parent.mkdir(parents=True, exist_ok=True)
        torch.save(torch.stack([_box(predictor, file) for file in files]), kept)
    return boxes_to_mask(size * torch.load(kept)[:, None], (size, size))


def _box(predictor: Any, file: Path) -> Float[Tensor, " 4"]:
    """Left, top, right and bottom in shares of width and height."""
    with Image.open(file) as opened:
        picture = np.asarray(opened.convert("RGB"))
    sides = np.array([picture.shape[1], picture.shape[0]])
    predictor.set_image(picture)
    shown = np.concatenate([(1 - MIDDLE) / 2 * sides, (1 + MIDDLE) / 2 * sides])
    masks, scores, _ = predictor.predict(box=shown)
    rows, columns = np.nonzero(masks[scores.argmax()])
    if not len(rows):
        return torch.from_numpy(shown / np.tile(sides, 2)).float()
    corners = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
    return torch.from_numpy(corners / np.tile(sides, 2)).float()


def main() -> None:
    from experiments.real_models.waterbirds import birds  # which draws the boxes

    no_options(__doc__)
    torch.set_num_threads(1)
    side = 96
    for split in ("train", "val"):
        people = birds(split, side).mask == 1
        kept = Path(__file__).parent / "runs" / f"outlines_birds_{split}.pt"
        boxes = {"MobileSAM": birds(split, side, kept).mask == 1}
        for share in (0.5, 0.6, 0.7):
            middle = torch.tensor([(1 - share) / 2, (1 - share) / 2, (1 + share) / 2, (1 + share) / 2])
            boxes[f"the middle, {share:g}"] = boxes_to_mask(side * middle.view(1, 1, 4), (side, side)) == 1
        for name, box in boxes.items():
            overlap = (box & people).flatten(1).sum(1) / (box | people).flatten(1).sum(1)
            print(f"{split}, {name}: {overlap.mean():.2f} ± {1.96 * overlap.std() / len(overlap) ** 0.5:.2f}")


if __name__ == "__main__":
    main()
