"""Files that a stranger may hand over: checkpoints that would run or fetch code, runs that would fill the memory."""

import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lrptrain.data import PlantedDigits
from lrptrain.models import ImageClassifier

VIT = {"img_size": 24, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
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
    """Write a module into a folder that leaves a trace where it is imported; return where."""
    trace = folder / "trace"
    code = f"from pathlib import Path\nPath({str(trace)!r}).touch()\nclass Evil: pass\n"
    (folder / "evil.py").write_text(code, encoding="utf-8")
    return trace


def image_checkpoint() -> dict[str, Any]:
    """The content of a checkpoint of this project's image classifier and data."""
    torch.manual_seed(0)
    module = ImageClassifier(10, model_kwargs=VIT, schedule="constant")
    data = PlantedDigits(**DATA)
    return {
        "pytorch-lightning_version": "2.6.0",
        "state_dict": module.state_dict(),
        "hyper_parameters": dict(module.hparams),
        "datamodule_hyper_parameters": dict(data.hparams),
    }


def _with(**changes: Any) -> dict[str, Any]:
    content = image_checkpoint()
    return {**content, "hyper_parameters": {**content["hyper_parameters"], **changes}}


CONFIG = f"model: {{class_path: ImageClassifier, init_args: {{num_classes: 10, model_kwargs: {VIT}}}}}\n" + (
    f"data: {{class_path: PlantedDigits, init_args: {DATA}}}\n"
)
"""A config of LightningCLI that makes what `image_checkpoint` has the weights of."""
CONTENTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "an object": lambda trace: _with(extra=Exploit(trace)),
    "a class to import": lambda _: _with(_class_path="evil.Evil"),
    "a function to call": lambda _: _with(_instantiator="evil.Evil"),
}
"""What a hostile checkpoint holds, by what it asks for; each takes where a trace would be left."""


def write_checkpoint(path: Path, name: str, trace: Path) -> str:
    """Write a hostile checkpoint, and return its path."""
    torch.save(CONTENTS[name](trace), path)
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
