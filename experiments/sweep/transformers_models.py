"""Every classification class of transformers, from its default configuration made small."""

import copy
import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from experiments.sweep.case import SAMPLES, Case, Subject, randomised
from experiments.sweep.fixes import FIXES, IN_FLOAT32
from experiments.sweep.shrink import merged, smaller

CLASSES, TOKENS, CHOICES = 3, 10, 3
MAPPINGS = {
    "sequence": "SEQUENCE_CLASSIFICATION",
    "image": "IMAGE_CLASSIFICATION",
    "audio": "AUDIO_CLASSIFICATION",
    "video": "VIDEO_CLASSIFICATION",
    "image-text": "ZERO_SHOT_IMAGE_CLASSIFICATION",
    "image and text": "VISUAL_QUESTION_ANSWERING",
    "token": "TOKEN_CLASSIFICATION",
    "span": "QUESTION_ANSWERING",
    "choice": "MULTIPLE_CHOICE",
}


def cases() -> Iterator[Case]:
    """All of them, by task."""
    from transformers.models.auto import modeling_auto
    from transformers.models.bert import modeling_bert  # noqa: F401  (what most files import, once for all processes)
    from transformers.models.llama import modeling_llama  # noqa: F401

    seen = set()
    for task, mapping in MAPPINGS.items():
        for family, names in getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").items():
            for name in (names,) if isinstance(names, str) else names:
                if (family, name) not in seen:
                    seen.add((family, name))
                    yield Case("transformers", family, name, task, partial(subject, family, name, task))


def subject(family: str, name: str, task: str) -> Subject:
    """Build a class with its batch.

    Args:
        family: The key of the configuration.
        name: The class.
        task: Which of the mappings lists it.
    """
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    transformers.logging.set_verbosity_error()
    model_class = getattr(transformers, name)
    config_class = model_class.config_class or CONFIG_MAPPING[family]
    config = configured(config_class, family)
    model = randomised(_built(model_class, config))
    if family in IN_FLOAT32:
        model = model.float()
    inputs = batch(model, task)
    build_explicit = partial(_explicit, model_class, config, model)
    return Subject(
        model,
        inputs,
        target=_target(task),
        shared=frozenset({"input_ids", "attention_mask", "token_type_ids"}) if task == "image-text" else frozenset(),
        embedding=_embedding(model, inputs),
        explicit=build_explicit,
    )


def configured(config_class: Any, family: str) -> Any:
    """The small configuration of a family."""
    arguments = merged(smaller(config_class), FIXES.get(family, {}))
    return config_class(**{"num_labels": CLASSES, **arguments})


