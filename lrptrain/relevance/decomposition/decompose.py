"""What every transformer block mixes: norms of the tokens' contributions to one another, and mixing ratios."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.relevance.attribute import record
from lrptrain.relevance.decomposition.blocks import FORMS, Block, transformer_blocks
from lrptrain.relevance.decomposition.contributions import Contributions
from lrptrain.relevance.passes.recording import Inputs
from lrptrain.relevance.types import TokenLayout, UnsupportedMethodError, unknown_name


@dataclass(frozen=True)
class Decomposition:
    """Every block's contributions of tokens to tokens.

    Attributes:
        norms: Per form and block: row i receives, column j gives; 0 at padding.
        mixing_ratios: Per form and block: what share of a token's new state comes from other tokens, 0 to 1
            (Kobayashi et al. 2021); 0 at padding.
        logits: The model's output of the same forward pass.
    """

    norms: Mapping[str, Float[Tensor, "blocks batch length length"]]
    mixing_ratios: Mapping[str, Float[Tensor, "blocks batch length"]]
    logits: Float[Tensor, "batch classes"]


def decompose(
    model: nn.Module, inputs: Inputs, form: str | None = None, *, layout: TokenLayout | None = None
) -> Decomposition:
    """Decompose every block's new token states into what each token contributes (Kobayashi et al. 2020, 2021, 2024).

    The tokens are those that the attention sees, class token and other special ones included.

    Examples:
        >>> import timm, torch, lrptrain
        >>> network = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
        >>> model = timm.models.VisionTransformer(**network, num_classes=2).eval()
        >>> norms = lrptrain.decompose(model, torch.rand(1, 3, 16, 16), "attention_norm").norms
        >>> norms["attention_norm"][0].shape  # the class token and four patches
        torch.Size([1, 5, 5])

    Args:
        model: As for `lrptrain.attribute`.
        inputs: As for `lrptrain.attribute`.
        form: How far the parts are followed, or None for all forms that the model has:
            "atb": "attn_res_ln_norm" or "atb_norm", whichever the model has;
            "attention_norm": the attention's output, || sum_h alpha_ij f^h(x_j) ||;
            "attn_res_ln_norm" (post-LN) or "atb_norm" (pre-LN): with the residual, and its norm;
            "atb_ff_norm": then through the feed-forward block, by integrated gradients with baseline 0;
            "atb_ff_res_norm": with the residual around it;
            "atb_ff_res_ln_norm" (post-LN): and its norm, the block's output.
        layout: As for `lrptrain.attribute`.

    Raises:
        UnsupportedMethodError: If the form is unknown, or does not exist for this model.
        UnsupportedModelError: If the model has no attention, or returns no logits.
    """
    if form not in (None, "atb", *FORMS):
        raise UnsupportedMethodError(unknown_name("form", form, ("atb", *FORMS)))
    recording = record(model, inputs, layout=layout)
    norms: dict[str, list[Tensor]] = {}
    ratios: dict[str, list[Tensor]] = {}
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(recording.logits.device.type, enabled=False):
        blocks = transformer_blocks(recording)
        forms = _forms(form, blocks)
        for block in blocks:
            sites = [block.site(name) for name in forms]
            contributions = Contributions(recording, block)
            results = zip(forms, contributions.norms(sites), contributions.mixing_ratios(sites), strict=True)
            for name, norm, ratio in results:
                norms.setdefault(name, []).append(norm)
                ratios.setdefault(name, []).append(ratio)
        content = torch.ones_like(ratio) if recording.padding is None else recording.padding.to(ratio.dtype)
    return Decomposition(
        {name: torch.stack(maps) * content[:, :, None] * content[:, None] for name, maps in norms.items()},
        {name: torch.stack(rows) * content for name, rows in ratios.items()},
        recording.logits,
    )


def _forms(form: str | None, blocks: Sequence[Block]) -> list[str]:
    """Those asked for that every block has; the first one if there is none, whose error then says why."""
    requested = FORMS if form is None else ("attn_res_ln_norm", "atb_norm") if form == "atb" else (form,)
    return [name for name in requested if all(name in block.sites for block in blocks)] or [requested[0]]
