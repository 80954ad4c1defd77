"""What the samples of a run are, once: the image or the tokens, and the annotation.

    inputs/<id>.json          id, patch grid; of a text also the tokens, which of them are scored, and the rationale
    inputs/<id>.webp          the image, at most 384 pixels long; without loss up to 64
    inputs/<id>.mask.webp     white evidence, grey ignored, black not; without loss

The JSON is written last: a sample that has one is complete.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from lrptrain.extras import require
from lrptrain.files import file_name_of, to_json, write_atomically, write_text
from lrptrain.loggers.record import Input

MOST_INPUTS = 1000
"""So many samples of a run are stored as the model is given them: a choice, of room on a disk."""
LARGEST = 384
"""The longer side of a stored image in pixels: a choice, of what the page shows at full width."""
_LOSSLESS = 64
"""Up to this side an image is stored without loss, as single pixels can be seen then: a choice."""
_QUALITY = 90
"""The quality of a stored image on WebP's scale: a choice, at which people see no difference."""
_SHADES = np.zeros(256, np.uint8)
"""The grey level of each value of an annotation: evidence is white, what is ignored grey."""
_SHADES[[1, 255]] = 255, 128


def write_inputs(folder: Path, inputs: Mapping[int | str, Callable[[], Input]], room_mb: float = float("inf")) -> None:
    """Write the samples that are not there yet, the first 1000 at most."""
    used = 0.0
    for sample_id, make in islice(inputs.items(), MOST_INPUTS):
        path = input_path(folder, sample_id)
        if path.exists():
            continue
        if used >= room_mb:  # what is already there costs nothing: only new samples count
            return
        used += _write(path, make())


def input_path(folder: Path, sample_id: int | str, ending: str = ".json") -> Path:
    """Where a sample's file lies, of the ending ".json", ".webp" or ".mask.webp"."""
    return folder / "inputs" / f"{file_name_of(sample_id)}{ending}"


def _write(path: Path, sample: Input) -> float:
    """Write the files of one sample, and return their megabytes."""
    about: dict[str, Any] = {"sample_id": sample.sample_id, "grid": sample.grid}
    written = [path]
    if sample.image is not None:
        written.append(path.with_suffix(".webp"))
        _save(written[-1], sample.image, lossless=max(sample.image.shape[:2]) <= _LOSSLESS)
        if sample.annotation is not None:
            written.append(path.with_suffix(".mask.webp"))
            _save(written[-1], _SHADES[sample.annotation], lossless=True)
    else:
        annotation = None if sample.annotation is None else sample.annotation.tolist()
        about |= {"tokens": sample.tokens, "annotation": annotation, "scored": sample.scored}
    write_text(path, to_json(about))  # last: the page takes a sample that has it as complete
    return sum(file.stat().st_size for file in written) / 1e6


def _save(path: Path, pixels: UInt8[np.ndarray, "height width *channels"], lossless: bool) -> None:
    image = require("PIL.Image", "monitor")
    picture = image.fromarray(np.ascontiguousarray(pixels))
    factor = LARGEST / max(picture.size)
    if factor < 1:
        # A mask's levels have a meaning: none between them may arise.
        resampling = image.Resampling.NEAREST if pixels.ndim == 2 else image.Resampling.BOX
        picture = picture.resize([max(1, round(side * factor)) for side in picture.size], resampling)
    write_atomically(path, partial(picture.save, format="WebP", lossless=lossless, quality=_QUALITY, method=2))
