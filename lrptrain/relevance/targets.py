"""Ready targets: functions of a model's output that return one number per sample, to be explained.

`lrptrain.attribute(model, inputs, target=targets.TokenTarget(token=4, category=2))`. Any other function
`output -> [batch]` of torch operations is a target, too: `target=lambda output: output.logits[:, 4].logsumexp(-1)`.

A target may be asked for some samples of the batch only (`of_samples`), for methods that run the model again on them.
For one that cannot tell (a lambda, or a target that compares samples) these methods run whole batches.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lrptrain.relevance.output.outputs import described, field_of

# One index for all samples, or one per sample.
Index = int | Sequence[int] | Int[Tensor, " batch"]
Entry = tuple[int, ...]
# Names of the logits in the outputs of transformers, DETR and torchvision.
LOGITS = ("logits", "pred_logits", "out")


class Target(ABC):
    """A function of a model's output that names what it needs and refuses what it cannot read."""

    # Fields that may hold a number for each sample.
    _per_sample: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the number that is explained, one per sample."""

    def of_samples(self, chosen: Int[Tensor, " chosen"]) -> Self | None:
        """Return the target of some samples, or None if it needs the whole batch."""
        own = {name: _some(getattr(self, name), chosen) for name in self._per_sample}
        return replace(self, **own) if own else self  # type: ignore[type-var]

    def _tensor(self, output: Any, axes: str, *names: str) -> Tensor:
        """The output, or its first field of these names, with the axes that the target needs."""
        ndim = len(axes.split())
        tensor = field_of(output, *names)
        if tensor is None or tensor.ndim != ndim:
            where = f" as a tensor or as {' or '.join(names)}" if names else ""
            needed = f"[{', '.join(axes.split())}]{where}"
            raise ValueError(f"{type(self).__name__} needs {needed}; the model returned {described(output)}")
        return tensor

    def _index(self, index: Index, size: int, what: str, samples: int, device: torch.device) -> Tensor:
        """An index per sample, `[batch]`, within `size`."""
        chosen = torch.as_tensor(index, device=device)
        if chosen.is_floating_point() or chosen.dtype == torch.bool or chosen.shape not in ((), (samples,)):
            raise ValueError(
                f"{type(self).__name__}: {what} must be one integer, or one per sample (here {samples}), not {index!r}"
            )
        if ((chosen < 0) | (chosen >= size)).any():
            raise ValueError(
                f"{type(self).__name__}: {what} {chosen.tolist()!r} is out of range for {size} (0 to {size - 1})"
            )
        return chosen.long().expand(samples)

    def _read(self, logits: Float[Tensor, "batch ..."], *fields: str) -> Tensor:
        """The entries at the indices that some fields hold, of the axes behind the samples in order."""
        indices = [
            self._index(getattr(self, field), size, field, len(logits), logits.device)
            for field, size in zip(fields, logits.shape[1:], strict=False)
        ]
        return _entries(logits, *indices)


def _some(index: Any, chosen: Int[Tensor, " chosen"]) -> Any:
    """What belongs to some samples of a number for all, or of one per sample."""
    numbers = None if index is None else torch.as_tensor(index)
    return index if numbers is None or numbers.ndim == 0 else numbers[chosen.to(numbers.device)]


def _entries(x: Float[Tensor, "batch ..."], *indices: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """`x[i, indices[0][i], indices[1][i], ...]` of every sample i."""
    return x[(torch.arange(len(x), device=x.device), *indices)]


@dataclass(frozen=True)
class EntryTarget(Target):
    """One entry of outputs with several axes, as captum's tuples: `(token, class)` reads `logits[i, token, class]`.

    Attributes:
        entry: An index for every axis behind the batch; or a list of such tuples, one per sample.
    """

    entry: Entry | list[Entry]

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the entry of every sample."""
        logits = field_of(output, *LOGITS)
        entries = [self.entry] if isinstance(self.entry, tuple) else self.entry
        if logits is None or {len(entry) for entry in entries} != {logits.ndim - 1}:
            shape = described(output) if logits is None else list(logits.shape)
            raise ValueError(
                f"a target that is a tuple has one index for every axis of the logits behind the batch; they are "
                f"{shape}, and the target is {self.entry!r}"
            )
        if len(entries) not in (1, len(logits)):
            raise ValueError(f"target has {len(entries)} tuples for {len(logits)} samples: give one per sample")
        indices = []
        for axis, column in enumerate(zip(*entries, strict=True), 1):
            index = list(column) if len(entries) > 1 else column[0]
            indices.append(self._index(index, logits.shape[axis], f"index of axis {axis}", len(logits), logits.device))
        return _entries(logits, *indices)

    def of_samples(self, chosen: Int[Tensor, " chosen"]) -> Self:
        """Return the target of some samples."""
        entry = self.entry
        return self if isinstance(entry, tuple) else replace(self, entry=[entry[i] for i in chosen.tolist()])


