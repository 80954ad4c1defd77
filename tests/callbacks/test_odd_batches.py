"""Odd batches at random, through `Trainer.fit`: no run ended, none changed, nothing misread in silence.

Every case wraps the same validation set in another form, and may spoil it. What must come of it is known: it is refused
before the first step, or samples are left out by name; all others have the maps and scores of the plain run, and the
weights are those of training without a monitor. `LRPTRAIN_FUZZ=500` runs as many cases.
"""

import os
import random
import warnings
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from setting import data, loader, module, monitor, trainer
from torch import Tensor
from torch.utils.data import DataLoader

CASES = int(os.environ.get("LRPTRAIN_FUZZ", "12"))
SANITY = range(10)  # two batches of five
Row = dict[str, Any]
Named = namedtuple("Named", "label image mask sample_id")


@dataclass
class Batch:
    image: Any
    label: Any
    mask: Any
    sample_id: Any


def columns(rows: list[Row]) -> Row:
    """Stack what can be stacked."""
    return {
        name: torch.stack([row[name] for row in rows]) if isinstance(rows[0][name], Tensor) else [r[name] for r in rows]
        for name in rows[0]
    }


FORMS: dict[str, Callable[[Row], Any]] = {
    "dict": dict,
    "labels": lambda x: {("labels" if name == "label" else name): value for name, value in x.items()},
    "pixel_values": lambda x: {("pixel_values" if name == "image" else name): value for name, value in x.items()},
    "nested": lambda x: {"inputs": {"image": x["image"]}, "targets": {k: v for k, v in x.items() if k != "image"}},
    "dataclass": lambda x: Batch(**x),
    "named tuple": lambda x: Named(**x),
    "inputs and targets": lambda x: ({"image": x["image"]}, {k: v for k, v in x.items() if k != "image"}),
    "inputs and label": lambda x: ({k: v for k, v in x.items() if k != "label"}, x["label"]),
    "extra entries": lambda x: {**x, "path": ["a"] * len(x["image"]), "weight": 0.5, "label_name": None},
}
MASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "uint8": lambda m: m,
    "bool": lambda m: m > 0,
    "int8": lambda m: m.to(torch.int8),
    "int64": lambda m: m.long(),
    "float": lambda m: m.float(),
    "half": lambda m: m.half(),
    "channel": lambda m: m[None],
    "quarter": lambda m: m[::4, ::4],
}
IDS: dict[str, Callable[[int], Any]] = {
    "numbers": int,
    "floats": float,
    "names": lambda i: f"{i}.png",
    "mixed": lambda i: i if i % 2 else f"{i}",
    "surrogates": lambda i: f"\udcff{i}",
    "bytes": lambda i: f"{i}".encode(),
    "huge": lambda i: 2**70 + i,
}
# What is done to one sample: it is left out, or refused where the sanity check sees it.
SPOILED: dict[str, Callable[[Row], Row]] = {
    "nan": lambda row: {"image": torch.full_like(row["image"], float("nan"))},
    "inf": lambda row: {"image": row["image"].index_fill(1, torch.tensor(3), float("inf"))},
    "label": lambda row: {"label": torch.tensor(random.Random(0).choice([3, 9, 10**6]))},
    "value": lambda row: {"mask": torch.full_like(row["mask"], 3) if row["mask"].dtype != torch.bool else None},
}


