"""What the annotations of a data set mark, as they are read: to be looked at before training."""

import html
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from torch import nn

from lrptrain.batch import IMAGES, BatchAdapter, Sample, batch_length, take
from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.checks import Limits, unusable
from lrptrain.batch.content import SPECIAL, special_tokens
from lrptrain.batch.png_masks import PngMasks
from lrptrain.batch.reading import read_columns
from lrptrain.batch.rows import has_rows
from lrptrain.batch.task import CLASSES
from lrptrain.cues.annotator import Annotate, Annotator
from lrptrain.cues.text_form import text_form
from lrptrain.cues.texts import Language
from lrptrain.extras import require
from lrptrain.files import write_text
from lrptrain.findings.sentences import percent
from lrptrain.loggers.record import Input
from lrptrain.monitor.annotated import survey
from lrptrain.monitor.display import DisplayOptions, inputs
from lrptrain.monitor.loader_pass import read_once
from lrptrain.render import contact_sheet, enlarge, join_words, outlined
from lrptrain.render.png import png_address
from lrptrain.render.view import display
from lrptrain.trainers.naming import find_tokenizer, find_tokens


@dataclass(frozen=True)
class Preview:
    """Samples with their annotations: images with outlines, texts with underlined words.

    `.show()` in a notebook, `.save("masks.png")` or `.save("masks.html")` anywhere; printed, it is a line a sample.

    Attributes:
        lines: What is marked of each sample, and what looks odd in all of them.
        pictures: The images, with the outline of what is evidence; none for texts.
        texts: The texts as HTML; none for images.
    """

    lines: Sequence[str]
    pictures: Sequence[UInt8[np.ndarray, "_height _width 3"]] = field(default=(), repr=False)
    texts: Sequence[str] = field(default=(), repr=False)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        if self.pictures:
            return f'<img src="{png_address(self._sheet())}" alt="{html.escape(str(self))}">'
        return "".join(self.texts) or f"<pre>{html.escape(str(self))}</pre>"

    def show(self) -> None:
        """Show it in a notebook; elsewhere print it."""
        display(self._repr_html_(), str(self))

    def save(self, path: str | Path) -> Path:
        """Write it as a page, or images as a PNG."""
        path = Path(path)
        if path.suffix == ".png" and self.pictures:
            require("PIL.Image", "monitor").fromarray(self._sheet()).save(path)
        elif path.suffix == ".html":
            write_text(path, f'<!doctype html><meta charset="utf-8"><title>Annotations</title>{self._repr_html_()}')
        else:
            raise ValueError(f"{path.name!r}: annotations are saved as .html, those of images also as .png")
        return path

    def _sheet(self) -> UInt8[np.ndarray, "height width 3"]:
        return contact_sheet(self.pictures, self.lines[: len(self.pictures)])


