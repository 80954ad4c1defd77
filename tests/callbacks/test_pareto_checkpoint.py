"""The checkpoints that no other epoch beats, in real runs."""

import json
import sys

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import ModelCheckpoint
from setting import PACKAGES, Points, data, loader, module, monitor, trainer

from lrptrain.callbacks import ParetoCheckpoint
from lrptrain.trainers.pareto import Direction, pareto_front

METRICS: dict[str, Direction] = {"val/accuracy": "max", "val/loss": "min"}
ROWS = [(0.5, 1.0), (0.4, 1.1), (0.6, 1.2), (0.6, 0.9), (0.6, 0.9), (0.7, 1.5), (0.3, 0.8)]
FOCUS = "relevance/label/energy_pointing_game"


def unplotted(**options):
    """Without the picture, which takes longer than the epoch."""
    return ParetoCheckpoint(METRICS, plot=False, **options)


def logging(rows, package=PACKAGES[0], names=tuple(METRICS)):
    """A module that logs the row of each epoch as its own last act of a validation."""
    pl_module = module(package)

    def log():
        row = rows[min(pl_module.current_epoch, len(rows) - 1)]
        pl_module.log_dict({name: float(value) for name, value in zip(names, row, strict=True)})

    pl_module.on_validation_epoch_end = log
    return pl_module


def fit(folder, *callbacks, rows=ROWS, ckpt=None, package=PACKAGES[0], epochs=None, **options):
    options = {"max_epochs": epochs or len(rows), "enable_checkpointing": True, **options}
    runner = trainer(folder, *callbacks, package=package, **options)
    runner.fit(logging(rows, package), loader(), loader(), ckpt_path=ckpt)
    return runner


def epochs(keeping):
    return [point.epoch for point in keeping.front]


def paths(keeping):
    return [point.path for point in keeping.front if point.path is not None]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_kept_is_the_front_and_loads(package, tmp_path):
    keeping = ParetoCheckpoint(METRICS)
    fit(tmp_path, keeping, package=package)
    assert epochs(keeping) == [3, 5, 6]
    assert epochs(keeping) == np.flatnonzero(pareto_front(np.array(ROWS), METRICS.values())).tolist()
    assert [tuple(point.values.values()) for point in keeping.points] == [pytest.approx(row) for row in ROWS]
    assert keeping.folder == tmp_path / "pareto" / "run"
    assert files(keeping.folder) == sorted([*(path.name for path in paths(keeping)), "front.json", "front.png"])
    for point, path in zip(keeping.front, paths(keeping), strict=True):
        saved = torch.load(path, weights_only=True)
        assert (saved["epoch"], saved["global_step"]) == (point.epoch, point.step)
    assert keeping.best_model_path == str(keeping.front[1].path)
    told = json.loads((tmp_path / "pareto" / "run" / "front.json").read_text())
    assert [point["epoch"] for point in told["front"]] == [3, 5, 6]
    assert len(told["points"]) == 7


@pytest.mark.parametrize("seed", range(3))
def test_random_runs_keep_what_a_double_loop_keeps(seed, tmp_path):
    rows = np.random.default_rng(seed).integers(0, 5, (8, 2)).astype(float)
    keeping = ParetoCheckpoint({"val/accuracy": "min", "val/loss": "max"}, plot=False)
    fit(tmp_path, keeping, rows=rows)

    def beaten(i):
        as_good = [j for j in range(8) if rows[j, 0] <= rows[i, 0] and rows[j, 1] >= rows[i, 1] and j != i]
        return any(j < i or tuple(rows[j]) != tuple(rows[i]) for j in as_good)

    assert epochs(keeping) == [i for i in range(8) if not beaten(i)]
    assert [path.name for path in sorted(tmp_path.rglob("*.ckpt"))] == [path.name for path in paths(keeping)]


def test_a_resumed_run_goes_on(tmp_path):
    last = ModelCheckpoint(tmp_path / "last", save_last=True, save_on_train_epoch_end=True)
    first = unplotted()
    fit(tmp_path, last, first, epochs=4)
    assert epochs(first) == [3]
    second = unplotted()
    fit(tmp_path, second, ckpt=last.last_model_path)
    whole = unplotted()
    fit(tmp_path / "whole", whole)
    assert second.folder == first.folder
    assert epochs(second) == epochs(whole)
    assert [(p.epoch, p.step, p.values) for p in second.points] == [(p.epoch, p.step, p.values) for p in whole.points]
    assert files(second.folder) == files(whole.folder)


