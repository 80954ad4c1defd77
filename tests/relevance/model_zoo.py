"""Small random models of every supported kind, with fused and explicit attention. Prints README's table of models."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

IMAGE: dict[str, Any] = {"num_classes": 5, "embed_dim": 32, "depth": 2, "num_heads": 4, "patch_size": 8}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
TEXT = {"vocab_size": 100, "max_position_embeddings": 40, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
# The options of DeBERTa-v3, in small.
DEBERTA = {
    "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 4, "share_att_key": True,
    "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0,
}  # fmt: skip
MODERNBERT = {"cls_token_id": 2, "sep_token_id": 3, "local_attention": 4}
VISION = {"vision_config": {**SIZES, "image_size": 32, "patch_size": 8}, "text_config": TEXT}
SWIN: dict[str, Any] = {"patch_size": 4, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4), "window_size": 4}


@dataclass(frozen=True)
class Kind:
    """A kind of model: how to build it, and what it reads."""

    library: str
    title: str
    build: Callable[[bool], nn.Module]  # fused attention? -> model
    size: tuple[int, int] | None = (32, 32)  # None: text
    grid: tuple[int, int] | None = (4, 4)
    attention: bool = True  # over the whole sequence; if not, in windows and stages

    def inputs(self, samples: int = 3, dtype: torch.dtype = torch.float64) -> Any:
        """Random images, or token ids of different lengths with their padding mask."""
        torch.manual_seed(1)
        if self.size is not None:
            return torch.randn(samples, 3, *self.size, dtype=torch.float64).to(dtype)
        ids = torch.randint(5, 90, (samples, 10))
        mask = (torch.arange(10) < torch.tensor([10, 7, 4] * samples)[:samples, None]).long()
        return {"input_ids": ids * mask + (1 - mask), "attention_mask": mask}


def select(inputs: Any, rows: slice | list[int]) -> Any:
    """Some samples of a batch."""
    return inputs[rows] if isinstance(inputs, Tensor) else {name: x[rows] for name, x in inputs.items()}


def randomised(model: nn.Module) -> nn.Module:
    """Random weights everywhere, layer scales, norms and biases included, so that no rule is tested at 0 or 1 only."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        norm = "norm" in name.lower() or ".ln_" in name
        centre = 1.0 if norm and name.endswith("weight") else 0.0
        parameter.data = centre + 0.15 * torch.randn(parameter.shape, generator=generator)
    return model.double().eval()


