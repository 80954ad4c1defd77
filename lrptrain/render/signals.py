"""Relevance over a video, a spectrogram or a waveform."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Num, UInt8
from torch import Tensor

from lrptrain.render.colors import INK, OPACITY, PAPER, blend
from lrptrain.render.image import _array, _resized, _scaled, finite_map, overlay, to_picture
from lrptrain.render.sheet import GAP

# Size of the strip of a waveform, in pixels.
_STRIP = (96, 640)


def video_frames(
    video: Num[Tensor | np.ndarray, "frames channels height width"],
    heat: Num[Tensor | np.ndarray, "times rows columns"] | None,
    *,
    opacity: float = OPACITY,
    mean: Sequence[float] | Tensor | None = None,
    std: Sequence[float] | Tensor | None = None,
) -> UInt8[np.ndarray, "large_height strip_width 3"]:
    """The frames side by side, each under its relevance as by `overlay`; the most relevant place of all is brightest.

    Args:
        video: As an image for `overlay`, frames first.
        heat: Relevance of a grid of (frames, rows, columns): `scores[0].unflatten(0, grid)`. Frames share that of the
            tube that they are in. None for the frames as they are.
        opacity: Opacity of the most relevant place, in [0, 1].
        mean: As for `overlay`.
        std: As for `overlay`.
    """
    frames = torch.as_tensor(video)
    if mean is None and std is None:  # all frames alike, from the smallest to the largest number of the video
        low = frames.amin()
        frames = (frames - low) / (frames.amax() - low).clamp(min=torch.finfo(torch.float32).tiny)
        mean = (0.0,)
        std = (1.0,)
    pictures = [to_picture(frame, mean=mean, std=std) for frame in frames]
    if heat is None:
        return _in_a_row(pictures)
    maps = torch.as_tensor(heat)
    # 4 frames in 2 tubes: 0, 0, 1, 1.
    tubes = torch.arange(len(frames)) * len(maps) // len(frames)
    size = (pictures[0].shape[0], pictures[0].shape[1])
    relevance = _scaled(np.stack([_resized(_array(maps[tube]), size) for tube in tubes]))
    return _in_a_row([blend(x, y, opacity) for x, y in zip(pictures, relevance, strict=True)])


def _in_a_row(pictures: Sequence[UInt8[np.ndarray, "height width 3"]]) -> UInt8[np.ndarray, "height strip_width 3"]:
    gap = np.full((pictures[0].shape[0], GAP // 2, 3), PAPER, dtype=np.uint8)
    return np.concatenate([part for picture in pictures for part in (gap, picture)][1:], axis=1)


def spectrogram(
    values: Num[Tensor | np.ndarray, "bins time"],
    heat: Num[Tensor | np.ndarray, "rows columns"],
    *,
    opacity: float = OPACITY,
) -> UInt8[np.ndarray, "large_height large_width 3"]:
    """A spectrogram in grey, low frequencies at the bottom, under its relevance as by `overlay`.

    Args:
        values: The spectrogram, low frequencies first.
        heat: Relevance of a grid of (frequency, time), or of one row: one number for each time.
        opacity: Opacity of the most relevant place, in [0, 1].
    """
    picture = torch.as_tensor(values).flip(0)[None]
    return overlay(picture, torch.as_tensor(heat).flip(0), opacity=opacity)


def waveform(
    samples: Num[Tensor | np.ndarray, " time"], heat: Num[Tensor | np.ndarray, " tokens"], *, opacity: float = OPACITY
) -> UInt8[np.ndarray, "96 640 3"]:
    """A waveform as a strip, over the colours of its relevance, as by `overlay`.

    Args:
        samples: The waveform.
        heat: Relevance per token, which share the time evenly, or per sample.
        opacity: Opacity of the most relevant time, in [0, 1].
    """
    height, width = _STRIP
    ground = np.full((height, width, 3), PAPER, dtype=np.uint8)
    columns = torch.arange(width)
    relevance = _scaled(finite_map(heat))
    of_columns = relevance[(columns * len(relevance) // width).numpy()]
    strip = blend(ground, np.broadcast_to(of_columns, (height, width)), opacity)
    low, high = _extremes(_array(torch.as_tensor(samples)), width)
    rows = np.arange(height)[:, None]
    strip[(rows >= low) & (rows <= high)] = INK
    return strip


def _extremes(samples: Float[np.ndarray, " time"], width: int) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last row of the line in every column: from its largest sample to its smallest."""
    largest = max(float(np.abs(samples).max()), np.finfo(np.float32).tiny)
    # Rows count downwards; the middle is 0.
    rows = (1 - samples / largest) / 2 * (_STRIP[0] - 1)
    # Columns overlap by a sample, so that the line has no gaps.
    edges = np.linspace(0, len(samples) - 1, width + 1)
    starts = np.floor(edges[:-1]).astype(int)
    ends = np.ceil(edges[1:]).astype(int) + 1
    columns = [rows[start:end] for start, end in zip(starts, ends, strict=True)]
    return np.array([np.floor(x.min()) for x in columns]), np.array([np.ceil(x.max()) for x in columns])
