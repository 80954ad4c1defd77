"""Models and the Trainer of transformers as tests want them: small and quiet."""

from typing import Any


def small_sizes(width: int, layers: int = 1, inner: int = 0, heads: int = 2) -> dict[str, Any]:
    """The sizes of a small transformer, whose feed-forward blocks are as wide as it is unless `inner` says so."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner or width,
    }


def quiet_arguments(folder: Any, **options: Any) -> Any:
    """Arguments of a Trainer on the CPU that saves, shows and reports nothing, unless they say so."""
    from transformers import TrainingArguments

    quiet: dict[str, Any] = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    return TrainingArguments(str(folder), **{**quiet, **options})
