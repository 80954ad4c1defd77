"""Read the batches of a training: which samples are guided, and where their evidence is."""

from typing import Any

import torch
from torch import Tensor

from lrptrain.batch import IMAGES, BatchAdapter, read_batch
from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.checks import Limits, unusable
from lrptrain.batch.content import content_tokens
from lrptrain.batch.png_masks import PngMasks
from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.batch.task import CLASSES, Task
from lrptrain.guidance.evidence import evidence, guidable_samples, in_annotated_fraction, without_annotation
from lrptrain.guidance.named_parts import NamedParts
from lrptrain.guidance.swaps import SWAPS, Swap
from lrptrain.terminal import give_warning
from lrptrain.trainers.failures import Failures


class AnnotatedBatches:
    """Reads one batch after another, and counts the samples that cannot be used.

    Args:
        needs_label: Whether a sample needs a label to be guided.
        needs_annotation: Whether it needs an annotation. If not, all samples are guided, and annotations are not read.
        sparse: Whether batches without any annotation are to be expected, rather than an error.
        annotated_fraction: The fraction of the samples whose annotations are used.
        max_samples: The most samples of a batch that are guided; None for all.
        batch_adapter: Brings a batch of another form to the contract's names.
        seed: The seed of the draw of the fraction.
        failed: Counts batches that cannot be read.
        named: What findings name: all else is the evidence then, and annotations are read only where what lies outside
            of them is swapped, too. None without findings.
        swap: What is swapped.

    Attributes:
        left_out: How often a sample went unguided for its values.
    """

    left_out: int
    _png_masks: PngMasks

    def __init__(
        self,
        needs_label: bool,
        needs_annotation: bool,
        sparse: bool,
        annotated_fraction: float,
        max_samples: int | None,
        batch_adapter: BatchAdapter | None,
        seed: int,
        failed: Failures,
        named: NamedParts | None = None,
        swap: Swap = SWAPS["statistics"],
    ) -> None:
        self.needs_label = needs_label
        self.needs_annotation = needs_annotation
        self.sparse = sparse
        self.annotated_fraction = annotated_fraction
        self.max_samples = max_samples
        self.batch_adapter = batch_adapter
        self.seed = seed
        self.failed = failed
        self.named = named
        self.swap = swap
        self.start_over()

    def start_over(self) -> None:
        """Forget the batches of an earlier training."""
        self.left_out = 0
        self._png_masks = PngMasks()

    def read(self, batch: Any, worked: bool, task: Task = CLASSES) -> tuple[dict[str, Any], Tensor]:
        """Return a batch in the contract's form, with its evidence, and the indices of the samples to guide.

        Args:
            batch: The batch, as the user's step gets it.
            worked: Whether an earlier batch was guided: then an error is that of a single batch, which goes unguided.
            task: What the labels mean.

        Raises:
            ValueError: If no batch has worked yet, and this one cannot be used.
        """
        try:
            columns: dict[str, Any] = read_batch(batch, self.batch_adapter, task)
            if self.named is not None:
                columns = self.named.annotated(columns, rehearses=not worked)
            elif not self.needs_annotation:
                columns = {name: x for name, x in columns.items() if name not in ANNOTATIONS}
                columns = _all_evidence(columns, self.swap)
            if (self.sparse or worked) and not columns.keys() & set(ANNOTATIONS):
                return columns, _none()  # None for every sample of this batch
            self._png_masks.add(columns)
            if self._png_masks.problem:
                raise ValueError(self._png_masks.problem)
            columns = self._usable(columns, worked)
            columns["evidence"] = evidence(columns)
            guidable = guidable_samples(columns, self.needs_label)
            if not guidable.any() and not worked and not self.sparse:
                raise ValueError(
                    "no sample of the first guided batch has an annotation (all are 255, ignored) and a label; if only "
                    "some samples have one, say so with sparse=True"
                )
            if self.annotated_fraction < 1:
                guidable &= in_annotated_fraction(columns, self.annotated_fraction, self.seed).to(guidable.device)
            return columns, torch.nonzero(guidable).flatten()[: self.max_samples]
        except Exception as error:
            if not worked:
                raise
            self.failed.note("reading a batch", error)
            return {}, _none()

    def _usable(self, columns: dict[str, Any], worked: bool) -> dict[str, Any]:
        """Return the batch without the annotations of samples whose values cannot be used; name the first of them.

        Raises:
            ValueError: If no batch has worked yet.
        """
        problems = unusable(columns, Limits())
        for row, problem in problems.items():
            name = f"the sample {columns['sample_id'][row]}" if "sample_id" in columns else f"sample {row} of a batch"
            if not worked or self.failed.on_error == "raise":
                raise ValueError(f"{self.failed.callback} cannot use {name}: {problem}")
            if not self.left_out:
                give_warning(
                    f"{self.failed.callback} leaves out {name}: {problem}. This is said once; `guidance/left_out` "
                    "counts",
                )
            self.left_out += 1
        return without_annotation(columns, problems) if problems else columns


def _all_evidence(columns: dict[str, Any], swap: Swap) -> dict[str, Any]:
    """Return a batch with annotations by which all of every sample counts; what cannot be used is taken out as ever.

    Args:
        columns: The batch in the contract's form.
        swap: What is swapped.

    Raises:
        ValueError: If there are no images, or no texts, as the swap is one of these.
    """
    image = next((columns[name] for name in IMAGES if name in columns), None)
    if swap.rewrites:
        if image is not None or "input_ids" not in columns:
            raise ValueError(f"swap={swap.name!r} is one of texts, and the batch has {sorted(columns)}")
        return {**columns, "rationale": torch.where(content_tokens(columns), 1, IGNORED).to(torch.uint8)}
    if image is None:
        raise ValueError(f"swap={swap.name!r} is one of images, and the batch has {sorted(columns)}")
    mask = torch.ones((len(image), *image.shape[-2:]), dtype=torch.uint8, device=image.device)
    return {**columns, "mask": mask}


def _none() -> Tensor:
    return torch.zeros(0, dtype=torch.long)