@dataclass(frozen=True)
class ClassifierOutputTarget(Target):
    """The logit of a class, of logits `[batch, classes]`: what `target=category` explains.

    Attributes:
        category: The class, or one per sample.
    """

    _per_sample = ("category",)

    category: Index

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the logit of the class."""
        return self._read(self._tensor(output, "batch classes", "logits"), "category")


@dataclass(frozen=True)
class MultiLabelTarget(Target):
    """The sum of the logits of several classes, for models that give a sample several labels.

    Attributes:
        categories: The classes, the same for all samples.
    """

    categories: Sequence[int]

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the sum of the classes' logits."""
        logits = self._tensor(output, "batch classes", "logits")
        chosen = [
            self._index(category, logits.shape[1], "categories", len(logits), logits.device)
            for category in self.categories
        ]
        if not chosen:
            raise ValueError("MultiLabelTarget: categories is empty; give the classes whose logits are summed")
        return sum((_entries(logits, category) for category in chosen[1:]), _entries(logits, chosen[0]))


@dataclass(frozen=True)
class BinaryClassifierOutputTarget(Target):
    """One logit per sample, `[batch]` or `[batch, 1]`, of a model that was trained with binary cross-entropy.

    Attributes:
        category: 1: the logit itself; 0: its negative, the logit of the other class. Or one per sample.
    """

    _per_sample = ("category",)

    category: Index = 1

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the logit, with the sign of the class."""
        logit = _single(self, output)
        category = self._index(self.category, 2, "category", len(logit), logit.device)
        return logit * (2 * category - 1).to(logit.dtype)


@dataclass(frozen=True)
class RawScoresOutputTarget(Target):
    """The number that a model returns for every sample, `[batch]` or `[batch, 1]`: the value of a regression, say."""

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the number."""
        return _single(self, output)


def _single(target: Target, output: Any) -> Float[Tensor, " batch"]:
    numbers = field_of(output, "logits", "prediction", "predictions", "score", "scores")
    if numbers is None or not (numbers.ndim == 1 or (numbers.ndim == 2 and numbers.shape[1] == 1)):
        raise ValueError(
            f"{type(target).__name__} needs one number per sample, [batch] or [batch, 1]; the model returned "
            f"{described(output)}"
        )
    return numbers if numbers.ndim == 1 else numbers.squeeze(1)


@dataclass(frozen=True)
class TokenTarget(Target):
    """The logit of a class at a token, of logits `[batch, tokens, classes]`: token classification, language models.

    Attributes:
        token: The position of the token, padding on the left included; or one per sample.
        category: The class (a word of the vocabulary, for a language model), or one per sample.
    """

    _per_sample = ("token", "category")

    token: Index
    category: Index

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the token's logit."""
        logits = self._tensor(output, "batch tokens classes", "logits", "prediction_logits")
        return self._read(logits, "token", "category")


@dataclass(frozen=True, eq=False)
class NextTokenTarget(Target):
    """The logit of a next word, at the last token of every text, of logits `[batch, tokens, vocabulary]`.

    Attributes:
        category: The word's number in the vocabulary, or one per sample.
        attention_mask: 1 at the tokens of a text, 0 at its padding on either side; None for texts of one length.
    """

    _per_sample = ("category", "attention_mask")

    category: Index
    attention_mask: Int[Tensor, "batch tokens"] | None = None

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the word's logit."""
        logits = self._tensor(output, "batch tokens vocabulary", "logits")
        samples, tokens = logits.shape[:2]
        last: Index = tokens - 1
        if self.attention_mask is not None:
            mask = self.attention_mask.to(logits.device)
            if mask.shape != (samples, tokens):
                raise ValueError(
                    f"NextTokenTarget: attention_mask must be [{samples}, {tokens}] as the logits' tokens, not "
                    f"{list(mask.shape)}"
                )
            last = (mask.long() * torch.arange(tokens, device=mask.device)).argmax(1)
        return TokenTarget(last, self.category)(output)


