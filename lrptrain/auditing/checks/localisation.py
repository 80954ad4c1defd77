"""How much of a map lies on the annotated evidence."""

import torch
from torch import Tensor

from lrptrain.auditing.base import AuditTest, Column, register
from lrptrain.auditing.context import AuditBatch, AuditContext
from lrptrain.auditing.store import Values, to_list
from lrptrain.batch import token_annotations
from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.metrics import energy_pointing_game, localization_auprc, pointing_game
from lrptrain.relevance import Relevance

METRICS = {"epg": energy_pointing_game, "auprc": localization_auprc, "pointing_game": pointing_game}


@register
class LocalisationTest(AuditTest):
    """Compare maps with masks, boxes or rationales; no verdict rests on it.

    Where the model itself looks beside the annotation, a faithful map scores low.
    """

    name = "localisation"
    order = 50
    columns = (
        Column("EPG", values="epg", higher_is_better=True, chance="chance"),
        Column("AUPRC", values="auprc", higher_is_better=True),
        Column("pointing game", values="pointing_game", higher_is_better=True),
    )

    def obstacle(self, context: AuditContext) -> str:
        """Refuse samples without annotations."""
        annotated = any(name in batch.batch for batch in context.batches for name in ANNOTATIONS)
        return "" if annotated else "no sample has a mask, boxes or a rationale"

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return `epg` and its level by `chance`, `auprc` and `pointing_game`, per sample; nan without annotation."""
        parts = [_scores(*pair) for pair in zip(context.batches, context.maps(unit), strict=True)]
        return {name: to_list(torch.cat([part[name] for part in parts])) for name in parts[0]}


def _scores(batch: AuditBatch, relevance: Relevance) -> dict[str, Tensor]:
    mask = batch.batch.get("mask")
    # Of several regions `[batch, regions, height, width]` the first is the evidence; their names do not matter here.
    regions = tuple(map(str, range(mask.shape[1]))) if mask is not None and mask.ndim == 4 else ()
    evidence, _ = token_annotations(batch.batch, relevance.image_grid, regions)
    if evidence is None:
        return {name: torch.full((len(batch.label),), torch.nan) for name in (*METRICS, "chance")}
    found = {name: metric(relevance.scores, evidence) for name, metric in METRICS.items()}
    chance = energy_pointing_game(torch.ones_like(relevance.scores), evidence)
    return {**found, "chance": chance.masked_fill(found["epg"].isnan(), torch.nan)}
