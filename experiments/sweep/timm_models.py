"""Every structure of timm's models with attention; depth, width and image are small where the constructor allows."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import nn

from experiments.sweep.case import SAMPLES, Case, Subject, randomised

CLASSES = 3
# The modules of timm whose classifiers attend from token to token (or, in XCiT and EdgeNeXt, from channel to channel).
MODULES = (
    "beit", "byoanet", "cait", "coat", "convit", "cpubone", "crossvit", "csatv2", "davit", "deepseek_vit", "deit",
    "edgenext", "efficientformer", "efficientformer_v2", "efficientvim", "efficientvit_mit", "efficientvit_msra",
    "eva", "fastvit", "focalnet", "gcvit", "gemma4_vit", "hiera", "hieradet_sam2", "iformer", "levit", "lowformer",
    "maxxvit", "metaformer", "mobilenetv5", "mobilevit", "mvitv2", "naflexvit", "nest", "nextvit", "pit", "pvt_v2",
    "qwen3_vit", "repvit", "sequencer", "shvit", "swiftformer", "swin_transformer", "swin_transformer_v2",
    "swin_transformer_v2_cr", "tiny_vit", "tnt", "twins", "visformer", "vision_transformer",
    "vision_transformer_hybrid", "vision_transformer_relpos", "vision_transformer_sam", "vitamin", "volo", "xcit",
)  # fmt: skip
# Arguments that are sizes: models that differ in these alone are one structure.
SIZES = frozenset({
    "embed_dim", "embed_dims", "depth", "depths", "num_heads", "img_size", "patch_size", "init_values", "layers",
    "dims", "drop_path_rate", "mlp_ratio", "layer_scale", "ref_feat_shape", "eta", "inner_dim", "num_heads_outer",
    "base_dims", "heads", "width_list", "depth_list", "widths", "head_widths", "key_dim", "state_dim",
    "layer_scale_init_value", "mlp_ratios", "partial_dim", "serial_depths", "img_scale", "head_dim",
    "intermediate_size", "out_features", "stride", "hidden_sizes", "window_size", "window_sizes", "block_args",
    "pos_embs", "norm_layers", "attn_groups", "layer_scale_init_values", "res_scale_init_values", "num_vit",
    "stages", "window_spec", "global_att_blocks", "global_attn_indexes", "kernels", "state", "mlp_layers",
    "sr_ratios", "pos_embed_type", "cfg", "backbone", "embed_layer",
})  # fmt: skip
SIZE_WORDS = frozenset({
    "pico", "nano", "tiny", "small", "base", "large", "xlarge", "huge", "femto", "atto", "xs", "xxs", "s", "m", "l",
    "xl",
})  # fmt: skip
IMAGES = (64, 56, 96, 128, 192, 224, 240, 256)
# Blocks per stage that are tried, fewest first; some models count theirs in fives. At last, as many as there are.
BLOCKS = (2, 5, None)
# What may be smaller than a constructor's or a configuration's own default.
SHRUNK = frozenset({"depth", "embed_dim", "num_heads", "num_kv_heads", "local_up_to_layer"})
# The first of a model's widths from which on all are halved.
WIDE = 48


class _CapturedCallError(Exception):
    def __init__(self, model_class: Any, variant: str, kwargs: Mapping[str, Any]) -> None:
        super().__init__(variant)
        self.model_class = model_class
        self.kwargs = kwargs


def _capture(model_class: Any, variant: str, *args: Any, **kwargs: Any) -> nn.Module:
    raise _CapturedCallError(model_class, variant, kwargs)


def _build_small(build: Any, blocks: int, model_class: Any, variant: str, *args: Any, **kwargs: Any) -> nn.Module:
    return build(model_class, variant, *args, **smaller(model_class, kwargs, blocks))


@contextmanager
def _building_with(module: str, build: Any) -> Iterator[None]:
    """Let a module of timm call something else to build its models."""
    holder = import_module(f"timm.models.{module}")
    names = [name for name in ("build_model_with_cfg",) if hasattr(holder, name)]
    kept = {name: getattr(holder, name) for name in names}
    try:
        for name in names:
            setattr(holder, name, build)
        yield
    finally:
        for name, value in kept.items():
            setattr(holder, name, value)


def structures() -> dict[str, dict[str, list[str]]]:
    """By module, the names of the models of each structure, in timm's order."""
    import timm
    from timm.models import is_model_in_modules, model_entrypoint

    found: dict[str, dict[str, list[str]]] = {}
    for module in MODULES:
        groups: dict[str, list[str]] = defaultdict(list)
        for name in timm.list_models(module=module):
            if is_model_in_modules(name, [module]):
                with _building_with(module, _capture):
                    try:
                        model_entrypoint(name)()
                    except _CapturedCallError as call:
                        groups[_structure(module, name, call)].append(name)
        found[module] = groups
    return found


def _structure(module: str, name: str, call: _CapturedCallError) -> str:
    if (
        "cfg" in call.kwargs
        or call.kwargs.get("model_cfg") is not None
        or module in ("maxxvit", "byoanet", "mobilevit")
    ):
        return _without_size(name)
    flags = {key: value for key, value in call.kwargs.items() if key not in SIZES and not key.startswith("pretrained")}
    prefix = (
        name.split("_")[0].rstrip("0123456789")
        if module in ("pit", "metaformer", "levit", "xcit", "hieradet_sam2")
        else ""
    )
    return f"{prefix} {call.model_class} {sorted((key, _named(value)) for key, value in flags.items())}"


