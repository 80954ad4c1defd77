"""Compare methods on a checkpoint and its data, from the command line."""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

import lrptrain
from lrptrain.audit.comparison import Row, expected_seconds, prepare, try_out
from lrptrain.audit.comparison import compare as rows_of
from lrptrain.audit.table import table
from lrptrain.batch import IMAGES, Sample, batched, read_batch
from lrptrain.cli.attribute import datamodule_settings, load_module
from lrptrain.extras import require
from lrptrain.files import write_json
from lrptrain.monitor.sampling import Draw
from lrptrain.relevance.registry import get_method
from lrptrain.trainers.checks import check_counts

SPLITS = {"val": "validation", "test": "test"}
LONG = 30.0  # seconds that a method may go on for without a word


def compare(
    checkpoint: str,
    data: str | None = None,
    methods: str | None = None,
    split: Literal["val", "test"] = "val",
    target: Literal["predicted", "label"] = "predicted",
    limit: int = 64,
    batch_size: int = 16,
    seed: int = 0,
    faithfulness: bool = True,
    output: str = "comparison",
    module: str | None = None,
    device: str | None = None,
) -> None:
    """Compare methods on your model and data: by annotations, by what the model says without the relevant, by time.

    Writes table.md and results.json to a folder, anew after every method: the cheap ones come first, and Ctrl-C keeps
    those that are done.

    Args:
        checkpoint: Of `lrptrain fit`, or of any LightningModule named by --module.
        data: A config of `lrptrain fit`, of which the `data:` section is read; else the data that the checkpoint was
            trained with, where it says so.
        methods: Names of `lrptrain.methods()` separated by commas; else all.
        split: The samples are drawn from the validation or the test set.
        target: The class to explain.
        limit: How many samples, as evenly over the classes as they allow.
        batch_size: Samples per forward pass.
        seed: Of the draw.
        faithfulness: Also take away what the maps call relevant, and see what the model says: many forward passes.
        output: Folder of the results.
        module: Dotted path of the LightningModule; else the checkpoint's own, or this project's for images and texts.
        device: "cpu", "cuda" ...; else the GPU if there is one.

    Raises:
        UnsupportedMethodError: If a method is unknown.
        ValueError: If the data are not known, hold no sample, or a number is not positive.
    """
    check_counts(limit=limit, batch_size=batch_size)
    given = (name.strip() for name in methods.split(",")) if methods else lrptrain.methods()
    names = list(dict.fromkeys(given))
    for name in names:
        get_method(name, {})
    datamodule = load_data(checkpoint, data)
    samples = draw(datamodule, split, limit, seed)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = load_module(module or module_path(checkpoint, samples), checkpoint).to(where).requires_grad_(True)
    cases = prepare(model, batched(samples, batch_size, where), target)
    about = {
        "checkpoint": checkpoint,
        "data": type(datamodule).__name__,
        "split": split,
        "samples": len(samples),
        "seed": seed,
        "target": target,
        "accuracy": _accuracy(cases),
        "seconds_per_forward_backward": sum(case.seconds for case in cases) / len(samples),
    }
    print(f"{heading(about)}\n", flush=True)
    folder, done = Path(output), list[Row]()
    try:
        print(f"each of {len(names)} methods on one sample, to know what they cost ...", flush=True)
        trials = try_out(model, cases[0], names)
        for number, row in enumerate((row for row in trials if row.problem), start=1):
            done.append(row)
            print(f"{number:3} of {len(names)}  {row.method:26}not possible here, see below", flush=True)
        todo = [row for row in trials if not row.problem]
        rows = rows_of(model, cases, [row.method for row in todo], fill_of(datamodule), faithfulness)
        for trial in todo:
            left = expected_seconds(trial, cases, faithfulness)
            print(f"{len(done) + 1:3} of {len(names)}  {trial.method:26}", end="", flush=True)
            if left > LONG:
                print(f"up to {left:.0f} s (Ctrl-C keeps what is done) ... ", end="", flush=True)
            done.append(next(rows))
            write(folder, about, done)
            milliseconds = done[-1].seconds * 1e3
            print(done[-1].problem or f"{milliseconds:.{int(milliseconds < 10)}f} ms per sample", flush=True)
    except KeyboardInterrupt:
        print(f"\nstopped: {len(done)} of {len(names)} methods are done", flush=True)
    if done:
        write(folder, about, done)
        print(f"\n{table(done)}\n\n{folder / 'table.md'}\n{folder / 'results.json'}")