def objects(mask: Tensor) -> Tensor:
    """A mask as PNG files hold it: 255 in an object, and 0 around it."""
    drawn = torch.zeros(mask.shape, dtype=torch.uint8)
    drawn[..., : mask.shape[-2] * 3 // 4, : mask.shape[-1] * 3 // 4] = 255
    return drawn


# What is done to all: it is refused.
MISREAD: dict[str, Callable[[Row], Row]] = {
    "png": lambda row: {"mask": objects(row["mask"])},
    "soft": lambda row: {"mask": row["mask"].float() * 0.7},
    "palette": lambda row: {"mask": row["mask"].to(torch.uint8) * 4},
    "signed": lambda row: {"mask": row["mask"].to(torch.int8) * 2 - 1},
    "shape": lambda row: {"mask": row["mask"][..., ::2]},
    "colours": lambda row: {"mask": row["mask"].float().reshape(1, *row["mask"].shape[-2:]).expand(3, -1, -1)},
    "labels of names": lambda row: {"label": "cat"},
    "labels of none": lambda row: {"label": None},
    "one-hot": lambda row: {"label": torch.nn.functional.one_hot(torch.as_tensor(row["label"]), 3)},
}


class Quiet:
    """A module whose validation calls no model, and that counts its steps."""

    def __init__(self) -> None:
        self.module = module()
        self.steps = 0
        step = self.module.training_step

        def training_step(batch, batch_idx):
            self.steps += 1
            return step(batch, batch_idx)

        self.module.training_step = training_step
        self.module.validation_step = lambda batch, batch_idx: None


def fit(folder, watching, rows: list[Row], form: Callable[[Row], Any]) -> Quiet:
    quiet = Quiet()
    val: DataLoader = DataLoader(rows, batch_size=5, collate_fn=lambda some: form(columns(some)))  # type: ignore[arg-type]
    torch.manual_seed(1)
    trainer(folder, *watching, max_epochs=1).fit(quiet.module, loader(shuffle=True), val)
    return quiet


def plain_rows() -> list[Row]:
    given = data()
    return [{**{name: column[i] for name, column in given.items()}, "sample_id": i} for i in range(24)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The weights without a monitor, and what a monitor has of every sample in the plain form."""
    alone = fit(tmp_path_factory.mktemp("alone"), [], plain_rows(), dict)
    watching = monitor(max_samples=24, on_error="raise")
    fit(tmp_path_factory.mktemp("watched"), [watching], plain_rows(), dict)
    return alone.module.state_dict(), {each.sample.sample_id: each for each in watching.scored}


def written(given: Any, mixed: bool) -> int | str:
    """An id as the record has it."""
    if isinstance(given, float):
        return int(given)
    if isinstance(given, bytes):
        return given.decode()
    if isinstance(given, str) or mixed or given >= 2**63:
        return str(given).encode("utf-8", "backslashreplace").decode()
    return int(given)


@pytest.mark.parametrize("seed", range(CASES))
def test_odd_batches(seed, plain, tmp_path):
    choose = random.Random(seed)
    form, mask, ids = (choose.choice(list(table)) for table in (FORMS, MASKS, IDS))
    what = choose.choice(["fine", "spoiled", "spoiled", "misread"])
    rows = [{**row, "mask": MASKS[mask](row["mask"]), "sample_id": IDS[ids](i)} for i, row in enumerate(plain_rows())]
    bad: dict[int, str] = {}
    if what == "spoiled":
        kinds = [kind for kind in SPOILED if not (kind == "value" and mask == "bool")]
        bad = {i: choose.choice(kinds) for i in choose.sample(range(24), choose.choice([1, 1, 3]))}
        rows = [{**row, **SPOILED[bad[i]](row)} if i in bad else row for i, row in enumerate(rows)]
    misread = choose.choice(list(MISREAD)) if what == "misread" else ""
    if misread:
        rows = [{**row, **MISREAD[misread](row)} for row in rows]
    case = f"{form=} {mask=} {ids=} {bad=} {misread=}"
    watching = monitor(max_samples=24, max_pictures=4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if misread or bad.keys() & set(SANITY):
            seen = []
            watching.on_train_start = lambda *arguments: seen.append(True)
            with pytest.raises(ValueError, match=r"mask|label|image|pixel_values|regions"):
                fit(tmp_path, [watching], rows, FORMS[form])
            assert not seen, case
            return
        quiet = fit(tmp_path, [watching], rows, FORMS[form])
    weights, expected = plain
    assert quiet.steps == 5, case
    assert all(torch.equal(value, weights[name]) for name, value in quiet.module.state_dict().items()), case
    assert watching.failures == 0, case
    told = [str(each.message) for each in caught if "RelevanceMonitor" in str(each.message)]
    assert len(told) == bool(bad), (case, told)
    names = {written(IDS[ids](i), ids == "mixed"): i for i in range(24)}
    found = {names[each.sample.sample_id]: each for each in watching.scored}
    assert found.keys() == set(range(24)) - bad.keys(), case
    for i, each in found.items():
        torch.testing.assert_close(each.maps["label"], expected[i].maps["label"], rtol=0, atol=1e-5)
        for name in ("label/energy_pointing_game", "predicted/energy_pointing_game"):
            assert each.values[name] == pytest.approx(expected[i].values[name], abs=1e-5), case
        assert each.chance == 0.25, case