def _without_size(name: str) -> str:
    words = [word for word in name.split("_") if word not in SIZE_WORDS and not word.isdigit()]
    return "_".join(words)


def _named(value: Any) -> str:
    if isinstance(value, partial):
        return f"{_named(value.func)} {sorted((key, _named(x)) for key, x in value.keywords.items())}"
    return getattr(value, "__name__", None) or str(value)


def cases() -> Iterator[Case]:
    """One model per structure: the first by name that is not large."""
    for module, groups in structures().items():
        for names in groups.values():
            name = min(names, key=_weight)
            yield Case("timm", module, name, "image", partial(subject, module, name))


def _weight(name: str) -> int:
    order = (
        "test",
        "atto",
        "femto",
        "pico",
        "nano",
        "_xxs",
        "_xs",
        "tiny",
        "mini",
        "_s",
        "small",
        "_m",
        "medium",
        "base",
    )
    return next((place for place, word in enumerate(order) if word in name), len(order))


def smaller(model_class: Any, kwargs: Mapping[str, Any], blocks: int) -> dict[str, Any]:
    """The same arguments with a few blocks per stage at most, and narrow where they or the defaults say how wide.

    Args:
        model_class: What they are the arguments of.
        kwargs: The arguments.
        blocks: How many.
    """
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(model_class).parameters.items()
        if name in SHRUNK and parameter.default is not parameter.empty
    }
    small = _narrow({**defaults, **kwargs}, blocks)
    if is_dataclass(small.get("cfg")):
        config = small["cfg"]
        fields = {name: value for name, value in vars(config).items() if name in SHRUNK}
        small["cfg"] = replace(config, **_narrow(fields, blocks))
    return small


def _narrow(arguments: Mapping[str, Any], blocks: int) -> dict[str, Any]:
    small = dict(arguments)
    for name in ("depth", "depths", "layers", "serial_depths", "stages"):
        if name in small:
            small[name] = _at_most(small[name], blocks)
    if "local_up_to_layer" in small:  # of both kinds of blocks
        small["local_up_to_layer"] = blocks // 2
    for name in ("dims", "embed_dims"):
        if name in small:
            small[name] = _halved_widths(small[name])
    if "attn_groups" in small:
        small["attn_groups"] = _at_most(small["attn_groups"], 1)
    if _are_stages_of_dicts(small.get("block_args")):
        small["block_args"] = [_one_of_each_kind(stage) for stage in small["block_args"]]
    plain = isinstance(small.get("depth"), int) and isinstance(small.get("num_heads"), int)
    if plain and isinstance(small.get("embed_dim"), int) and "embed_layer" not in small and "inner_dim" not in small:
        small |= {"embed_dim": 64, "num_heads": 4}
        if "head_dim" in small:
            small["head_dim"] = 16
        if "intermediate_size" in small:
            small["intermediate_size"] = 96
        if isinstance(small.get("num_kv_heads"), int):
            small["num_kv_heads"] = 2
    return small


def _at_most(value: Any, limit: int) -> Any:
    if isinstance(value, int):
        return min(value, limit)
    return type(value)(_at_most(x, limit) for x in value) if isinstance(value, (list, tuple)) else value


def _halved_widths(widths: Any) -> Any:
    """Half the widths as long as the first is large, and all are whole in units of eight."""
    if not isinstance(widths, (list, tuple)) or not all(isinstance(x, int) for x in widths):
        return widths
    while widths[0] >= WIDE and all(x % 16 == 0 for x in widths):
        widths = type(widths)(x // 2 for x in widths)
    return widths


def _are_stages_of_dicts(stages: Any) -> bool:
    return isinstance(stages, list) and all(stage and isinstance(stage[0], dict) for stage in stages)


def _one_of_each_kind(stage: Any) -> Any:
    """The first block of each type, mostly the one with a stride and one with attention, and the last block's type.

    They are half as wide.
    """
    kinds: dict[str, Any] = {}
    for block in stage:
        kinds.setdefault(block["block_type"], block)
    ends_alike = next(reversed(kinds)) == stage[-1]["block_type"]
    blocks = [*kinds.values()] if ends_alike else [*kinds.values(), stage[-1]]
    return [{**block, "out_chs": block["out_chs"] // 2} for block in blocks]


def subject(module: str, name: str) -> Subject:
    """Build the model, as small as it builds and runs.

    Raises:
        RuntimeError: If it runs with no size of image.
    """
    errors = []
    for blocks in BLOCKS:
        for size in IMAGES:
            try:
                model = _built(module, name, size, blocks)
                images = _images(size)
                with torch.no_grad():
                    model(images[:1])
                return Subject(model, images)
            except Exception as error:
                errors.append(f"{size}: {type(error).__name__}: {' '.join(str(error).split())[:80]}")
    raise RuntimeError("; ".join(errors[:2] + errors[-2:]))


def _images(size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(SAMPLES, 3, size, size, dtype=torch.float64, generator=generator)


def _built(module: str, name: str, size: int, blocks: int | None) -> nn.Module:
    from timm.models import _builder, model_entrypoint

    build: Callable[..., nn.Module] = _builder.build_model_with_cfg
    if blocks is not None:
        build = partial(_build_small, build, blocks)
    torch.manual_seed(0)
    with _building_with(module, build):
        entry = model_entrypoint(name)
        try:
            model = entry(num_classes=CLASSES, img_size=size)
        except TypeError as error:
            if "img_size" not in str(error):
                raise
            model = entry(num_classes=CLASSES)
    if "img_size" not in inspect.signature(type(model)).parameters and hasattr(model, "set_input_size"):
        model.set_input_size(img_size=size)
    return randomised(model)
