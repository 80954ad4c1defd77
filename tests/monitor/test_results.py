"""The last evaluation, shown after training, under whichever trainer."""

import pytest
import torch
from inspected import images
from setting import learn, loader, vit
from torch.nn import functional as F

import lrptrain
from lrptrain.callbacks import RelevanceMonitor, RelevanceMonitorCallback
from lrptrain.findings import announce
from lrptrain.monitor.results import MonitorResults
from lrptrain.render import view


@pytest.mark.parametrize("kind", [RelevanceMonitor, RelevanceMonitorCallback, lrptrain.Monitor])
def test_every_monitor_shows_itself(kind):
    assert kind.show is MonitorResults.show


def test_the_last_evaluation_is_shown(tmp_path, monkeypatch, capsys):
    torch.manual_seed(0)
    model = vit(depth=1)
    train = images("corner", 1, 256)
    learn(model, lambda _: F.cross_entropy(model(train["image"]), train["label"]), 60)
    monitor = lrptrain.Monitor(
        model, loader(images("corner"), batch_size=32), tmp_path, show=lrptrain.Show(max_pictures=3)
    )
    monitor.show()
    assert capsys.readouterr().out.strip() == "No evaluation yet."
    monitor.evaluate(0)
    capsys.readouterr()
    monitor.show(max_samples=2)
    printed = capsys.readouterr().out
    fault = next(each for each in monitor.findings if each.is_fault)
    assert printed.startswith("Epoch 0: 1 shortcut")
    assert announce([fault])[0] in printed
    assert [line[:1] for line in printed.splitlines()].count("#") == 2  # a caption for each sample
    with pytest.raises(ValueError, match="max_samples must be at least 0, not -1"):
        monitor.show(max_samples=-1)
    pages = []
    monkeypatch.setattr(view, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda shown: pages.append(shown.data))
    monitor.show(max_samples=3)
    assert pages[0].count("<figure") == 3
    assert fault._repr_html_() in pages[0]
