"""Small random models of every supported kind, with fused and explicit attention. Prints README's table of models."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

IMAGE: dict[str, Any] = {"num_classes": 5, "embed_dim": 32, "depth": 2, "num_heads": 4, "patch_size": 8}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


@dataclass(frozen=True)
class Kind:
    """A kind of model: how to build it, and what it reads."""

    library: str
    title: str
    build: Callable[[bool], nn.Module]  # fused attention? -> model
    size: tuple[int, int] | None = (32, 32)  # None: text
    grid: tuple[int, int] | None = (4, 4)

    def inputs(self, samples: int = 3, dtype: torch.dtype = torch.float64) -> Any:
        """Random images, or token ids of different lengths with their padding mask."""
        torch.manual_seed(1)
        if self.size is not None:
            return torch.randn(samples, 3, *self.size, dtype=torch.float64).to(dtype)
        ids = torch.randint(5, 90, (samples, 10))
        mask = (torch.arange(10) < torch.tensor([10, 7, 4] * samples)[:samples, None]).long()
        return {"input_ids": ids * mask + (1 - mask), "attention_mask": mask}


def select(inputs: Any, rows: slice) -> Any:
    """Some samples of a batch."""
    return inputs[rows] if isinstance(inputs, Tensor) else {name: x[rows] for name, x in inputs.items()}


def randomised(model: nn.Module) -> nn.Module:
    """Random weights everywhere, layer scales, norms and biases included, so that no rule is tested at 0 or 1 only."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        centre = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        parameter.data = centre + 0.15 * torch.randn(parameter.shape, generator=generator)
    return model.double().eval()


def timm_vit(fused: bool, **options: Any) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return _timm(VisionTransformer(**{"img_size": 32, **IMAGE, **options}), fused)


def timm_distilled(fused: bool) -> nn.Module:
    from timm.models.deit import VisionTransformerDistilled

    return _timm(VisionTransformerDistilled(img_size=32, **IMAGE), fused)


def timm_beit(fused: bool) -> nn.Module:
    from timm.models.beit import Beit

    return _timm(Beit(img_size=32, use_rel_pos_bias=True, init_values=0.1, **IMAGE), fused)


def _timm(model: Any, fused: bool) -> nn.Module:
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = fused
    return randomised(model)


def torchvision_vit(fused: bool) -> nn.Module:
    from torchvision.models import VisionTransformer

    model = VisionTransformer(32, 8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=48, num_classes=5)
    if not fused:
        for module in model.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.register_forward_pre_hook(_with_weights, with_kwargs=True)
    return randomised(model)


def _with_weights(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    return args, {**kwargs, "need_weights": True}


def hugging_face(family: str, fused: bool, **options: Any) -> nn.Module:
    import transformers

    text = "Image" not in family
    config_class = getattr(transformers, family.split("For")[0] + "Config")
    sizes = (
        {"vocab_size": 100, "max_position_embeddings": 40, "pad_token_id": 1}
        if text
        else {"image_size": 32, "patch_size": 8}
    )
    if family.startswith("DistilBert"):
        sizes |= {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
    else:
        sizes |= SIZES
    config = config_class(**sizes, **options, num_labels=5, attn_implementation="sdpa" if fused else "eager")
    return randomised(getattr(transformers, family)(config))


def _hugging_face(family: str, **options: Any) -> Callable[[bool], nn.Module]:
    return lambda fused: hugging_face(family, fused, **options)


KINDS = {
    "vit": Kind("timm", "ViT, class token", timm_vit),
    "vit_distilled": Kind("timm", "DeiT, class and distillation token", timm_distilled),
    "vit_registers": Kind("timm", "ViT, register tokens", lambda fused: timm_vit(fused, reg_tokens=3)),
    "vit_mean": Kind("timm", "ViT, mean pooling", lambda fused: timm_vit(fused, global_pool="avg", class_token=False)),
    "vit_wide": Kind(
        "timm", "ViT, non-square image", lambda fused: timm_vit(fused, img_size=(32, 48)), (32, 48), (4, 6)
    ),
    "beit": Kind("timm", "BEiT, relative position bias", timm_beit),
    "torchvision_vit": Kind("torchvision", "VisionTransformer", torchvision_vit),
    "hf_vit": Kind("transformers", "ViT", _hugging_face("ViTForImageClassification")),
    "bert": Kind("transformers", "BERT", _hugging_face("BertForSequenceClassification"), None, None),
    "roberta": Kind("transformers", "RoBERTa", _hugging_face("RobertaForSequenceClassification"), None, None),
    "distilbert": Kind("transformers", "DistilBERT", _hugging_face("DistilBertForSequenceClassification"), None, None),
    "electra": Kind("transformers", "ELECTRA", _hugging_face("ElectraForSequenceClassification"), None, None),
}


def table() -> str:
    """README's table of models."""
    rows = [
        f"| {kind.library} | {kind.title} | {'image' if kind.size else 'text, with padding'} |"
        for kind in KINDS.values()
    ]
    return "\n".join(["| library | model | input |", "| --- | --- | --- |", *rows])


if __name__ == "__main__":
    print(table())