def _built(model_class: Any, config: Any, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    # The fused kernels of experts know no float64.
    return model_class._from_config(config, experts_implementation="eager", **options)


def _explicit(model_class: Any, config: Any, model: nn.Module) -> nn.Module:
    other = _built(model_class, copy.deepcopy(config), attn_implementation="eager").eval()
    other = other.to(next(model.parameters()).dtype)
    other.load_state_dict(model.state_dict())
    return other


def _target(task: str) -> Any:
    if task == "token":
        return (2, 1)
    if task == "span":
        return _start_of_span
    if task == "image-text":
        return _similarity
    return 1


def _start_of_span(output: Any) -> Tensor:
    start = output.start_logits if "start_logits" in output else output.start_top_log_probs
    return start[:, 1]


def _similarity(output: Any) -> Tensor:
    return output.logits_per_image[:, 0]


def _embedding(model: Any, inputs: dict[str, Tensor]) -> nn.Module | None:
    if next(iter(inputs)) != "input_ids":
        return None
    try:
        return model.get_input_embeddings()
    except (NotImplementedError, AttributeError):
        return None


def batch(model: Any, task: str) -> dict[str, Tensor]:
    """Random inputs of what the model reads, texts with padding.

    Args:
        model: Whose forward's arguments tell what it reads.
        task: Which of the mappings lists it.
    """
    torch.manual_seed(1)
    takes = inspect.signature(model.forward).parameters
    config = model.config
    if task == "image-text":
        images = pixels(config, takes)
        texts = text(config, 3, takes)
        return {**images, "input_ids": texts["input_ids"], **_mask(texts, takes)}
    if task == "image and text":
        return {**text(config, SAMPLES, takes), **pixels(config, takes)}
    if task in ("sequence", "token", "span"):
        if "input_ids" in takes:
            return {**text(config, SAMPLES, takes), **text_extras(config, takes)}
        return {"inputs": text(config, SAMPLES, takes)["input_ids"]}
    if task == "choice":
        rows = text(config, SAMPLES * CHOICES, takes)
        return {name: x.unflatten(0, (SAMPLES, CHOICES)) for name, x in rows.items()}
    if task == "audio":
        return sound(config, takes)
    if task == "video":
        return video(config, takes)
    if "pixel_values" not in takes and "input_ids" in takes:
        return {"input_ids": torch.randint(5, 90, (SAMPLES, 16))}
    return pixels(config, takes)


def text(config: Any, rows: int, takes: Any) -> dict[str, Tensor]:
    """Token ids of different lengths, with an end token each, and their mask."""
    parts = (config, getattr(config, "text_config", None))
    tokens = max(int(getattr(part, "sweep_tokens", 0) or 0) for part in parts) or TOKENS
    lengths = torch.tensor([tokens, tokens - 3, tokens - 2, tokens - 4] * rows)[:rows, None]
    at = torch.arange(tokens)
    mask = (at < lengths).long()
    ids = torch.randint(5, 90, (rows, tokens))
    ids[:, 0] = 2
    ids = torch.where(at == lengths - 1, 3, ids) * mask + (1 - mask)
    return {"input_ids": ids, **_mask({"attention_mask": mask}, takes)}


def _mask(inputs: dict[str, Tensor], takes: Any) -> dict[str, Tensor]:
    return {"attention_mask": inputs["attention_mask"]} if "attention_mask" in takes else {}


def text_extras(config: Any, takes: Any) -> dict[str, Tensor]:
    """What documents and tables need beside their words."""
    extras: dict[str, Tensor] = {}
    if "bbox" in takes:
        corner = torch.randint(0, 20, (SAMPLES, TOKENS, 2))
        extras["bbox"] = torch.cat([corner, corner + torch.randint(1, 20, (SAMPLES, TOKENS, 2))], -1)
    if "image" in takes and config.model_type == "layoutlmv2":
        extras["image"] = torch.rand(SAMPLES, 3, 32, 32)
    if config.model_type == "tapas":
        extras["token_type_ids"] = torch.zeros(SAMPLES, TOKENS, 7, dtype=torch.long)
    return extras


def _vision(config: Any) -> Any:
    return getattr(config, "vision_config", None) or getattr(config, "backbone_config", None) or config


def _size(config: Any) -> tuple[int, int]:
    size = getattr(config, "image_size", None) or 32
    return (size, size) if isinstance(size, int) else tuple(size)


def pixels(config: Any, takes: Any) -> dict[str, Tensor]:
    """Images, or the patches of images."""
    vision = _vision(config)
    if "spatial_shapes" in takes:
        patch = vision.patch_size
        values = torch.randn(SAMPLES, 16, 3 * patch * patch, dtype=torch.float64)
        shapes = torch.tensor([[4, 4], [4, 4]])
        return {
            "pixel_values": values,
            "pixel_attention_mask": torch.ones(SAMPLES, 16, dtype=torch.long),
            "spatial_shapes": shapes,
        }
    channels = getattr(vision, "num_channels", 3)
    name = "pixel_values" if "pixel_values" in takes else "inputs"
    if "pixel_values_videos" in takes:
        return video(config, takes)
    return {name: torch.randn(SAMPLES, channels, *_size(vision), dtype=torch.float64)}


def video(config: Any, takes: Any) -> dict[str, Tensor]:
    """Frames."""
    vision = _vision(config)
    frames: Any = getattr(vision, "num_frames", None) or getattr(vision, "frames_per_clip", 4)
    size: Any = getattr(vision, "crop_size", None) or _size(vision)
    height, width = (size, size) if isinstance(size, int) else size
    name = "pixel_values_videos" if "pixel_values_videos" in takes else "pixel_values"
    return {name: torch.randn(SAMPLES, frames, 3, height, width, dtype=torch.float64)}


def sound(config: Any, takes: Any) -> dict[str, Tensor]:
    """A waveform, or a spectrogram."""
    if "input_features" in takes:
        if config.model_type == "whisper":
            return {
                "input_features": torch.randn(SAMPLES, config.num_mel_bins, 2 * config.max_source_positions).double()
            }
        return {"input_features": torch.randn(SAMPLES, 12, config.feature_projection_input_dim).double()}
    if hasattr(config, "num_mel_bins"):
        return {"input_values": torch.randn(SAMPLES, config.max_length, config.num_mel_bins).double()}
    return {"input_values": torch.randn(SAMPLES, 1600).double()}