def test_a_run_goes_on_from_a_checkpoint_of_its_front(tmp_path):
    first = unplotted()
    fit(tmp_path, first, epochs=4)
    second = unplotted()
    fit(tmp_path, second, ckpt=first.front[0].path)
    assert [point.epoch for point in second.points] == list(range(7))
    assert epochs(second) == [3, 5, 6]


def test_a_branch_leaves_the_front_of_the_first_alone(tmp_path):
    first = unplotted()
    early = ModelCheckpoint(tmp_path / "all", "{epoch}", save_top_k=-1, auto_insert_metric_name=False)
    fit(tmp_path, first, early, epochs=4)
    assert first.folder is not None
    before = {path: path.read_bytes() for path in first.folder.iterdir()}
    branch = unplotted()
    fit(tmp_path, branch, ckpt=tmp_path / "all" / "1.ckpt")
    assert branch.folder == tmp_path / "pareto" / "run-2"
    assert {path: path.read_bytes() for path in first.folder.iterdir()} == before
    assert epochs(branch) == [3, 5, 6]
    assert len(branch.points) == 7


@pytest.mark.parametrize("content", ["", "{", '{"points": 3}', None])
def test_a_front_that_a_kill_has_damaged_is_mended_on_start(content, tmp_path):
    first, last = unplotted(), ModelCheckpoint(tmp_path / "last", save_last=True)
    fit(tmp_path, first, last, epochs=4)
    assert first.folder is not None
    path = first.folder / "front.json"
    whole = json.loads(path.read_text())
    path.unlink() if content is None else path.write_text(content)
    seen = []

    class Reader(Callback):
        def on_train_batch_start(self, *_):
            seen.append(json.loads(path.read_text()))

    fit(tmp_path, unplotted(), Reader(), ckpt=last.last_model_path, epochs=5)
    assert seen[0] == whole


def test_a_front_whose_files_have_vanished_makes_room(tmp_path):
    first, last = unplotted(), ModelCheckpoint(tmp_path / "last", save_last=True)
    fit(tmp_path, first, last, epochs=4)
    paths(first)[0].unlink()
    second = unplotted()
    fit(tmp_path, second, ckpt=last.last_model_path)
    assert len(second.points) == 7
    assert epochs(second) == [4, 5, 6]


def test_a_run_resumed_elsewhere_leaves_the_files_of_the_first(tmp_path):
    first = unplotted(dirpath=tmp_path / "a")
    fit(tmp_path, first, epochs=1)
    (path,) = paths(first)
    second = unplotted(dirpath=tmp_path / "b")
    fit(tmp_path, second, ckpt=path)
    assert epochs(second) == [3, 5, 6]
    assert path.exists()
    assert {path.parent for path in paths(second)} == {tmp_path / "b"}


def test_runs_do_not_overwrite_each_other(tmp_path):
    twice = unplotted()
    folders = []
    for keeping in (
        twice,
        twice,
        unplotted(dirpath=tmp_path / "own"),
        unplotted(dirpath=tmp_path / "own"),
    ):
        fit(tmp_path, keeping, epochs=2)
        assert len(keeping.points) == 2
        folders.append(keeping.folder)
    assert folders == [tmp_path / name for name in ("pareto/run", "pareto/run-2", "own", "own-2")]
    fit(tmp_path, twice, epochs=1, logger=Points())
    assert twice.folder == tmp_path / "pareto" / "points"


def test_testing_a_checkpoint_does_not_take_the_front_back(tmp_path):
    keeping = unplotted()
    runner = fit(tmp_path, keeping)
    runner.validate(logging(ROWS), loader(), ckpt_path=keeping.front[0].path, verbose=False)
    assert epochs(keeping) == [3, 5, 6]
    runner.validate(logging(ROWS), loader(), ckpt_path="best", verbose=False, weights_only=True)
    assert runner.ckpt_path == keeping.best_model_path
    assert len(keeping.points) == 7


def test_the_same_trainer_goes_on(tmp_path):
    keeping = unplotted()
    runner = fit(tmp_path, keeping, epochs=4)
    runner.fit_loop.max_epochs = 7
    runner.fit(logging(ROWS), loader(), loader())
    assert epochs(keeping) == [3, 5, 6]


