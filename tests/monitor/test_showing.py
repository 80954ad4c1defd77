"""The last evaluation, shown after training, under whichever trainer."""

import sys
from pathlib import Path

import pytest

import lrptrain
from lrptrain.callbacks import RelevanceMonitor, RelevanceMonitorCallback
from lrptrain.findings import announce
from lrptrain.monitor.results import MonitorResults
from lrptrain.render import view

sys.path.insert(0, str(Path(__file__).parents[1] / "callbacks"))
from setting import data, loader, vit


@pytest.mark.parametrize("kind", [RelevanceMonitor, RelevanceMonitorCallback, lrptrain.Monitor])
def test_every_monitor_shows_itself(kind):
    assert kind.show is MonitorResults.show


def test_the_last_evaluation_is_shown(tmp_path, monkeypatch, capsys):
    columns = {name: values[:8] for name, values in data().items()}
    validation = loader(columns, batch_size=8)
    # An untrained model has about as much relevance on the annotations as these have area: far below the bound.
    monitor = lrptrain.Monitor(vit(depth=1), validation, tmp_path, max_samples=8, max_pictures=3, bound=0.9)
    monitor.show()
    assert capsys.readouterr().out.strip() == "No evaluation yet."
    monitor.evaluate(0)
    capsys.readouterr()
    monitor.show(max_samples=2)
    printed = capsys.readouterr().out
    (finding,) = monitor.findings
    assert printed.startswith("Epoch 0: 1 suspected.")
    assert announce([finding])[0] in printed
    assert [line[:1] for line in printed.splitlines()].count("#") == 2  # a caption for each sample
    with pytest.raises(ValueError, match="max_samples must be at least 0, not -1"):
        monitor.show(max_samples=-1)
    pages = []
    monkeypatch.setattr(view, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda shown: pages.append(shown.data))
    monitor.show(max_samples=3)
    assert pages[0].count('src="data:image/png;base64,') == 3
    assert finding._repr_html_() in pages[0]
