"""Annotations that a function makes, or words name: masks of images and rationales of texts, once for each sample."""

import hashlib
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from lrptrain.batch import IMAGES
from lrptrain.batch.annotations import IGNORED, boxes_to_mask
from lrptrain.batch.call import batch_length, required_parameters
from lrptrain.batch.content import SPECIAL
from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.batch.segmenter import segmented
from lrptrain.cues.cue import Batch
from lrptrain.cues.text_words import TextWord, joined
from lrptrain.cues.texts import Language, parts_of

Annotate = Callable[..., Any] | re.Pattern[str] | Sequence[str]
"""`function(image, label)`: a mask `[height, width]` or boxes `[n, 4]`; or a network, see `segmented`. Of texts
`function(text)`: words, or spans (start, end) of characters; or the words themselves, or a regular expression of them.
None is no annotation."""
KEPT = 16384
"""So many annotations are kept, the latest: a mask of a thing takes about a kilobyte."""


class Annotator:
    """Makes the annotations of samples, each once: what is the same to the last bit is not annotated again."""

    def __init__(self, annotate: Annotate) -> None:
        is_words = isinstance(annotate, Sequence) and all(isinstance(each, str) for each in annotate)
        if isinstance(annotate, str) or not (callable(annotate) or isinstance(annotate, re.Pattern) or is_words):
            raise ValueError(
                "annotate= takes a function (image, label) -> mask, of texts (text) -> words, a list of words, or "
                f"re.compile(...), not {annotate!r:.60}"
            )
        # A network that takes an image alone; one that takes the label, too, is a function as any other.
        alone = isinstance(annotate, nn.Module) and len(required_parameters(annotate)) < 2
        self._segmenter = annotate if alone and isinstance(annotate, nn.Module) else None
        self._annotate = annotate
        self._kept: dict[bytes, bytes] = {}

    def __call__(self, batch: Batch, language: Language | None = None) -> dict[str, Any]:
        """Return samples with their annotations."""
        held = [name for name in ANNOTATIONS if name in batch]
        if held:
            raise ValueError(f"batches hold {held[0]!r}, and annotate= makes annotations: leave one of them out")
        name = next(name for name in (*IMAGES, "input_ids") if name in batch)
        of_row = self._of_text if name == "input_ids" else self._of_image
        labels = batch["label"].tolist() if "label" in batch else [-1] * batch_length(batch)
        rows = [self._row(batch, name, row, label, of_row, language) for row, label in enumerate(labels)]
        entry = "rationale" if name == "input_ids" else "mask"
        return {**batch, entry: torch.stack(rows).to(batch[name].device)}

    def _row(
        self,
        batch: Batch,
        name: str,
        row: int,
        label: int,
        of_row: Callable[..., UInt8[Tensor, "*place"]],
        language: Language | None,
    ) -> UInt8[Tensor, "*place"]:
        values = batch[name][row].detach().cpu().contiguous()
        places = values.shape[-2:] if name in IMAGES else values.shape
        # Of a text, also which tokens are padding.
        known = [batch[each][row].cpu().contiguous() for each in _OF_TEXT[1:] if each in batch]
        digest = hashlib.blake2b(repr((values.shape, values.dtype, label)).encode(), digest_size=16)
        for each in (values, *known):
            digest.update(each.view(torch.uint8).numpy().tobytes())
        key = digest.digest()
        kept = self._kept.pop(key, None)
        if kept is None:
            try:
                made = of_row(batch, name, row, label, language)
            except Exception as error:
                which = batch["sample_id"][row] if "sample_id" in batch else f"{row} of a batch"
                reason = " ".join(str(error).split())
                kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
                raise ValueError(f"annotate= failed for the sample {which}: {kind}{reason}") from error
            kept = zlib.compress(made.numpy().tobytes(), 1)
        self._kept[key] = kept  # the last one again
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        return torch.from_numpy(np.frombuffer(zlib.decompress(kept), np.uint8).copy()).view(places)

    def _of_image(
        self, batch: Batch, name: str, row: int, label: int, language: Language | None
    ) -> UInt8[Tensor, "height width"]:
        if not callable(self._annotate):
            raise ValueError("words are of texts, and images are explained: pass a function (image, label) -> mask")
        image = batch[name][row].detach().cpu()
        size = (image.shape[-2], image.shape[-1])
        made = self._annotate(image, label) if self._segmenter is None else segmented(self._segmenter, image)
        if made is None:
            return torch.full(size, IGNORED, dtype=torch.uint8)
        try:
            mask = torch.as_tensor(made)
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(
                f"it must return a mask {list(size)}, boxes [n, 4] or None, not {type(made).__name__}"
            ) from None
        if mask.shape in ((0,), (4,)) or (mask.ndim == 2 and mask.shape[1] == 4 != size[1]):
            return boxes_to_mask(mask.detach().cpu().float().view(1, -1, 4), size)[0]
        if mask.shape not in (size, (1, *size)):
            raise ValueError(f"it must return a mask {list(size)}, boxes [n, 4] or None, not {list(mask.shape)}")
        mask = mask.detach().cpu().view(size)
        if bool(((mask != 0) & (mask != 1) & (mask != IGNORED)).any()):
            raise ValueError("its mask must hold 1 for evidence, 0 and 255 for ignored alone: return mask > 0.5")
        return mask.to(torch.uint8)

    def _of_text(
        self, batch: Batch, name: str, row: int, label: int, language: Language | None
    ) -> UInt8[Tensor, " tokens"]:
        if language is None or not language.is_named:
            raise ValueError("it goes by texts, and nothing names their tokens: pass tokenizer=")
        ids = batch[name][row]
        if ids.ndim != 1:
            raise ValueError(f"texts must be [batch, tokens], and a sample has {list(ids.shape)}")
        alone = {each: batch[each][row : row + 1].cpu() for each in _OF_TEXT if each in batch}
        rationale = torch.full(ids.shape, IGNORED, dtype=torch.uint8)
        marks = []
        for part in parts_of(alone, language)[0]:
            found = self._marked(part.words)
            marks.append(found)
            rationale[part.tokens] = 0
            for word in found or ():
                rationale[slice(*word.span)] = 1
        return rationale if any(each is not None for each in marks) else torch.full_like(rationale, IGNORED)

    def _marked(self, words: Sequence[TextWord]) -> list[TextWord] | None:
        """Return the words that are evidence; None where there is no annotation."""
        text, word_at = joined(words)
        made = self._annotate(text) if callable(self._annotate) else self._annotate
        if made is None:
            return None
        spans = [match.span() for match in made.finditer(text)] if isinstance(made, re.Pattern) else _spans(made, text)
        inside = {
            word_at[place]
            for start, stop in spans
            for place in range(start, min(stop, len(text)))
            if text[place] != " "
        }
        return [words[number] for number in sorted(inside)]


_OF_TEXT = ("input_ids", "attention_mask", "token_type_ids", SPECIAL)


def _spans(made: Any, text: str) -> list[tuple[int, int]]:
    """Return the characters that are meant by words, of which some may not be in the text, or by spans."""
    form = "of a text it must return a list of words, a list of (start, end) of characters, or None"
    if isinstance(made, str | Mapping) or not isinstance(made, Sequence):
        raise ValueError(f"{form}, not {made!r:.60}")
    if made and all(isinstance(each, str) for each in made):
        # Not \b: a word may begin or end with a sign, such as "wow!".
        words = "|".join(re.escape(each) for each in sorted(made, key=len, reverse=True))
        return [match.span() for match in re.finditer(rf"(?<!\w)(?:{words})(?!\w)", text, re.IGNORECASE)]
    try:
        spans = [(int(start), int(stop)) for start, stop in made]
    except (TypeError, ValueError):
        raise ValueError(f"{form}, not {made!r:.60}") from None
    wrong = next((each for each in spans if not 0 <= each[0] < each[1]), None)
    if wrong is not None:
        raise ValueError(f"a span is (start, end) with 0 <= start < end, not {wrong}")
    return spans
