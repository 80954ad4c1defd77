"""How far outputs and maps change with the seed of the training (Wiegreffe & Pinter 2019, section 3.3)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lrptrain.auditing.attention import content_of_map
from lrptrain.auditing.base import AuditTest, register, setting
from lrptrain.auditing.context import AuditContext, correct_predictions
from lrptrain.auditing.distances import as_distribution, jensen_shannon, total_variation
from lrptrain.auditing.result import AuditResult
from lrptrain.auditing.store import Values, to_list
from lrptrain.batch import model_inputs
from lrptrain.batch.logits import class_probabilities
from lrptrain.relevance import record


@register
@dataclass(frozen=True)
class SeedsTest(AuditTest):
    """Train the model anew from other seeds, and compare outputs and maps."""

    name = "seeds"
    title = "other seeds"
    order = 100
    needs_retraining = True
    context_settings = ("methods",)
    unit_settings = ("seeds",)

    seeds: int = setting(8, "How many models are trained anew, each from another seed.")

    def units(self, context: AuditContext) -> Sequence[str]:
        """Return the numbers of the models, from 1 on."""
        return [str(number) for number in range(1, self.seeds + 1)]

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return what another seed changes.

        `right`: 1 or 0 per labelled sample, whether the other model is right. `tvd`: total variation distance of the
        outputs, per sample. `jsd`: divergence of the maps, per method and sample.
        """
        assert context.retrain is not None
        # From seed + 1 on: the model itself may have been trained from the audit's seed.
        other = context.retrain(context.seed + int(unit)).to(context.logits.device).eval()
        methods = context.supported_methods()
        logits = []
        jsd: dict[str, list[Tensor]] = {method: [] for method in methods}
        for index, batch in enumerate(context.batches):
            recording = record(other, model_inputs(other, batch.batch))  # one forward pass for the maps of all methods
            logits.append(recording.logits)
            for method in methods:
                other_scores = recording.attribute(batch.target, method).scores.detach()
                usable = content_of_map(batch.inputs, other_scores.shape[1])
                map_ = as_distribution(context.maps(method)[index].scores, usable)
                jsd[method].append(jensen_shannon(map_, as_distribution(other_scores, usable)))
        other_logits = torch.cat(logits)
        tvd = total_variation(
            class_probabilities(context.logits, dtype=None), class_probabilities(other_logits, dtype=None)
        )
        return {
            "right": correct_predictions(other_logits, context.label),
            "tvd": to_list(tvd),
            "jsd": {method: to_list(torch.cat(parts)) for method, parts in jsd.items()},
        }

    def sentences(self, result: AuditResult) -> Iterator[str]:
        """Say how far outputs and maps of other seeds are from the model's."""
        models = [each.values for each in result.measured_units(self.name)]
        if not models:
            return
        tvd = np.mean([np.mean(values["tvd"]) for values in models])
        jsd = {method: np.mean([np.nanmean(values["jsd"][method]) for values in models]) for method in models[0]["jsd"]}
        listed = ", ".join(f"{method} {value:.2f}" for method, value in jsd.items())
        yield (
            f"Models trained from other seeds ({len(models)}): their outputs differ by a mean TVD of {tvd:.2f}, their "
            f"maps by a mean JSD of: {listed}."
        )
