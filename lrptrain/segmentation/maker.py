"""Seeds and refined maps of a batch, by a classifier and a recipe."""

import zlib
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.batch.annotations import IGNORED
from lrptrain.relevance.preserve import unwrap
from lrptrain.relevance.recording import read_logits
from lrptrain.segmentation.reading import Pictures, labelled
from lrptrain.segmentation.recipe import Recipe
from lrptrain.segmentation.refinement import Refinement, refinement
from lrptrain.segmentation.seeds import class_maps
from lrptrain.segmentation.sizes import any_size


@dataclass(frozen=True)
class Made:
    """What is made of a batch of images.

    Attributes:
        present: Which classes the images show.
        classes: Which of them have maps: those that any image shows.
        seeds: Before refinement, in 0..1.
        maps: After it.
        images: In 0..1.
    """

    present: Bool[Tensor, "batch classes"]
    classes: Int[Tensor, " some"]
    seeds: Float[Tensor, "batch some height width"]
    maps: Float[Tensor, "batch some height width"]
    images: Float[Tensor, "batch 3 height width"]


class Maker:
    """Makes seeds and refined maps by a recipe, of one model.

    Args:
        model: The classifier, in evaluation mode.
        recipe: How.
        classes: How many it knows.

    Raises:
        ValueError: If a mask has no room for so many classes, or a refinement does not take an option.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, classes: int) -> None:
        if classes >= IGNORED:
            raise ValueError(f"a mask has room for {IGNORED - 1} classes, and the model has {classes}")
        self.model, self.recipe, self.classes = unwrap(model), recipe, classes
        self._refine = self._refinement()

    def _refinement(self) -> Refinement | None:
        recipe = self.recipe
        if recipe.refine is None:
            return None
        looks = (recipe.mean, recipe.std) if recipe.mean is not None and recipe.std is not None else ()
        return refinement(recipe.refine, self.model, *looks, **recipe.refine_options)

    def make(self, pictures: Pictures) -> Made:
        """Seeds and refined maps of a batch.

        Raises:
            ValueError: If labels are needed and missing, or are no classes of the model.
        """
        present = self.present(pictures)
        classes = present.any(0).nonzero().flatten()
        rows, columns = present[:, classes].nonzero(as_tuple=True)
        how = self.recipe
        found = class_maps(
            self.model,
            pictures.images,
            rows,
            classes[columns],
            how.method,
            how.options,
            how.scales,
            how.flip,
            how.chunk,
        )
        seeds = found.new_zeros(len(present), len(classes), *found.shape[-2:])
        seeds[rows, columns] = found
        images = self._looks(pictures.images)
        return Made(present, classes, seeds, self._refined(pictures.images, images, seeds), images)

    def present(self, pictures: Pictures) -> Bool[Tensor, "batch classes"]:
        """Which classes the images show."""
        if self.recipe.present == "label":
            return labelled(pictures.shown, self.classes).to(pictures.images.device)
        logits = logits_of(self.model, pictures.images)
        if self.recipe.multi_label:
            return logits > 0
        return nn.functional.one_hot(logits.argmax(1), self.classes).bool()

    def _refined(self, given: Tensor, images: Tensor, seeds: Tensor) -> Tensor:
        if self._refine is None or not seeds.numel():
            return seeds
        # Without mean and std the model's own images are all that it can be given.
        of_model = self.recipe.refine == "attention_affinity" and self.recipe.mean is None
        with torch.no_grad():
            return self._refine(given if of_model else images, seeds)

    def _looks(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch 3 height width"]:
        images = images.float()
        if self.recipe.mean is None or self.recipe.std is None:
            low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
            return (images - low) / (high - low).clamp(min=1e-8)
        mean, std = (images.new_tensor(values).view(3, 1, 1) for values in (self.recipe.mean, self.recipe.std))
        return (images * std + mean).clamp(0, 1)


def logits_of(model: nn.Module, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch classes"]:
    """The model's answer, without a graph."""
    with torch.inference_mode(False), torch.no_grad(), any_size(model):
        return read_logits(model(images.clone()), len(images)).float()


def weights_key(model: nn.Module) -> str:
    """Tells models of other weights apart."""
    found = 0
    for tensor in unwrap(model).state_dict().values():
        if isinstance(tensor, Tensor):
            flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            found = zlib.crc32(flat.numpy().tobytes(), found)
    return f"{found:08x}"