class Float64(TorchFunctionMode):
    """Libraries round norms, rotations and the softmax through float32; here they keep float64."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name in ("to", "float", "softmax") and args[0].dtype == torch.float64:
            args = tuple(torch.float64 if x is torch.float32 else x for x in args)
            kwargs = {key: torch.float64 if x is torch.float32 else x for key, x in kwargs.items()}
            if name == "float":
                return args[0]
        if name == "matmul" and torch.float64 in (args[0].dtype, args[1].dtype):
            args = tuple(x.double() for x in args)  # rotations times positions, in older versions of transformers
        return func(*args, **kwargs)


def in_float64(model: nn.Module) -> nn.Module:
    """Let the model compute in float64 throughout when it is given float64."""
    mode = Float64()
    model.register_forward_pre_hook(lambda *_: (mode.__enter__(), None)[1])
    model.register_forward_hook(lambda *_: (mode.__exit__(None, None, None), None)[1], always_call=True)
    return model


def timm_vit(fused: bool, **options: Any) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return _timm(VisionTransformer(**{"img_size": 32, **IMAGE, **options}), fused)


def timm_distilled(fused: bool) -> nn.Module:
    from timm.models.deit import VisionTransformerDistilled

    return _timm(VisionTransformerDistilled(img_size=32, **IMAGE), fused)


def timm_beit(fused: bool) -> nn.Module:
    from timm.models.beit import Beit

    return _timm(Beit(img_size=32, use_rel_pos_bias=True, init_values=0.1, **IMAGE), fused)


def timm_swin(fused: bool) -> nn.Module:
    from timm.models.swin_transformer import SwinTransformer

    return _timm(SwinTransformer(img_size=32, num_classes=5, **SWIN), fused)


def timm_hiera(fused: bool) -> nn.Module:
    from timm.models.hiera import Hiera

    sizes: dict[str, Any] = {"embed_dim": 8, "num_heads": 1, "stages": (1, 1, 1), "mask_unit_size": (4, 4)}
    return _timm(Hiera(img_size=(32, 32), num_classes=5, q_pool=1, **sizes), fused)


def timm_pvt(fused: bool) -> nn.Module:
    from timm.models.pvt_v2 import PyramidVisionTransformerV2

    sizes: dict[str, Any] = {"depths": (1, 1), "embed_dims": (8, 16), "num_heads": (1, 2), "mlp_ratios": (2, 2)}
    return _timm(PyramidVisionTransformerV2(num_classes=5, sr_ratios=(2, 1), **sizes), fused)


def timm_mvit(fused: bool) -> nn.Module:
    from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg

    strides: dict[str, Any] = {"stride_q": ((1, 1), (2, 2)), "stride_kv": ((2, 2), (1, 1))}
    config = MultiScaleVitCfg(depths=(1, 1), embed_dim=(8, 16), num_heads=(1, 2), **strides)
    return _timm(MultiScaleVit(config, img_size=(32, 32), num_classes=5), fused)


def torchvision_maxvit(fused: bool) -> nn.Module:
    from torchvision.models import MaxVit

    model = MaxVit((32, 32), 8, 2, [8, 16], [1, 1], head_dim=4, stochastic_depth_prob=0.0, num_classes=5)
    return randomised(model)


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

    config_class, model_class = getattr(transformers, family.split("For")[0] + "Config"), getattr(transformers, family)
    sizes = {} if family.startswith("Swin") else SIZES
    reads = {"image_size": 32, "patch_size": 8} if "Image" in family else TEXT
    kernel = "sdpa" if fused and model_class._supports_sdpa else "eager"
    config = config_class(**{**sizes, **reads, **options}, num_labels=5, attn_implementation=kernel)
    return in_float64(randomised(model_class(config)))


def _hugging_face(family: str, **options: Any) -> Callable[[bool], nn.Module]:
    return lambda fused: hugging_face(family, fused, **options)


def _text(title: str, family: str, **options: Any) -> Kind:
    return Kind("transformers", title, _hugging_face(family, **options), None, None)


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
    "distilbert": Kind(
        "transformers", "DistilBERT", _hugging_face("DistilBertForSequenceClassification", **DISTILBERT), None, None
    ),
    "electra": Kind("transformers", "ELECTRA", _hugging_face("ElectraForSequenceClassification"), None, None),
    "albert": _text("ALBERT", "AlbertForSequenceClassification", embedding_size=16),
    "deberta_v3": _text("DeBERTa-v3", "DebertaV2ForSequenceClassification", **DEBERTA),
    "modernbert": _text("ModernBERT", "ModernBertForSequenceClassification", **MODERNBERT),
    "modernbert_mean": _text(
        "ModernBERT, mean pooling", "ModernBertForSequenceClassification", classifier_pooling="mean", **MODERNBERT
    ),
    "gpt2": _text("GPT-2", "GPT2ForSequenceClassification"),
    "llama": _text("Llama", "LlamaForSequenceClassification", num_key_value_heads=2),
    "dinov2": Kind("transformers", "DINOv2", _hugging_face("Dinov2ForImageClassification")),
    "clip": Kind("transformers", "CLIP's image classifier", _hugging_face("CLIPForImageClassification", **VISION)),
    "siglip": Kind(
        "transformers", "SigLIP's image classifier", _hugging_face("SiglipForImageClassification", **VISION)
    ),
    "timm_swin": Kind("timm", "Swin", timm_swin, grid=(8, 8), attention=False),
    "hf_swin": Kind(
        "transformers", "Swin", _hugging_face("SwinForImageClassification", **SWIN), grid=(8, 8), attention=False
    ),
    "hiera": Kind("timm", "Hiera", timm_hiera, grid=(8, 8), attention=False),
    "pvt": Kind("timm", "PVTv2", timm_pvt, grid=(4, 4), attention=False),
    "mvit": Kind("timm", "MViTv2", timm_mvit, grid=(8, 8), attention=False),
    "maxvit": Kind("torchvision", "MaxViT", torchvision_maxvit, grid=(8, 8), attention=False),
}


POST_NORM = frozenset({"bert", "roberta", "distilbert", "electra", "albert", "deberta_v3"})
GATED = frozenset({"modernbert", "modernbert_mean", "llama"})  # their feed-forward blocks multiply two values


def missing_forms(name: str) -> set[str]:
    """The norm-based methods that do not exist for a kind's blocks."""
    missing = {"atb_norm"} if name in POST_NORM else {"attn_res_ln_norm", "atb_ff_res_ln_norm"}
    return missing | ({"atb_ff_norm", "atb_ff_res_norm"} if name in GATED else set())


def table() -> str:
    """README's table of models."""
    rows = [
        f"| {kind.library} | {kind.title} | {'image' if kind.size else 'text, with padding'} |"
        for kind in KINDS.values()
    ]
    return "\n".join(["| library | model | input |", "| --- | --- | --- |", *rows])


if __name__ == "__main__":
    print(table())
