"""The same maps by other libraries, where they are installed: `pip install grad-cam zennit lxt`."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn

Inputs = torch.Tensor | dict[str, torch.Tensor]


def _logits(model: nn.Module) -> Callable[..., torch.Tensor]:
    return lambda *args: getattr(found := model(*args), "logits", found)


def _start(model: nn.Module, inputs: Inputs) -> tuple[Any, tuple, Callable[..., torch.Tensor]]:
    """What captum differentiates: pixels, or the word embeddings of a text."""
    if isinstance(inputs, torch.Tensor):
        return inputs.clone().requires_grad_(), (), _logits(model)
    embeddings = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()  # type: ignore[operator]

    def forward(given: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return model(inputs_embeds=given, attention_mask=mask).logits

    return embeddings, (inputs["attention_mask"],), forward


def captum_input_x_gradient(model: nn.Module, inputs: Inputs) -> None:
    from captum.attr import InputXGradient

    x, more, forward = _start(model, inputs)
    InputXGradient(forward).attribute(x, target=0, additional_forward_args=more)


def captum_integrated_gradients(model: nn.Module, inputs: Inputs) -> None:
    from captum.attr import IntegratedGradients

    x, more, forward = _start(model, inputs)
    options = {"target": 0, "additional_forward_args": more, "n_steps": 32, "internal_batch_size": max(16, len(x))}
    IntegratedGradients(forward).attribute(x, **options)


def captum_smoothgrad(model: nn.Module, inputs: Inputs) -> None:
    from captum.attr import NoiseTunnel, Saliency

    x, more, forward = _start(model, inputs)
    tunnel = NoiseTunnel(Saliency(forward))
    tunnel.attribute(x, nt_samples=16, nt_samples_batch_size=2, target=0, additional_forward_args=more)


def captum_lrp(model: nn.Module, inputs: Inputs) -> None:
    from captum.attr import LRP

    x, more, _ = _start(model, inputs)
    LRP(model).attribute(x, target=0, additional_forward_args=more)


def grad_cam(model: nn.Module, inputs: Inputs) -> None:
    from pytorch_grad_cam import GradCAM
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    assert isinstance(inputs, torch.Tensor), "pytorch-grad-cam reads images"
    layer = model.blocks[-1].norm1  # type: ignore[union-attr, index]
    rows, columns = model.patch_embed.grid_size  # type: ignore[union-attr, misc]
    first = model.num_prefix_tokens  # the class token, and registers

    def as_map(states: torch.Tensor) -> torch.Tensor:
        return states[:, first:].mT.unflatten(2, (rows, columns))

    with GradCAM(model, [layer], reshape_transform=as_map) as cam:
        cam(inputs, [ClassifierOutputTarget(0)] * len(inputs))


def zennit_epsilon_plus(model: nn.Module, inputs: Inputs) -> None:
    from zennit.attribution import Gradient
    from zennit.composites import EpsilonPlus

    x, _, _ = _start(model, inputs)
    assert isinstance(inputs, torch.Tensor), "zennit's attributor passes one tensor"
    with Gradient(model, EpsilonPlus()) as attributor:
        attributor(x, lambda output: torch.nn.functional.one_hot(torch.zeros(len(x)).long(), output.shape[1]).float())


@cache
def lxt_bert(model: nn.Module) -> nn.Module:
    """The same weights in LXT's BERT, whose file is of transformers 4: what it takes from there is put back."""
    import transformers
    from transformers import pytorch_utils, utils

    assert type(model).__name__ == "BertForSequenceClassification", "LXT is asked for BERT only"
    for name in ("find_pruneable_heads_and_indices", "prune_linear_layer"):
        vars(pytorch_utils).setdefault(name, None)
    for name in ("add_code_sample_docstrings", "add_start_docstrings", "add_start_docstrings_to_model_forward"):
        setattr(utils, name, lambda *_, **__: lambda function: function)
    utils.replace_return_docstrings = lambda *_, **__: lambda function: function
    from lxt.efficient import monkey_patch
    from lxt.efficient.models import bert

    def extended(self: Any, mask: torch.Tensor, *_: Any) -> torch.Tensor:
        return (1 - mask[:, None, None].to(self.dtype)) * torch.finfo(self.dtype).min

    bert.BertModel.get_extended_attention_mask = extended
    bert.BertModel.get_head_mask = lambda self, mask, blocks, *_: [None] * blocks
    config = transformers.BertConfig(**model.config.to_dict() | {"attn_implementation": "eager"})  # type: ignore[operator, union-attr]
    transformers.BertConfig.position_embedding_type = "absolute"  # type: ignore[attr-defined]
    weight = next(model.parameters())
    found: nn.Module = bert.BertForSequenceClassification(config).to(weight.device, weight.dtype).eval()
    found.load_state_dict(model.state_dict())
    monkey_patch(transformers.models.bert.modeling_bert)
    return found


def lxt_attnlrp(model: nn.Module, inputs: Inputs) -> None:
    x, (mask,), forward = _start(lxt_bert(model), inputs)
    forward(x, mask)[:, 0].sum().backward()


PEERS: dict[str, Callable[[nn.Module, Inputs], None]] = {
    "captum InputXGradient": captum_input_x_gradient,
    "captum IntegratedGradients, 32 steps": captum_integrated_gradients,
    "captum NoiseTunnel(Saliency), 16 samples": captum_smoothgrad,
    "captum LRP": captum_lrp,
    "pytorch-grad-cam GradCAM": grad_cam,
    "zennit EpsilonPlus": zennit_epsilon_plus,
    "LXT AttnLRP": lxt_attnlrp,
}


def run_peer(name: str, model: nn.Module, inputs: Inputs) -> None:
    """One map of another library, its warnings aside."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PEERS[name](model, inputs)
    model.zero_grad(set_to_none=True)
    if name.startswith("LXT"):
        lxt_bert(model).zero_grad(set_to_none=True)