def load_data(checkpoint: str, config: str | None) -> Any:
    """The datamodule of a config, or else the one that a checkpoint was trained with.

    Raises:
        FileNotFoundError: If there is no such config or checkpoint.
        ValueError: If the config has no `data:`, or the checkpoint does not say.
    """
    jsonargparse = require("jsonargparse", "cli")
    from pytorch_lightning import LightningDataModule

    import lrptrain.data  # noqa: F401  (its classes may be named without the module)

    if config is not None:
        if not Path(config).is_file():
            raise FileNotFoundError(f"there is no config {config!r}")
        section = (require("yaml", "cli").safe_load(Path(config).read_text(encoding="utf-8")) or {}).get("data")
        if not isinstance(section, dict):
            raise ValueError(f"{config} has no `data:` section with a class_path, as configs of `lrptrain fit` do")
    else:
        section = saved_data(checkpoint)
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(LightningDataModule, "data")
    instantiate = getattr(parser, "instantiate", None) or parser.instantiate_classes  # its name before 4.49
    return instantiate(parser.parse_object({"data": section})).data


def saved_data(checkpoint: str) -> dict[str, Any]:
    """Class and arguments of the datamodule that a checkpoint was trained with.

    The class is saved by `lrptrain fit`; without it, a datamodule of this project is known by its arguments.

    Raises:
        FileNotFoundError: If there is no such checkpoint.
        ValueError: If it does not say.
    """
    from lrptrain import data

    if not Path(checkpoint).is_file():
        raise FileNotFoundError(f"there is no checkpoint {checkpoint!r}")
    settings = datamodule_settings(checkpoint)
    path = settings.pop("_class_path", None)
    settings.pop("_instantiator", None)
    own = [each for each in vars(data).values() if inspect.isclass(each) and hasattr(each, "val_dataloader")]
    alike = [each for each in own if settings and set(inspect.signature(each).parameters) == set(settings)]
    if path is None and len(alike) == 1:
        path = f"lrptrain.data.{alike[0].__name__}"
    if path is None:
        raise ValueError("the checkpoint does not say which data it was trained with: pass --data CONFIG")
    return {"class_path": path, "init_args": settings}


def module_path(checkpoint: str, samples: Sequence[Sample]) -> str:
    """Where the checkpoint's LightningModule is defined: as it says, or else this project's for such samples."""
    saved = torch.load(checkpoint, map_location="cpu", weights_only=False).get("hyper_parameters", {})
    is_image = any(name in samples[0].tensors for name in IMAGES)
    own = "lrptrain.models.ImageClassifier" if is_image else "lrptrain.models.TextClassifier"
    return saved.get("_class_path", own)


def draw(datamodule: Any, split: str, limit: int, seed: int) -> list[Sample]:
    """Samples of a split, drawn evenly over the classes.

    Raises:
        ValueError: If there are none.
    """
    datamodule.prepare_data()
    datamodule.setup("validate" if split == "val" else "test")
    loaders = datamodule.val_dataloader() if split == "val" else datamodule.test_dataloader()
    keeper = Draw(limit, seed)
    for batch in loaders[0] if isinstance(loaders, list | tuple) else loaders:
        keeper.pass_by(read_batch(batch), math.inf)
    samples = keeper.drawn()
    if not samples:
        raise ValueError(f"the {split} set of {type(datamodule).__name__} is empty")
    return samples


def fill_of(datamodule: Any) -> float | list[float]:
    """Black in the units of the datamodule's images: -mean / std where it says how it normalises, else 0."""
    settings = dict(getattr(datamodule, "hparams", {}))
    mean, std = settings.get("mean"), settings.get("std")
    return 0.0 if mean is None or std is None else [-m / s for m, s in zip(mean, std, strict=True)]


def heading(about: Mapping[str, Any]) -> str:
    """What was compared, in a sentence."""
    accuracy = "" if math.isnan(about["accuracy"]) else f", {about['accuracy']:.0%} of them read right"
    explained = "predicted class" if about["target"] == "predicted" else "label"
    return (
        f"{about['samples']} samples of the {SPLITS[about['split']]} set of {about['data']} (seed {about['seed']})"
        f"{accuracy}; explained is the {explained}."
    )


def write(folder: Path, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Save table.md and results.json; a number that is not known is null."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(f"{heading(about)}\n\n{table(rows)}\n", encoding="utf-8")
    write_json(folder / "results.json", {**about, "methods": [asdict(row) for row in rows]})


def _accuracy(cases: Sequence[Any]) -> float:
    """Share of the labelled samples whose label is the predicted class."""
    label = torch.cat([case.batch["label"] for case in cases])
    right = torch.cat([case.logits.argmax(1) for case in cases]) == label
    return float(right[label >= 0].float().mean())
