"""What single configurations of transformers need beside being small; None leaves an entry at its default."""

from typing import Any

_MLA = {"num_key_value_heads": 4, "head_dim": None}
_HYBRID = {"num_hidden_layers": 4}
_T5 = {"decoder_start_token_id": 2}
FIXES: dict[str, dict[str, Any]] = {
    "t5": _T5,
    "mt5": _T5,
    "umt5": _T5,
    "axk1": {**_MLA, "n_group": 2, "topk_group": 1},
    "axk2": {**_MLA, "n_group": 2, "topk_group": 1},
    "deepseek_v2": {**_MLA, "num_experts_per_tok": 2},
    "deepseek_v3": _MLA,
    "minicpm3": _MLA,
    "mistral4": _MLA,
    "esmc": {"num_key_value_heads": 4},
    "esm": {"vocab_size": 100},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gptj": {"rotary_dim": 4},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 2},
    "qwen3_5": {"text_config": _HYBRID},
    "qwen3_5_text": _HYBRID,
    "qwen3_next": _HYBRID,
    "jamba": {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
    "longformer": {"attention_window": 16},
    "levit": {"patch_size": None, "image_size": 64},
    "mobilevit": {"image_size": 64},
    "mobilevitv2": {"image_size": 64},
    "donut-swin": {"embed_dim": 24, "num_heads": [3, 6], "depths": [2, 2], "window_size": 4, "patch_size": 4},
    "swin": {"embed_dim": 24, "num_heads": [3, 6], "depths": [2, 2], "window_size": 4, "patch_size": 4},
    "swinv2": {"embed_dim": 24, "num_heads": [3, 6], "depths": [2, 2], "window_size": 4, "patch_size": 4},
    "audio-spectrogram-transformer": {"max_length": 48, "num_mel_bins": 32},
    "perceiver": {"num_latents": 16, "d_latents": 32, "num_cross_attention_heads": 1},
    "cvt": {"embed_dim": [16, 48, 96], "depth": [1, 2, 3]},
    "layoutlmv3": {"coordinate_size": 4, "shape_size": 8},
    "lilt": {"hidden_size": 48, "num_attention_heads": 4},
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [4, 4], "attn_layers": ["local", "lsh"]},
}
# In float64 CANINE multiplies a mask by the lowest number of that type in float32, which is NaN.
IN_FLOAT32 = frozenset({"canine"})