def preview(
    samples: Any,
    max_samples: int = 8,
    *,
    batch_adapter: BatchAdapter | None = None,
    annotate: Annotate | None = None,
    tokenizer: Any = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Preview:
    """Show what the annotations of a data set mark, as monitor and guidance read them: `lrptrain.preview(loader)`.

    Examples:
        >>> import torch, lrptrain
        >>> lrptrain.preview([{"image": torch.rand(2, 1, 8, 8), "mask": torch.eye(8).expand(2, 8, 8)}])
        Preview(lines=['#0: 12 % marked', '#1: 12 % marked'])

    Args:
        samples: A DataLoader, a Dataset or an iterable of batches, with `mask`, `boxes` or `rationale`.
        max_samples: So many samples are shown, the first ones.
        batch_adapter: See `lrptrain.callbacks.RelevanceMonitor`, as for all below.
        annotate: Makes the annotations.
        tokenizer: Names the tokens.
        mean: The mean of each channel that images were normalised with.
        std: Their standard deviation.

    Raises:
        ValueError: If a batch cannot be read, or an annotation is none, with what to change.
    """
    found = find_tokenizer(tokenizer, [])
    names = find_tokens(found, [])
    language = Language(names, text_form(found, nn.Module()), found is not None)
    annotator = None if annotate is None else Annotator(annotate)
    if not isinstance(samples, Iterable):
        samples = (each.batch for each in read_once(samples, max_samples))
    drawn = [*_samples(samples, max_samples, batch_adapter, annotator, language)]
    if not drawn:
        raise ValueError("there are no samples to preview")
    are_rows = has_rows({name: x[None] for name, x in drawn[0].tensors.items()})
    shown = inputs([(each, _grid(each)) for each in drawn], DisplayOptions((), names, mean, std), are_rows)
    lines, pictures, texts = [], [], []
    for sample in drawn:
        make = shown.get(sample.sample_id)
        item = make() if make is not None else None
        label = "" if sample.label < 0 else f", label {sample.label}"
        lines.append(f"#{sample.sample_id}{label}: {_marked(sample, item)}")
        if item is not None and item.image is not None:
            pictures.append(_outlined(item))
        elif item is not None:
            texts.append(_text(item, lines[-1]))
    remark = survey(drawn).remark
    return Preview([*lines, *([remark] if remark else [])], pictures, texts)


def _samples(
    batches: Iterable[Any],
    most: int,
    adapter: BatchAdapter | None,
    annotator: Annotator | None,
    language: Language,
) -> Iterator[Sample]:
    png_masks, count = PngMasks(), 0
    for batch in batches:
        columns = read_columns(batch, adapter)
        label = columns.pop("label", None)
        with suppress(ValueError):  # labels that are no classes, as several per sample, are not needed here
            columns |= {} if label is None else {"label": CLASSES.classes(label)}
        if "input_ids" in columns:
            columns[SPECIAL] = special_tokens(columns, language.form.ends, language.form.padding.token)
        if annotator is not None:
            columns = annotator(columns, language)
        png_masks.add(columns)
        if png_masks.problem:
            raise ValueError(png_masks.problem)
        for row, problem in unusable(columns, Limits()).items():
            raise ValueError(f"sample {row} of a batch cannot be used: {problem}")
        for row in range(min(batch_length(columns), most - count)):
            yield take(columns, row, count + row)
        count += batch_length(columns)
        if count >= most:
            return


def _grid(sample: Sample) -> tuple[int, ...] | None:
    image = next((sample.tensors[name] for name in IMAGES if name in sample.tensors), None)
    return None if image is None or image.ndim < 3 else (1,) * (image.ndim - 1)


def _marked(sample: Sample, item: Input | None) -> str:
    """Return in words how much of a sample is marked."""
    if item is None or item.annotation is None:
        return "no annotation" if item is not None else "cannot be drawn"
    judged = item.annotation != IGNORED
    if not judged.any():
        return "all ignored (255)"
    share = float((item.annotation == 1)[judged].mean())
    return f"{percent(share)} marked" + ("" if judged.all() else f", {percent(float((~judged).mean()))} ignored")


def _text(item: Input, title: str) -> str:
    """Return a text as HTML: marked words underlined, those that count for nothing grey."""
    marked = [False] * len(item.tokens) if item.annotation is None else (item.annotation == 1).tolist()
    words = [
        f'{" " if word.space else ""}<span style="'
        f'{"font-weight:bold;text-decoration:underline" if word.evidence else "" if word.scored else "color:#767676"}">'
        f"{html.escape(word.text)}</span>"
        for word in join_words(item.tokens, item.scored, marked)
    ]
    return f"<p><strong>{html.escape(title)}</strong><br>{''.join(words)}</p>"


def _outlined(item: Input) -> UInt8[np.ndarray, "height width 3"]:
    assert item.image is not None
    picture = enlarge(item.image)
    return picture if item.annotation is None else outlined(picture, enlarge(item.annotation) == 1)