@dataclass(frozen=True)
class SpanTarget(Target):
    """The score of an answer, from `start_logits` and `end_logits`, `[batch, tokens]` each: their sum.

    Attributes:
        start: Position of the answer's first token, or one per sample.
        end: Position of its last token, or one per sample.
    """

    _per_sample = ("start", "end")

    start: Index
    end: Index

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the sum of the two logits."""
        if isinstance(output, Tensor):
            raise ValueError(f"SpanTarget needs start_logits and end_logits; the model returned {described(output)}")
        start, end = (self._tensor(output, "batch tokens", f"{name}_logits") for name in ("start", "end"))
        return self._read(start, "start") + self._read(end, "end")


@dataclass(frozen=True, eq=False)
class SemanticSegmentationTarget(Target):
    """The mean logit of a class over a region, of logits `[batch, classes, height, width]`.

    Attributes:
        category: The class, or one per sample.
        mask: The region: True, or not 0, at its pixels; `[height, width]`, or one per sample. Of the logits'
            size, which is often smaller than the image's. One pixel is a region, too, or `target=(class, row, column)`.
    """

    category: Index
    mask: Bool[Tensor, "*batch height width"]

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the mean logit over the region."""
        logits = self._tensor(output, "batch classes height width", "logits", "out")
        samples, _, *size = logits.shape
        mask = torch.as_tensor(self.mask, device=logits.device) != 0
        if list(mask.shape) not in (size, [samples, *size]):
            raise ValueError(
                f"SemanticSegmentationTarget: mask must be {size} as the logits, or {[samples, *size]}, not "
                f"{list(mask.shape)}; resize it (nearest neighbour)"
            )
        inside = mask.expand(samples, *size)
        pixels = inside.flatten(1).sum(1)
        if (pixels == 0).any():
            raise ValueError("SemanticSegmentationTarget: mask is empty in some sample; there is no pixel to explain")
        maps = self._read(logits, "category")
        return torch.where(inside, maps, 0.0).flatten(1).sum(1) / pixels

    def of_samples(self, chosen: Int[Tensor, " chosen"]) -> Self:
        """Return the target of some samples."""
        mask = self.mask if self.mask.ndim == 2 else self.mask[chosen.to(self.mask.device)]
        return replace(self, category=_some(self.category, chosen), mask=mask)


@dataclass(frozen=True)
class QueryTarget(Target):
    """The class logit of a detected box, of logits `[batch, queries, classes]` as DETR's.

    Attributes:
        category: The class, or one per sample.
        query: Which box, or one per sample; None for the box with the largest logit of the class.
    """

    _per_sample = ("category", "query")

    category: Index
    query: Index | None = None

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the box's logit."""
        logits = self._tensor(output, "batch queries classes", "logits", "pred_logits")
        by_class = logits.transpose(1, 2)
        if self.query is not None:
            return self._read(by_class, "category", "query")
        return self._read(by_class, "category").amax(1)


