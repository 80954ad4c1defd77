"""Checkpoints of every trade-off that is worth keeping."""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from math import isnan
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from lrptrain.callbacks.base import Checkpoint, inform, warn
from lrptrain.trainers.pareto import (
    Direction,
    ParetoPoint,
    check_directions,
    claim_folder,
    pareto_front,
    read_points,
    values_of,
    write_front,
)

if TYPE_CHECKING:
    import pytorch_lightning as pl


class ParetoCheckpoint(Checkpoint):
    """Keeps the checkpoints of the Pareto front: of the validations that no other one dominates.

    A validation dominates another if it is as good in every metric and better in one; of equal ones, the first is
    kept. Where guidance gives away accuracy for focus, the front shows what each share of focus costs, and every point
    of it can be loaded. Beside the checkpoints lie `front.json` and a plot of it, `front.png`.

    The metrics are read at the end of every validation in `fit`, so all of them should be computed in each: a value
    that is not logged anew is the last one. Lightning adds no `ModelCheckpoint` of its own where there is this one, and
    knows it for `ckpt_path="best"`; where `pytorch_lightning` is installed, a trainer of `lightning.pytorch` does not.

    Args:
        metrics: Which are logged (`trainer.callback_metrics`), and whether "max" or "min" is better; at least two,
            such as `{"val/accuracy": "max", "relevance/label/energy_pointing_game": "max"}`. The plot shows the first
            two, and a third as colour.
        dirpath: A local folder for the files; else `<default_root_dir>/pareto/<version of the logger>`, or `run`
            without one. It is numbered if another run's front is there; a resumed run continues its own.
        filename: Without ending; `{step}` and, if wanted, `{epoch}` are put in.
        plot: Draw `front.png`; left out where matplotlib is missing.

    Attributes:
        points: All validations, as `ParetoPoint`.
        front: The points with a checkpoint, in order of time.
        folder: Where the files are; None before the first.
        best_model_path: The front's checkpoint that is best in the first metric, for `ckpt_path="best"`.

    Raises:
        ValueError: At construction, or at the end of the first validation if a metric is not logged.
    """

    points: list[ParetoPoint]
    folder: Path | None
    best_model_path: str

    def __init__(
        self,
        metrics: Mapping[str, Direction],
        dirpath: str | Path | None = None,
        filename: str = "epoch_{epoch:04d}_step_{step:06d}",
        plot: bool = True,
    ) -> None:
        super().__init__()
        check_directions(metrics)
        # e.g. "epoch_{epoch:04d}" has the fields {"epoch"}. Without the step two points of an epoch would share a file.
        fields = {field for _, field, *_ in Formatter().parse(filename) if field is not None}
        if "step" not in fields or fields - {"step", "epoch"}:
            raise ValueError(
                f"filename must contain {{step}} and may contain {{epoch}}, nothing else: not {filename!r}"
            )
        filename.format(epoch=0, step=0)  # a wrong format raises now, not at the first checkpoint
        self.metrics = dict(metrics)
        self.dirpath = dirpath
        self.filename = filename
        self.plot = plot
        self._fits = False
        self._root = Path()
        self._start_over()

    @property
    def front(self) -> list[ParetoPoint]:
        """The points whose checkpoint is kept."""
        return [point for point in self.points if point.path is not None]

    @property
    def state_key(self) -> str:
        """Tells several of them apart in a checkpoint, by their metrics."""
        return self._generate_state_key(metrics=self.metrics)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues, in plain types."""
        points = [{**vars(point), "path": point.path and str(point.path)} for point in self.points]
        return {"points": points, "root": str(self._root), "folder": self.folder and str(self.folder)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`. Files of a run that was to write elsewhere are left alone."""
        if not self._fits:
            return  # `trainer.test(ckpt_path=...)` must not take the front back to that epoch
        paths = [point["path"] and Path(point["path"]) for point in state_dict["points"]]
        self.points = [ParetoPoint(**{**p, "path": path}) for p, path in zip(state_dict["points"], paths, strict=True)]
        if state_dict["folder"] and state_dict["root"] == str(self._root):
            self.folder = Path(state_dict["folder"])

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Start over, unless the same trainer goes on."""
        self._fits = stage == "fit"
        if not self._fits:
            return
        if trainer.global_step == 0:
            self._start_over()
        self._root = Path(self.dirpath or Path(trainer.default_root_dir) / "pareto").absolute()

    def on_train_start(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Bring what a checkpoint said and what lies on the disk together; processes must agree on it."""
        self._reconcile(trainer)
        exist = trainer.strategy.broadcast([point.path is not None and point.path.exists() for point in self.points])
        self.points = [
            point if exists else replace(point, path=None) for point, exists in zip(self.points, exist, strict=True)
        ]
        self._find_best()
        if self.folder is not None and trainer.is_global_zero:
            write_front(self.folder, self.points, self.metrics, plot=False)  # a kill may have left the file behind

    def on_validation_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Add a point. Only here are there also the metrics that the module logs at the end of the epoch."""
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        values = self._read(trainer)
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if self.folder is None:
            self.folder = trainer.strategy.broadcast(self._claim(trainer) if trainer.is_global_zero else None)
        assert self.folder is not None
        self._add(trainer, ParetoPoint(trainer.current_epoch, trainer.global_step, values), self.folder)

    def _reconcile(self, trainer: "pl.Trainer") -> None:
        """Take over the validation at which the checkpoint was saved; leave a folder that has seen later ones alone."""
        if self.folder is None:
            return
        # Only the first process reads: the others may see another state of a shared disk.
        written = trainer.strategy.broadcast(read_points(self.folder) if trainer.is_global_zero else None)
        assert written is not None
        last_step = max((point.step for point in self.points), default=-1)
        missing = [point for point in written if point.step > last_step and point.values.keys() == self.metrics.keys()]
        if all(point.step <= trainer.global_step for point in missing):
            self.points += missing  # the checkpoint was saved before this callback had its turn
            return
        # The run has gone on from the checkpoint: this is a branch, and the first one's files are not its own.
        inform(f"ParetoCheckpoint: {str(self.folder)!r} has later points than the checkpoint, and stays as it is")
        self.folder = None

    def _start_over(self) -> None:
        self.points = []
        self.folder = None
        self.best_model_path = ""
        self._warned = False

    def _read(self, trainer: "pl.Trainer") -> dict[str, float]:
        """Return the values of the first process: all processes must decide alike."""
        logged = trainer.callback_metrics
        values = trainer.strategy.broadcast({name: float(logged[name]) for name in self.metrics if name in logged})
        for name in self.metrics:
            if name not in values:
                close = get_close_matches(name, logged)
                hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
                raise ValueError(f"no metric {name!r} after a validation: {hint}Logged are {sorted(logged)}")
        undefined = [name for name, value in values.items() if isnan(value)]
        if undefined and not self._warned:
            self._warned = True
            warn(
                f"{undefined} was nan in epoch {trainer.current_epoch}: such validations are not on the Pareto front. "
                "This warning appears once.",
            )
        return {name: values[name] for name in self.metrics}

    def _claim(self, trainer: "pl.Trainer") -> Path:
        if self.dirpath is not None:
            return claim_folder(self._root)
        version = trainer.logger.version if trainer.logger else None
        name = f"version_{version}" if isinstance(version, int) else str(version or "run")
        return claim_folder(self._root / name)

    def _add(self, trainer: "pl.Trainer", point: ParetoPoint, folder: Path) -> None:
        """Save the point if it is on the front, and remove what it dominates."""
        # One flag per point of the old front, and the last for the new point.
        front = self.front
        *stays_on_front, is_on_front = pareto_front(values_of([*front, point], self.metrics), self.metrics.values())
        if is_on_front:
            name = self.filename.format(epoch=point.epoch, step=point.step)
            point = replace(point, path=folder / f"{name}.ckpt")
        dropped = [old.path for old, stays in zip(front, stays_on_front, strict=True) if not stays]
        self.points = [replace(old, path=None) if old.path in dropped else old for old in self.points] + [point]
        self._find_best()
        if point.path is not None:
            trainer.save_checkpoint(point.path)  # with the state after this point
        # After the new one is safe; and only files of this run's own folder, for a resumed run's point may lie
        # elsewhere.
        for path in dropped:
            if path is not None and path != point.path and path.resolve().parent == folder.resolve():
                trainer.strategy.remove_checkpoint(path)
        if trainer.is_global_zero:
            write_front(folder, self.points, self.metrics, self.plot)

    def _find_best(self) -> None:
        first, direction = next(iter(self.metrics.items()))
        best = (max if direction == "max" else min)(self.front, key=lambda point: point.values[first], default=None)
        self.best_model_path = "" if best is None else str(best.path)
