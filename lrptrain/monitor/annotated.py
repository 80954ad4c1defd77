"""What the annotations of a whole sample say together, which no single one of them can: are they misread?"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from lrptrain.batch import IMAGES, Sample, collate
from lrptrain.batch.annotations import EVERYTHING, IGNORED, NO_CONTENT, mixes_0_and_255, no_evidence
from lrptrain.batch.content import content_tokens
from lrptrain.batch.matters import LEVEL
from lrptrain.batch.task import MASKS
from lrptrain.cues.cue import MOST, QUARTER
from lrptrain.cues.images import mask_in
from lrptrain.findings.sentences import listed

_ANNOTATIONS = ("mask", "rationale", "boxes")  # as for cues, the first one counts


@dataclass(frozen=True)
class AnnotationSurvey:
    """The values that annotations have, over a number of samples.

    Attributes:
        mixed: The ids of samples with 0 and 255 and no 1.
        marked: The number of samples with evidence.
        everywhere: Of these, those in which nothing else can be judged.
        nowhere: Of these, texts in which it is padding or special tokens alone.
        boxes: Boxes as (x1 + x2 - width, y1 + y2 - height): how far twice their centre lies from the image's.
    """

    name: str = ""
    has_evidence: bool = False
    has_values: bool = False
    mixed: list[int | str] = field(default_factory=list)
    marked: int = 0
    everywhere: int = 0
    nowhere: int = 0
    boxes: set[tuple[float, float]] = field(default_factory=set)

    @property
    def misread(self) -> str:
        """Why no annotation can be trusted; "" if they can."""
        if self.mixed and not self.has_evidence:
            return no_evidence(self.name)
        return self.without_content

    @property
    def without_content(self) -> str:
        """That most texts are marked where no words are; "" if they are not."""
        if self.nowhere <= MOST * self.marked:
            return ""
        return f"{self.name!r} of {self.nowhere} of {self.marked} texts {NO_CONTENT}"

    @property
    def remark(self) -> str:
        """What looks odd, and how the annotations are read; "" if nothing does."""
        if self.name and not self.has_values:
            return (
                f"no sample is annotated: every {self.name!r} is 255 throughout, which is ignored (if 255 marks the "
                f"evidence, as in most PNG files, pass `{self.name} > 0`)"
            )
        if self.mixed and self.has_evidence:
            ids = listed([*map(str, self.mixed)])
            return f"{self.name!r} of the samples {ids} holds 0 and 255 and no 1: read as no evidence, the rest ignored"
        if self.everywhere > MOST * self.marked:
            return f"the annotations of {self.everywhere} of {self.marked} samples {EVERYTHING}"
        # Of boxes anywhere a quarter has its centre there; of (x, y, width, height) read as corners nearly all have.
        if QUARTER ** len(self.boxes) < LEVEL and all(x < 0 and y < 0 for x, y in self.boxes):
            return (
                f"all of {len(self.boxes)} 'boxes' have their centre in the top left quarter of their image: they are "
                "read as (x1, y1, x2, y2); are yours (x, y, width, height)?"
            )
        return ""


def survey(samples: Sequence[Sample]) -> AnnotationSurvey:
    """Return what the annotations of samples say."""
    parts = []
    for sample in samples:
        name = next((name for name in ("mask", "rationale") if name in sample.tensors), "")
        if name:
            values = sample.tensors[name]
            row = {key: tensor[None] for key, tensor in sample.tensors.items()}
            has_evidence = bool((values == 1).any())
            mixed = [sample.sample_id] if not has_evidence and mixes_0_and_255(row, name) else []
            part = AnnotationSurvey(name, has_evidence, bool((values != IGNORED).any()), mixed)
        else:
            part = AnnotationSurvey(boxes=_centres(sample))
        marked, everywhere, nowhere = _coverage(sample)
        parts.append(replace(part, marked=marked, everywhere=everywhere, nowhere=nowhere))
    return merged(parts)


def _coverage(sample: Sample) -> tuple[bool, bool, bool]:
    """Return whether anything is marked, everything, and nothing that is content."""
    batch = collate([sample])
    name = next((name for name in _ANNOTATIONS if name in batch), "")
    if not name or MASKS in batch:  # masks of each label, which may well be all of an image together
        return False, False, False
    is_of_image = any(batch[each].ndim == 4 for each in IMAGES if each in batch)
    marks = mask_in(batch) if is_of_image and name != "rationale" else batch[name]  # the first of several regions
    if not bool((marks == 1).any()):
        return False, False, False
    is_text = name == "rationale" and "input_ids" in batch and marks.shape == batch["input_ids"].shape
    judged = content_tokens(batch) if is_text else marks != IGNORED
    return True, not (judged & (marks != 1)).any(), is_text and not (judged & (marks == 1)).any()


def merged(parts: Sequence[AnnotationSurvey]) -> AnnotationSurvey:
    """Return what the surveys of several groups of samples, or processes, say together."""
    return AnnotationSurvey(
        name=next((part.name for part in parts if part.name), ""),
        has_evidence=any(part.has_evidence for part in parts),
        has_values=any(part.has_values for part in parts),
        mixed=[sample_id for part in parts for sample_id in part.mixed],
        marked=sum(part.marked for part in parts),
        everywhere=sum(part.everywhere for part in parts),
        nowhere=sum(part.nowhere for part in parts),
        boxes=set().union(*(part.boxes for part in parts)),
    )


def without_annotations(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples as if nobody had annotated them."""
    return [
        replace(sample, tensors={name: x for name, x in sample.tensors.items() if name not in _ANNOTATIONS})
        for sample in samples
    ]


def _centres(sample: Sample) -> set[tuple[float, float]]:
    boxes = sample.tensors.get("boxes")
    image = next((x for name, x in sample.tensors.items() if name != "boxes" and x.ndim == 3), None)
    if boxes is None or image is None:
        return set()
    size = torch.tensor([image.shape[-1], image.shape[-2]])
    centres: Tensor = boxes[:, :2] + boxes[:, 2:] - size
    return {(float(x), float(y)) for x, y in centres if x == x}