@dataclass(frozen=True)
class ImageTextSimilarityTarget(Target):
    """The similarity of images and texts, of `logits_per_image` `[images, texts]` as CLIP's.

    Attributes:
        text: Every image's similarity to this text (`explain="pixel_values"`).
        image: Every text's similarity to this image (`explain="input_ids"`). Without both: the similarity of every
            image to the text of the same number.
    """

    text: int | None = None
    image: int | None = None

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the similarity of every pair."""
        if isinstance(output, Tensor):
            logits = self._tensor(output, "images texts")
        else:
            logits = self._tensor(output, "images texts", "logits_per_image", "itm_score")
        images, texts = logits.shape
        if self.text is not None and self.image is not None:
            raise ValueError("ImageTextSimilarityTarget takes text= or image=; one pair of all is target=lambda ...")
        if self.text is not None:
            return self._read(logits, "text")
        if self.image is not None:
            return self._read(logits.t(), "image")
        if images != texts:
            raise ValueError(
                f"ImageTextSimilarityTarget pairs images with texts, and there are {images} and {texts}; give text= or "
                "image="
            )
        return _entries(logits, torch.arange(images, device=logits.device))

    def of_samples(self, chosen: Int[Tensor, " chosen"]) -> Self | None:
        """Return the target of some pairs; None for one text of all, which other texts would move."""
        return self if self.text is None and self.image is None else None


@dataclass(frozen=True, eq=False)
class EmbeddingSimilarityTarget(Target):
    """The cosine of an embedding that the model returns, `[batch, width]`, and a given one.

    Attributes:
        embedding: `[width]`, or one per sample; a constant.
        field: The field of the output that is compared, or None for the output itself or the first of `image_embeds`,
            `text_embeds`, `embeddings` and `pooler_output`.
    """

    embedding: Float[Tensor, "*batch width"]
    field: str | None = None

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the cosine."""
        names = (self.field,) if self.field else ("image_embeds", "text_embeds", "embeddings", "pooler_output")
        embeddings = self._tensor(output, "batch width", *names)
        reference = self.embedding.detach().to(embeddings)
        if reference.shape not in (embeddings.shape, embeddings.shape[1:]):
            raise ValueError(
                f"EmbeddingSimilarityTarget: embedding must be {list(embeddings.shape[1:])} or "
                f"{list(embeddings.shape)} as the model's, not {list(reference.shape)}"
            )
        direction = reference / reference.norm(dim=-1, keepdim=True)
        cosine: Tensor = ((embeddings / embeddings.norm(dim=-1, keepdim=True)) * direction).sum(-1)
        return cosine

    def of_samples(self, chosen: Int[Tensor, " chosen"]) -> Self:
        """Return the target of some samples."""
        embedding = self.embedding
        return self if embedding.ndim == 1 else replace(self, embedding=embedding[chosen.to(embedding.device)])


@dataclass(frozen=True)
class BoxScoreTarget(Target):
    """The score of a detected box, of lists of dicts with `boxes`, `labels` and `scores` as torchvision's.

    Of every sample the detection of the class that overlaps most with the given box. Where the model is run again on
    changed inputs and no longer finds it, the score is 0.

    Attributes:
        category: The class.
        box: (left, top, right, bottom) in pixels; or one per sample.
        iou_threshold: Least overlap (intersection over union, 0 to 1).
    """

    category: int
    box: tuple[float, ...] | list[tuple[float, ...]]
    iou_threshold: float = 0.5
    may_be_missing: bool = False

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return the score of the box."""
        fields = ("boxes", "labels", "scores")
        listed = isinstance(output, (list, tuple))
        if not listed or any(field_of(detections, name) is None for detections in output for name in fields):
            raise ValueError(
                f"BoxScoreTarget needs a list of dicts with boxes, labels and scores; the model returned "
                f"{described(output)}; for logits [batch, queries, classes] there is QueryTarget"
            )
        boxes = self.box if isinstance(self.box, list) else [self.box] * len(output)
        if len(boxes) != len(output):
            raise ValueError(f"BoxScoreTarget: {len(boxes)} boxes for {len(output)} samples: give one per sample")
        pairs = enumerate(zip(output, boxes, strict=True))
        return torch.stack([self._score(number, detections, box) for number, (detections, box) in pairs])

    def _score(self, sample: int, detections: Any, box: tuple[float, ...]) -> Float[Tensor, ""]:
        of_class = (detections["labels"] == self.category).nonzero()[:, 0]
        overlaps = _overlap(detections["boxes"].detach()[of_class], torch.as_tensor(box).to(detections["boxes"]))
        if len(of_class) and overlaps.max() >= self.iou_threshold:
            score: Tensor = detections["scores"][of_class[overlaps.argmax()]]
            return score
        if self.may_be_missing:
            return torch.zeros_like(detections["scores"].sum())
        raise ValueError(
            f"BoxScoreTarget: sample {sample} has no detection of class {self.category} that overlaps {box} by "
            f"{self.iou_threshold}; it has the classes {detections['labels'].tolist()[:10]}"
        )

    def of_samples(self, chosen: Int[Tensor, " chosen"]) -> Self:
        """Return the target of some samples, in which the box may be missing."""
        box = self.box if isinstance(self.box, tuple) else [self.box[i] for i in chosen.tolist()]
        return replace(self, box=box, may_be_missing=True)


def _overlap(boxes: Float[Tensor, "boxes 4"], box: Float[Tensor, "4"]) -> Float[Tensor, " boxes"]:
    """Intersection over union of boxes with one box."""
    corner = torch.maximum(boxes[:, :2], box[:2])
    opposite = torch.minimum(boxes[:, 2:], box[2:])
    shared = (opposite - corner).clamp(min=0).prod(1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1) + (box[2:] - box[:2]).prod()
    return shared / (area - shared)
