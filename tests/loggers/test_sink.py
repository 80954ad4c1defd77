import lightning.pytorch.loggers
import pytest
import pytorch_lightning.loggers

from lrptrain.loggers import EpochRecord, send, send_scalars, what_is_sent
from lrptrain.loggers.sink import _SINKS, Sink, is_named, register, sink_of
from lrptrain.monitor.summary import logged_metrics

RECORD = EpochRecord(epoch=0, step=0)


@pytest.mark.parametrize("module", [pytorch_lightning.loggers, lightning.pytorch.loggers])
def test_lightnings_loggers_find_their_sinks(module, tmp_path):
    class Mine(module.TensorBoardLogger):
        """A user's own."""

    class Offline(module.WandbLogger):
        """Without a run."""

        experiment = None

    loggers = Mine(tmp_path), Offline(save_dir=tmp_path, offline=True), module.CSVLogger(tmp_path)
    sinks = [sink_of(logger) for logger in loggers]
    assert len({id(sink) for sink in sinks}) == 3
    assert [sink.is_last for sink in sinks if sink is not None] == [False, False, True]


def test_a_sink_that_is_registered_comes_before_that_of_any_logger(monkeypatch):
    class MyLogger:
        def log_metrics(self, *_):
            raise AssertionError("it has a sink of its own")

    heard = []
    monkeypatch.setattr("lrptrain.loggers.sink._SINKS", [*_SINKS])
    logger = MyLogger()
    keep = lambda *given: heard.append(given)  # noqa: E731
    register(Sink(serves=lambda each: is_named(each, "MyLogger"), log_scalars=keep, log_media=keep))
    send_scalars(logger, RECORD)
    send(logger, RECORD)
    assert heard == [(logger, RECORD)] * 2


def test_a_logger_without_a_place_for_tables_gets_every_scalar_and_says_what_it_lacks():
    sent = {}

    class Client:
        def log_metrics(self, metrics, step):
            sent.update(metrics)

        def save(self):
            pass

    scalars = {f"relevance/label/energy_pointing_game_per_class/{i}": 0.5 for i in range(51)}
    many = EpochRecord(0, 0, scalars, metrics=logged_metrics())
    send_scalars(Client(), many)
    assert sent == {**many.scalars, "epoch": 0}
    assert what_is_sent(Client(), many) == [
        "Client gets the scalars, but has no place for pictures, texts, tables: they are in the run's folder"
    ]


def test_no_logger_is_no_error_unless_it_is_to_have_scalars():
    send(object(), RECORD)
    with pytest.raises(TypeError, match="no logger"):
        send_scalars(object(), RECORD)


def test_an_error_reaches_the_caller():
    class TensorBoardLogger:
        @property
        def experiment(self):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        send(TensorBoardLogger(), RECORD)
