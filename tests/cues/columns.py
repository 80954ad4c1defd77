"""A cue of rows of numbers, for models whose weights are set by hand."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from lrptrain.cues.cue import Cue, Role


@dataclass(frozen=True)
class Columns(Cue):
    """Some columns of a row of numbers."""

    kind: ClassVar[str] = "columns"
    name: str
    columns: tuple[int, ...]
    role: Role = "unreviewed"
    parts: tuple["Columns", ...] = ()
    is_everywhere: bool = False

    def exchange(self, batch, sources) -> dict[str, Any]:
        image = batch["image"].clone()
        image[:, 0, 0, list(self.columns)] = sources["image"][:, 0, 0, list(self.columns)]
        return {**batch, "image": image}

    def locate(self, batch):
        inside = torch.zeros_like(batch["image"][:, 0], dtype=torch.bool)
        inside[:, 0, list(self.columns)] = True
        return None if self.is_everywhere else inside

    def children(self):
        return self.parts
