from dataclasses import replace

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
    sinks = {"WandbLogger": loggers.SINKS[0], "TensorBoardLogger": loggers.SINKS[2]}

    def listening_to(name):
        return lambda logger, record: calls.append((name, record))

    listening = [replace(sink, log_media=listening_to(name)) for name, sink in sinks.items()]
    monkeypatch.setattr(loggers, "SINKS", (*listening, loggers.SINKS[-1]))
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
