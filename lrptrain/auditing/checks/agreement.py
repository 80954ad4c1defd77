"""Whether methods agree with one another: if they do not, they cannot all be right."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lrptrain.auditing.base import AuditTest, register
from lrptrain.auditing.context import AuditContext, content_of_map
from lrptrain.auditing.plots import saved_plot
from lrptrain.auditing.result import AuditResult
from lrptrain.auditing.store import Values, to_list
from lrptrain.metrics import rank_correlation


@register
class AgreementTest(AuditTest):
    """Correlate the maps of all pairs of methods."""

    name = "agreement"
    order = 60
    settings = ("methods",)

    def obstacle(self, context: AuditContext) -> str:
        """Refuse a single method."""
        return "" if len(context.methods) > 1 else "a single method has no other one to agree with"

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return `matrix`, the mean rank correlation between the maps of `methods`.

        Methods that cannot explain the model are left out.
        """
        methods = context.supported_methods()
        correlations = []
        for index, batch in enumerate(context.batches):
            maps = {method: context.maps(method)[index].scores for method in methods}
            tokens = next(iter(maps.values())).shape[1]
            correlations.append(agreement(maps, content_of_map(batch.inputs, tokens)))
        matrix = torch.cat(correlations, -1).nanmean(-1)  # [methods, methods, samples] -> [methods, methods]
        return {"methods": methods, "matrix": [to_list(row) for row in matrix]}

    def plot(self, result: AuditResult, folder: Path) -> None:
        """Save `agreement.png`, the matrix as a heat map."""
        values = result.values(self.name)
        if values:
            plot_matrix(folder / "agreement.png", values["methods"], np.array(values["matrix"]))


def agreement(
    maps: Mapping[str, Float[Tensor, "batch tokens"]], usable: Bool[Tensor, "batch tokens"]
) -> Float[Tensor, "methods methods batch"]:
    """Return Spearman's rank correlation between the maps of all pairs of methods, per sample.

    Maps are compared as they are: signed ones with their sign.
    """
    scores = torch.stack([values.detach().float() for values in maps.values()])
    methods, samples, tokens = scores.shape
    pairs = (methods, methods, samples, tokens)
    # All pairs as rows of one batch: [methods, methods, samples, tokens] -> [pairs * samples, tokens].
    first = scores[:, None].expand(pairs).reshape(-1, tokens)
    second = scores[None].expand(pairs).reshape(-1, tokens)
    return rank_correlation(first, second, usable.expand(pairs).reshape(-1, tokens)).view(pairs[:3])


def plot_matrix(path: Path, names: list[str], matrix: Float[np.ndarray, "methods methods"]) -> None:
    """Save mean rank correlations between methods as a heat map."""
    side = 1.8 + 0.42 * len(names)
    with saved_plot(path, "Do the methods agree?", side + 1.0, side, grid=False) as (figure, axes):
        image = axes.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu")
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        for row, values in enumerate(matrix):
            for column, value in enumerate(values):
                text = f"{round(value, 1) + 0.0:.1f}"  # + 0.0: no minus before a zero
                colour = "white" if abs(value) > 0.6 else "black"
                axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
        figure.colorbar(image, label="rank correlation", shrink=0.8)
