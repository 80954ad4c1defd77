"""A transformers configuration made small by the names of its numbers."""

import inspect
import re
from typing import Any

# By pattern of the name, the largest value; the first that matches counts.
LIMITS: tuple[tuple[str, int], ...] = (
    (r"(num|n)_(key_value|kv)_heads$|n_kv_heads$|n_head_kv$|multi_query_group_num", 2),
    (r"(^|_)(n|num)_?(attention_|attn_)?heads?$|attention_heads$|^heads$", 4),
    (r"^(n|num)_?(hidden_|encoder_|decoder_|block_)?layers?$|^(encoder|decoder)_layers$|^n_layers?$|^depth$", 2),
    (r"num_hidden_groups|num_blocks$|num_self_attends_per_block|num_(encoder|decoder)_layers", 2),
    (r"num_(local_|routed_|)experts$|n_routed_experts$|num_local_experts", 4),
    (r"num_experts_per_tok(en)?$|moe_top_?k$|num_selected_experts", 2),
    (r"(^|_)head_(dim|size)$|kv_channels|d_kv$|key_value_dim", 8),
    (r"(kv|q)_lora_rank$", 16),
    (r"qk_rope_head_dim|qk_nope_head_dim|v_head_dim|rope_head_dim", 8),
    (r"vocab_size$", 100),
    (
        r"intermediate_size$|ffn_dim$|d_ff$|n_inner$|mlp_dim$|ffn_hidden_size$|inner_dim$|^hidden_dim$|intermediate_dim",
        48,
    ),
    (r"^hidden_size$|^d_model$|^n_embd$|^embed_dim$|^dim$|^embedding_size$|^emb_dim$|^word_embed_proj_dim$", 32),
    (r"^projection_dim$|_hidden_size$|^output_hidden_size|encoder_hidden_size|^d_embedding|^d_inner$", 32),
    (r"^patch_size$", 8),
    (r"^image_size$|^crop_size$|^input_size$", 32),
    (r"^max_position_embeddings$|^n_positions$|^n_ctx$|max_seq_len$|^max_sequence_length$", 64),
    (r"^classifier_proj_size$|^hidden_act_size", 32),
)
# The same of each number in a list.
LIST_LIMITS: tuple[tuple[str, int], ...] = ((r"^depths?$", 2), (r"^image_size$", 64))
IDS = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3,
       "decoder_start_token_id": 2, "mask_token_id": 4}  # fmt: skip


def smaller(config_class: Any, depth: int = 0) -> dict[str, Any]:
    """Keyword arguments that make the default configuration small, those of its parts included."""
    default = config_class()
    accepted = _accepted(config_class)
    small: dict[str, Any] = {}
    for name, value in vars(default).items():
        if name.startswith("_") or (accepted is not None and name not in accepted):
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            limit = _limit(LIMITS, name)
            if limit is not None and value > limit:
                small[name] = limit
        elif isinstance(value, list | tuple) and value and all(isinstance(x, int) for x in value):
            limit = _limit(LIST_LIMITS, name)
            if limit is not None:
                small[name] = type(value)(min(x, limit) for x in value)
        elif name in getattr(default, "sub_configs", {}) and value is not None and depth < 3:
            part = type(value)
            small[name] = _part(value, smaller(part, depth + 1))
    for name, identity in IDS.items():
        if hasattr(default, name):
            small[name] = identity
    return small


def _limit(limits: tuple[tuple[str, int], ...], name: str) -> int | None:
    return next((limit for pattern, limit in limits if re.search(pattern, name)), None)


def _part(value: Any, small: dict[str, Any]) -> dict[str, Any]:
    return {"model_type": value.model_type, **small}


def _accepted(config_class: Any) -> set[str] | None:
    parameters = inspect.signature(config_class).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()) and len(parameters) < 3:
        return None
    return set(parameters)


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The first with the second's entries, part by part. None as a value takes an entry away."""
    result = dict(base)
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = merged(result[name], value)
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result