def test_several_validations_in_an_epoch(tmp_path):
    keeping = unplotted(filename="{step}")
    fit(tmp_path, keeping, epochs=2, val_check_interval=2, rows=[(1, 1), (2, 2)])
    assert [(point.epoch, point.step) for point in keeping.points] == [(0, 2), (0, 4), (1, 7), (1, 9)]
    assert files(keeping.folder)[:2] == ["2.ckpt", "7.ckpt"]


def test_a_missing_metric_ends_the_first_validation(tmp_path):
    keeping = ParetoCheckpoint({"val/acuracy": "max", "val/loss": "min"})
    message = r"no metric 'val/acuracy'.*did you mean 'val/accuracy'\? Logged are \['val/accuracy', 'val/loss'\]"
    with pytest.raises(ValueError, match=message):
        fit(tmp_path, keeping)
    with pytest.raises(ValueError, match="no metric 'val/acuracy'"):
        fit(tmp_path, keeping, fast_dev_run=True)
    assert not (tmp_path / "pareto").exists()


def test_nan_is_left_out_and_told_once(tmp_path):
    keeping = unplotted()
    nan = float("nan")
    with pytest.warns(UserWarning, match=r"\['val/accuracy'\] was nan in epoch 0") as caught:
        fit(tmp_path, keeping, rows=[(nan, 0.1), (0.5, 1.0), (0.6, nan), (0.4, 0.5)])
    assert len([each for each in caught if "nan" in str(each.message)]) == 1
    assert epochs(keeping) == [1, 3]
    assert len(keeping.points) == 4


def test_beside_a_monitor_and_for_its_metrics(tmp_path):
    metrics: dict[str, Direction] = {
        "relevance/worst_group_accuracy": "max",
        FOCUS: "max",
        "relevance/accuracy_per_group/1": "max",
    }
    keeping, watching = ParetoCheckpoint(metrics), monitor(on_error="raise", max_samples=24)
    columns = {**data(), "group": torch.arange(24) % 2}
    runner = trainer(tmp_path, keeping, watching, max_epochs=3, enable_checkpointing=True)
    runner.fit(module(), loader(columns), loader(columns))
    assert runner.callbacks[-1] is keeping
    assert len({point.values[FOCUS] for point in keeping.points}) == 3
    assert keeping.points[-1].values == {name: runner.callback_metrics[name].item() for name in metrics}
    values = np.array([list(point.values.values()) for point in keeping.points])
    assert epochs(keeping) == np.flatnonzero(pareto_front(values, metrics.values())).tolist()


def test_without_matplotlib_there_is_no_picture(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    keeping = ParetoCheckpoint(METRICS)
    fit(tmp_path, keeping, epochs=1)
    assert files(keeping.folder) == ["epoch_0000_step_000005.ckpt", "front.json"]


def test_a_dry_run_leaves_nothing(tmp_path):
    keeping = unplotted()
    fit(tmp_path, keeping, fast_dev_run=True)
    assert keeping.points == []
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("metrics", "options", "message"),
    [
        ({"val/loss": "min"}, {}, "at least two metrics"),
        ({"val/loss": "min", "val/accuracy": "high"}, {}, "must be 'max' or 'min', not {'val/accuracy': 'high'}"),
        (METRICS, {"filename": "{step}-{val/loss}"}, "and may contain {epoch}, nothing else: not '{step}-{val/loss}'"),
        (METRICS, {"filename": "{epoch}"}, "must contain {step}"),
    ],
)
def test_wrong_arguments_fail_at_construction(metrics, options, message):
    with pytest.raises(ValueError, match=message):
        ParetoCheckpoint(metrics, **options)


@pytest.mark.parametrize("within", ["../elsewhere.ckpt", "../../elsewhere.ckpt", "sub/../../elsewhere.ckpt"])
def test_a_point_of_a_checkpoint_removes_no_file_of_another_folder(within, tmp_path):
    """A resumed run takes its points from the file: a path in it may begin with the folder, and lead out of it."""
    first = unplotted(dirpath=tmp_path / "a" / "b")
    runner = fit(tmp_path, first, epochs=1)
    other = (first.folder / within).resolve()
    other.touch()
    state = first.state_dict()
    state["points"][0]["path"] = str(first.folder / within)
    first.load_state_dict(state)
    runner.fit_loop.max_epochs = 7
    runner.fit(logging(ROWS), loader(), loader())
    assert epochs(first) == [3, 5, 6]
    assert other.exists()
