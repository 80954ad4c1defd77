import io

import pytest
import pytorch_lightning as pl

from lrptrain.trainers.lightning import _progress as lightning_progress
from lrptrain.trainers.lightning import end_bars
from lrptrain.trainers.progress import no_bar, rich_bar, tqdm_bar


def test_a_row_among_richs_is_hidden_and_used_again():
    rich_console = pytest.importorskip("rich.console")
    rich_progress = pytest.importorskip("rich.progress")
    screen = io.StringIO()
    bars = rich_progress.Progress(console=rich_console.Console(file=screen, width=80, force_terminal=True))
    epoch = bars.add_task("Epoch 0", total=8)
    for total in (64, 32):
        with rich_bar(bars, total) as advance:
            advance(16)
            row = bars.tasks[-1]
            assert (row.completed, row.total, row.visible) == (16, total, True)
        assert not bars.tasks[-1].visible
    # Lightning takes `tasks[id]` for the row of an id: no row is taken away, and one is enough for all evaluations.
    validation = bars.add_task("Validation", total=3)
    assert [task.id for task in bars.tasks] == [epoch, row.id, validation] == [0, 1, 2]


def test_a_bar_of_tqdm_is_gone_in_the_end(capsys):
    with tqdm_bar(2) as advance:
        advance(2)
    shown = capsys.readouterr().err
    assert "Relevance" in shown
    assert shown.endswith(" \r")  # blanks over the bar
    with no_bar(2) as advance:
        advance(2)
    assert capsys.readouterr() == ("", "")


def test_a_bar_of_the_users_own_is_left_alone(monkeypatch):
    class OwnBar(pl.callbacks.ProgressBar):
        progress = 0.5

    monkeypatch.setattr("lrptrain.trainers.lightning.shows_progress", lambda: True)
    trainer = pl.Trainer(callbacks=[OwnBar()], accelerator="cpu", logger=False, enable_checkpointing=False)
    end_bars(trainer)
    assert lightning_progress(trainer) is no_bar
