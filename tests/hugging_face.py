"""The Trainer of transformers as tests want it."""

from typing import Any

from transformers import TrainingArguments


def quiet_arguments(folder: Any, **options: Any) -> TrainingArguments:
    """Arguments of a Trainer on the CPU that saves, shows and reports nothing, unless they say so."""
    quiet: dict[str, Any] = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    return TrainingArguments(str(folder), **{**quiet, **options})
