import subprocess
import sys

import lightning.pytorch.loggers
import pytest
import pytorch_lightning.loggers

from lrptrain import loggers
from lrptrain.loggers import EpochRecord, send

RECORD = EpochRecord(epoch=0, step=0)


@pytest.fixture
def heard(monkeypatch):
    """What each sink was given."""
    calls = []
    for name in ("WandbLogger", "TensorBoardLogger"):
        monkeypatch.setitem(loggers._SINKS, name, lambda experiment, record, name=name: calls.append((name, record)))
    return calls


@pytest.mark.parametrize("module", [pytorch_lightning.loggers, lightning.pytorch.loggers])
def test_lightnings_loggers_find_their_sinks(heard, module, tmp_path):
    class Mine(module.TensorBoardLogger):
        """A user's own."""

    class Offline(module.WandbLogger):
        """Without a run."""

        experiment = None

    for logger in (Mine(tmp_path), module.CSVLogger(tmp_path), Offline(save_dir=tmp_path, offline=True)):
        send(logger, RECORD)
    assert heard == [("TensorBoardLogger", RECORD), ("WandbLogger", RECORD)]


def test_no_logger_is_no_error():
    send(object(), RECORD)


def test_an_error_reaches_the_caller():
    class TensorBoardLogger:
        @property
        def experiment(self):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        send(TensorBoardLogger(), RECORD)


@pytest.mark.parametrize("package", ["findings", "render", "loggers"])
def test_importing_loads_no_logger_and_no_lightning(package):
    heavy = ["lightning", "pytorch_lightning", "wandb", "tensorboard", "pyarrow", "matplotlib", "PIL"]
    code = f"import sys, lrptrain.{package}; print([name for name in {heavy} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
