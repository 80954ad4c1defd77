"""The published reference's numbers (see golden/README.md), and the calls that must reproduce them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from model_zoo import select
from torch import Tensor, nn

import lrptrain
from lrptrain.relevance.explanation import Explanation

ROWNORM = {"normalize_rows": True}
# Name of an expected array -> the field of Relevance, the method and its options.
CALLS: dict[str, tuple[str, str, dict]] = {
    "transformer_attribution_start0": ("scores", "transformer_attribution", {}),
    "transformer_attribution_start1": ("scores", "transformer_attribution", {"start_layer": 1}),
    "transformer_attribution_rownorm_start0": ("scores", "transformer_attribution", ROWNORM),
    "transformer_attribution_rownorm_startlast": ("scores", "transformer_attribution", ROWNORM | {"start_layer": -1}),
    "attention_relevance": ("attention", "transformer_attribution", {"keep_attention": True}),
    "full_relevance_pixels": ("input", "lrp", {"composite": "chefer"}),
    "embedding_relevance": ("input", "lrp", {"composite": "chefer"}),
    "lrp_baseline_pixels": ("input", "lrp", {"composite": "split_alpha_beta"}),
    "logits": ("logits", "rollout", {}),
    **{
        name: ("scores", name, {})
        for name in ("generic_attention", "rollout", "raw_attention", "partial_lrp", "attention_gradcam")
    },
}


@dataclass(frozen=True)
class Case:
    """One file: a model with its inputs and the expected arrays."""

    model: nn.Module
    inputs: Any
    target: Tensor
    expected: dict[str, Tensor]

    def rows(self, rows: list[int]) -> "Case":
        """Some samples of the batch."""
        return Case(self.model, select(self.inputs, rows), self.target[rows], self.expected)


def load(path: Path) -> Case:
    """Read one file; weights are computed with in float64."""
    data = np.load(path)
    arrays = {name: torch.as_tensor(data[name]) for name in data.files if name != "config"}
    state = {name[6:]: x.double() for name, x in arrays.items() if name.startswith("state/")}
    expected = {name[9:]: x for name, x in arrays.items() if name.startswith("expected/")}
    config = json.loads(str(data["config"]))
    build = _vit if path.name.startswith("vit") else _bert
    model, inputs = build(config, state, arrays)
    return Case(model.double().eval(), inputs, arrays["inputs/target"], expected)


def _vit(config: dict, state: dict, arrays: dict) -> tuple[nn.Module, Tensor]:
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(**{name: x for name, x in config.items() if not name.startswith("norm_eps")})
    model.norm.eps = 1e-5
    model.load_state_dict(state)
    return model, arrays["inputs/pixel_values"].double()


def _bert(config: dict, state: dict, arrays: dict) -> tuple[nn.Module, dict]:
    from transformers import BertConfig, BertForSequenceClassification

    options = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForSequenceClassification(BertConfig(**config | options))
    assert not model.load_state_dict(state, strict=False).unexpected_keys
    return model, {"input_ids": arrays["inputs/input_ids"]}


# The methods that divide, which the published code does with 1e-9 in every denominator.
DIVIDING = ("transformer_attribution", "lrp", "partial_lrp")


def computed(case: Case, name: str, stabiliser: float = 0.0) -> Tensor:
    """What lrptrain gives for one expected array."""
    if name in ("attention", "attention_grad"):
        recording = lrptrain.record(case.model, case.inputs)
        explanation = Explanation(recording, case.target)
        blocks = recording.attention if name == "attention" else explanation.attention_gradient(recording.blocks)
        return torch.stack(blocks, 1).detach()
    field, method, options = CALLS[name]
    options = options | {"stabiliser": stabiliser} if method in DIVIDING else options
    found = getattr(lrptrain.attribute(case.model, case.inputs, case.target, method, **options), field)
    return torch.stack(found, 1) if field == "attention" else found


def relative_error(found: Tensor | None, expected: Tensor | None) -> Tensor:
    """Relative L2 error of every sample; the absolute one where 0 is expected."""
    assert found is not None
    assert expected is not None
    found, expected = found.detach().double().flatten(1), expected.double().flatten(1)
    size = expected.norm(dim=1)
    return (found - expected).norm(dim=1) / torch.where(size > 0, size, 1.0)
