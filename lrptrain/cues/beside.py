"""What lies next to the evidence: a shadow, a caption, a hand that holds it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn import functional as F

from lrptrain.cues.boxes import Box, bounding_box, origins
from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.cues.images import Where, image_of, mask_in, pasted, pixels_of, without_evidence
from lrptrain.cues.painting import dilate
from lrptrain.cues.places import BORDER


@dataclass(frozen=True)
class Beside(Cue):
    """What lies around the evidence, as far as the border is wide.

    A place is the same in all images, and this is the same around all things: the source's image is moved and stretched
    until the box around its evidence is the sample's.
    """

    kind: ClassVar[str] = "beside"
    name: str = "what lies next to the annotated object"
    role: Role = "shortcut"
    where: ClassVar[Where] = "outside"

    def locate(self, batch: Batch) -> Bool[Tensor, "batch height width"]:
        """Return its pixels; none without evidence."""
        _, images = image_of(batch)
        reach = round(BORDER * min(images.shape[2:]))
        return dilate(mask_in(batch) == 1, reach) & pixels_of("outside", batch)

    def exchange(self, batch: Batch, sources: Batch) -> dict[str, Any]:
        """See `Cue`; a sample without evidence, or with a source without, stays as it is."""
        given = without_evidence(sources)
        boxes = [[bounding_box(each) for each in mask_in(side) == 1] for side in (sources, batch)]
        has_both = [all(pair) for pair in zip(*boxes, strict=True)]
        size = (given.shape[2], given.shape[3])
        before, after = ([box or Box(0, 0, *size) for box in side] for side in boxes)
        wide = given.to(torch.promote_types(given.dtype, torch.float32))  # 16 bits would be off by pixels
        grid = origins(before, after, size).to(wide)
        put = F.grid_sample(wide, grid, mode="bilinear", padding_mode="border", align_corners=False)
        return pasted(batch, put, self.locate(batch) & torch.tensor(has_both, device=given.device)[:, None, None])
