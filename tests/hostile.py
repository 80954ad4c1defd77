"""Files that a stranger may hand over: checkpoints that would run or fetch code, runs that would fill the memory."""

import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hugging_face import small_sizes

from lrptrain.data import PlantedDigits
from lrptrain.models import ImageClassifier, TextClassifier

VIT = {"img_size": 24, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
BERT = {**small_sizes(16), "model_type": "bert", "vocab_size": 100}
DATA: dict[str, Any] = {"train_size": 40, "val_size": 20, "batch_size": 10, "image_size": 24, "digit_size": 20}


def png_of(width: int, height: int) -> bytes:
    """A PNG of some hundred bytes, whose head claims any size."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 1000)), (b"IEND", b"")):
        content += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return content


class Exploit:
    """Leaves a trace where it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


def leave_code(folder: Path) -> Path:
    """Write modules into a folder that leave a trace where they are imported; return where."""
    trace = folder / "trace"
    touch = f"from pathlib import Path\nPath({str(trace)!r}).touch()\n"
    for name in ("evil", "wandb_core", "modeling_evil", "configuration_evil", "tokenization_evil"):
        (folder / f"{name}.py").write_text(f"{touch}class Evil: pass\n", encoding="utf-8")
    remote = folder / "remote"
    remote.mkdir()
    auto = {
        "AutoConfig": "configuration_evil.Evil",
        "AutoModelForImageClassification": "modeling_evil.Evil",
        "AutoModelForSequenceClassification": "modeling_evil.Evil",
        "AutoTokenizer": ["tokenization_evil.Evil", None],
    }
    for name in ("modeling_evil", "configuration_evil", "tokenization_evil"):
        (remote / f"{name}.py").write_text(f"{touch}class Evil: pass\n", encoding="utf-8")
    for name in ("config.json", "tokenizer_config.json", "preprocessor_config.json"):
        (remote / name).write_text(json.dumps({"model_type": "evil", "auto_map": auto}), encoding="utf-8")
    return trace


def image_checkpoint(**changes: Any) -> dict[str, Any]:
    """The content of a checkpoint of this project's image classifier and data, changed."""
    torch.manual_seed(0)
    module = ImageClassifier(10, model_kwargs=VIT, schedule="constant")
    data = PlantedDigits(**DATA)
    return {
        "pytorch-lightning_version": "2.6.0",
        "state_dict": module.state_dict(),
        "hyper_parameters": dict(module.hparams),
        "datamodule_hyper_parameters": dict(data.hparams),
        **changes,
    }


def _with(content: dict[str, Any], key: str = "hyper_parameters", **changes: Any) -> dict[str, Any]:
    return {**content, key: {**content[key], **changes}}


def _text_checkpoint() -> dict[str, Any]:
    module = TextClassifier(2, BERT, schedule="constant")
    return {"state_dict": module.state_dict(), "hyper_parameters": dict(module.hparams)}


REMOTE = {"backend": "transformers", "model": "remote"}
CONTENTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "an object": lambda trace: _with(image_checkpoint(), extra=Exploit(trace)),
    "remote code": lambda _: _with(image_checkpoint(), **REMOTE, model_kwargs={"trust_remote_code": True}),
    "a folder of weights": lambda _: _with(image_checkpoint(), **REMOTE, model_kwargs=None),
    "a config that maps to code": lambda _: _with(
        image_checkpoint(),
        backend="transformers",
        model={"model_type": "vit", "auto_map": {"AutoModelForImageClassification": "remote--modeling_evil.Evil"}},
    ),
    "a quantised model": lambda _: _with(
        image_checkpoint(), backend="transformers", model={"model_type": "vit", "quantization_config": {"a": 1}}
    ),
    "a kernel of the hub": lambda _: _with(
        image_checkpoint(),
        backend="transformers",
        model={"model_type": "vit", "hidden_act": "kernels-community/activation"},
    ),
    "a wrapper around timm": lambda _: _with(
        image_checkpoint(),
        backend="transformers",
        model={"model_type": "timm_wrapper", "architecture": "vit", "model_args": {"checkpoint_path": "evil.pt"}},
    ),
    "an attention of the hub in a part": lambda _: _with(
        image_checkpoint(),
        backend="transformers",
        model={"model_type": "clip", "vision_config": {"attn_implementation": "flash_attention_2"}},
    ),
    "weights of timm in a part": lambda _: _with(
        image_checkpoint(),
        backend="transformers",
        model={"model_type": "clip", "vision_config": {"model_type": "timm_backbone", "pretrained": True}},
    ),
    "a model of the hub": lambda _: _with(image_checkpoint(), model="hf-hub:evil/evil", model_kwargs=None),
    "weights of another file": lambda _: _with(image_checkpoint(), pretrained="evil.pt"),
    "a checkpoint of timm": lambda _: _with(image_checkpoint(), model_kwargs={**VIT, "checkpoint_path": "evil.pt"}),
    "a class to import": lambda _: _with(image_checkpoint(), _class_path="evil.Evil"),
    "a class of the user's": lambda _: _with(
        image_checkpoint(), _class_path="evil.Evil", _instantiator="pytorch_lightning.cli.instantiate_module"
    ),
    "a function to call": lambda _: _with(image_checkpoint(), _instantiator="evil.Evil"),
    "a class within": lambda _: _with(image_checkpoint(), model_kwargs={"norm_layer": {"class_path": "evil.Evil"}}),
    "no hyperparameters": lambda _: image_checkpoint(hyper_parameters=["evil"]),
    "no weights": lambda _: image_checkpoint(state_dict="evil"),
}
"""What a hostile checkpoint holds, by what it asks for; each takes where a trace would be left."""
DATA_CONTENTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "data to import": lambda _: _with(image_checkpoint(), "datamodule_hyper_parameters", _class_path="evil.Evil"),
    "a tokenizer of the hub": lambda _: {
        **_text_checkpoint(),
        "datamodule_hyper_parameters": {
            "_class_path": "lrptrain.data.TextSpans",
            "path": "texts.csv",
            "tokenizer": "evil/evil",
        },
    },
}
"""The same of what they ask for as their data."""


