"""Seeds and refined maps of a batch of images, by a classifier."""

import zlib
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.batch.annotations import IGNORED
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.output.outputs import read_logits
from lrptrain.segmentation.config import PseudoMaskConfig
from lrptrain.segmentation.images import ImageBatch, classes_of_labels
from lrptrain.segmentation.refinement import Refinement, refinement
from lrptrain.segmentation.seeds import multi_scale_maps
from lrptrain.segmentation.sizes import any_size


@dataclass(frozen=True)
class SeedBatch:
    """Seeds and refined maps of a batch of images.

    Only classes that some image of the batch shows have maps: a batch may show 3 of 200 classes. The maps of a class
    that an image does not show are 0.

    Attributes:
        present: Whether each image shows each class.
        classes: The classes that have maps, in rising order.
        seeds: Maps before refinement, in 0..1.
        refined: Maps after refinement, in 0..1.
        rgb: The images in 0..1, as a refinement reads them.
    """

    present: Bool[Tensor, "batch classes"]
    classes: Int[Tensor, " some"]
    seeds: Float[Tensor, "batch some height width"]
    refined: Float[Tensor, "batch some height width"]
    rgb: Float[Tensor, "batch 3 height width"]


class SeedGenerator:
    """Computes seeds and refined maps with one model.

    Args:
        model: The classifier, in evaluation mode.
        config: How seeds and masks are made.
        classes: How many classes the classifier has.

    Raises:
        ValueError: If a mask has no room for so many classes, or a refinement does not take an option.
    """

    def __init__(self, model: nn.Module, config: PseudoMaskConfig, classes: int) -> None:
        if classes >= IGNORED:
            raise ValueError(f"a mask has room for {IGNORED - 1} classes, and the model has {classes}")
        self.model = unwrap(model)
        self.config = config
        self.classes = classes
        self._refine = self._refinement()

    def _refinement(self) -> Refinement | None:
        config = self.config
        if config.refine is None:
            return None
        # Only a refinement that runs the model needs them; the others leave them unread.
        normalization = (config.mean, config.std) if config.mean is not None and config.std is not None else ()
        return refinement(config.refine, self.model, *normalization, **config.refine_options)

    def generate(self, batch: ImageBatch) -> SeedBatch:
        """Compute the seeds and refined maps of a batch.

        Raises:
            ValueError: If labels are needed and missing, or name no class of the model.
        """
        present = self.present(batch)
        classes = present.any(0).nonzero().flatten()
        # One map per pair of an image and a class that it shows: rows [0, 0, 1], columns [0, 2, 2].
        rows, columns = present[:, classes].nonzero(as_tuple=True)
        maps = multi_scale_maps(
            self.model,
            batch.images,
            rows,
            classes[columns],
            self.config.method,
            self.config.options,
            self.config.scales,
            self.config.flip,
            self.config.chunk,
        )
        seeds = maps.new_zeros(len(present), len(classes), *maps.shape[-2:])
        seeds[rows, columns] = maps
        rgb = self._rgb(batch.images)
        return SeedBatch(
            present=present, classes=classes, seeds=seeds, refined=self._refined(batch.images, rgb, seeds), rgb=rgb
        )

    def present(self, batch: ImageBatch) -> Bool[Tensor, "batch classes"]:
        """Return whether each image shows each class, by its label or by the model's prediction."""
        if self.config.present == "label":
            return classes_of_labels(batch.labels, self.classes).to(batch.images.device)
        logits = compute_logits(self.model, batch.images)
        if self.config.multi_label or self.classes == 1:
            return logits > 0
        return nn.functional.one_hot(logits.argmax(1), self.classes).bool()

    def _refined(self, images: Tensor, rgb: Tensor, seeds: Tensor) -> Tensor:
        if self._refine is None or not seeds.numel():
            return seeds
        # A refinement that runs the model gets the model's own images where mean and std are not known: they cannot
        # be normalised again.
        as_model_reads = self.config.refine == "attention_affinity" and self.config.mean is None
        with torch.no_grad():
            return self._refine(images if as_model_reads else rgb, seeds)

    def _rgb(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch 3 height width"]:
        """Undo the normalisation; without mean and std, stretch each image from its minimum to its maximum."""
        images = images.float()
        if self.config.mean is None or self.config.std is None:
            low = images.amin((1, 2, 3), keepdim=True)
            high = images.amax((1, 2, 3), keepdim=True)
            return (images - low) / (high - low).clamp(min=1e-8)
        mean, std = (images.new_tensor(values).view(3, 1, 1) for values in (self.config.mean, self.config.std))
        return (images * std + mean).clamp(0, 1)


def compute_logits(model: nn.Module, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch classes"]:
    """Return the model's logits, without a graph."""
    with torch.inference_mode(False), torch.no_grad(), any_size(model):
        # A clone, since tensors from inference mode stay inference tensors outside of it.
        return read_logits(model(images.clone()), len(images)).float()


def weights_checksum(model: nn.Module) -> str:
    """Return a CRC-32 of all weights and buffers: models with other weights have another one."""
    checksum = 0
    for tensor in unwrap(model).state_dict().values():
        if isinstance(tensor, Tensor):
            # Bytes, whatever the type: numpy has no bfloat16.
            flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            checksum = zlib.crc32(flat.numpy().tobytes(), checksum)
    return f"{checksum:08x}"