def write_checkpoint(path: Path, name: str, trace: Path) -> str:
    """Write a hostile checkpoint, and return its path."""
    torch.save({**CONTENTS, **DATA_CONTENTS}[name](trace), path)
    return str(path)


FILES: dict[str, Callable[[Path], Any]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "nothing": Path.touch,
    "a text": lambda path: path.write_text("evil", encoding="utf-8"),
    "a folder": Path.mkdir,
}
"""Files that are no checkpoints at all."""


def write_run(folder: Path, lines: int = 2, **changes: Any) -> Path:
    """Write a run whose evaluations find nothing, as a monitor does, the last line of it changed."""
    from lrptrain.loggers import EpochRecord, write_record

    for epoch in range(lines):
        scalars = {"relevance/samples": 128.0, "relevance/reliance": 0.0}
        power = {"tells": True, "text": "It does not rely on these alone: the light of the image."}
        samples: dict[str, list[Any]] = {
            "sample_id": ["a", "b"],
            "label": ["x", "y"],
            "map_label": [[0.1] * 4, [0.2] * 4],
        }
        write_record(folder, EpochRecord(epoch, 10 * epoch, scalars, samples, power=power))
    (folder / "run.json").write_text(json.dumps({"confidence": 0.95, "class_names": ["x", "y"]}), encoding="utf-8")
    if changes:
        *first, last = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
        first.append(json.dumps({**json.loads(last), **changes}))
        (folder / "events.jsonl").write_text("\n".join(first) + "\n", encoding="utf-8")
    return folder


def _events(write: Callable[[Path], Any]) -> Callable[[Path], None]:
    def replaced(folder: Path) -> None:
        write_run(folder)
        (folder / "events.jsonl").unlink()
        write(folder / "events.jsonl")

    return replaced


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)  # of zeros, which take no room on the disk


def _much_text(folder: Path) -> None:
    import numpy as np
    import pyarrow
    import pyarrow.parquet

    write_run(folder)
    rows = 100_000
    texts = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(rows, np.int32)), pyarrow.array(["x" * 80_000]))
    table = pyarrow.table({"sample_id": np.arange(rows), "label": texts})
    for path in (folder / "samples").iterdir():
        pyarrow.parquet.write_table(table, path, compression="zstd", store_schema=False)


def _settings(content: str) -> Callable[[Path], None]:
    def written(folder: Path) -> None:
        write_run(folder)
        (folder / "run.json").write_text(content, encoding="utf-8")

    return written


def _links(folder: Path) -> None:
    write_run(folder)
    for name in ("run.json", "samples/epoch_0001_step_000010.parquet", "inputs/a.json", "inputs/a.webp"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to("/etc/passwd")


RUNS: dict[str, Callable[[Path], Any]] = {
    "a pipe": _events(os.mkfifo),
    "a device": _events(lambda path: path.symlink_to("/dev/zero")),
    "a file without end": _events(_large),
    "a folder": _events(Path.mkdir),
    "an epoch of 10^27": lambda folder: write_run(folder, epoch=10**27),
    "a step of 400 digits": lambda folder: write_run(folder, step=10**400),
    "a scalar of 400 digits": lambda folder: write_run(folder, scalars={"relevance/samples": 10**400}),
    "values nested 100,000 deep": _events(lambda path: path.write_text("[" * 100_000 + "\n", encoding="utf-8")),
    "eight gigabytes of text": _much_text,
    "settings nested 100,000 deep": _settings("[" * 100_000),
    "settings of another form": _settings("[1, 2]"),
    "links to elsewhere": _links,
}
"""Folders of runs that would fill the memory, wait for ever, or end a reader; each takes the folder."""
UNREADABLE = [name for name in RUNS if "text" not in name and "settings" not in name and "links" not in name]
"""Those of which a gate cannot read the evaluations."""
