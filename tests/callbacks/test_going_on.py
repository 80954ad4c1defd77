"""A run that goes on from a checkpoint: one timeline in one folder, and nobody else's files touched."""

import json
import os
import shutil

import pytest
import torch
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import ModelCheckpoint
from setting import loader, messages, module, monitor, trainer

from lrptrain.dashboard.runs import read_new_events
from lrptrain.dashboard.samples import evaluations
from lrptrain.loggers import read_events, read_samples


class Stop(Callback):
    """Ends training with an error when an epoch starts, as a killed process does."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == self.epoch:
            raise RuntimeError("killed")


def fit(root, watching, max_epochs=4, ckpt=None, stop=None, folder=None, learner=None, **options):
    """Train, keeping the checkpoint of every epoch in `folder`."""
    callbacks = [watching]
    if folder is not None:
        callbacks.append(ModelCheckpoint(folder, "{epoch}", save_top_k=-1, auto_insert_metric_name=False))
    if stop is not None:
        callbacks.append(Stop(stop))
    runner = trainer(root, *callbacks, max_epochs=max_epochs, enable_checkpointing=folder is not None, **options)
    torch.manual_seed(1)
    runner.fit(learner or module(), loader(), loader(), ckpt_path=ckpt)
    return runner


def epochs(folder):
    return [event["epoch"] for event in read_events(folder)]


def focus(folder):
    return [event["scalars"]["relevance/label/energy_pointing_game"] for event in read_events(folder)]


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory):
    """The folder with a run that was killed when epoch 3 began, and its checkpoints."""
    folder, watching = tmp_path_factory.mktemp("killed"), monitor()
    with pytest.raises(RuntimeError, match="killed"):
        fit(folder / "root", watching, stop=3, folder=folder)
    assert watching.folder == folder / "root" / "relevance" / "run"
    assert epochs(watching.folder) == [0, 1, 2]
    return folder


@pytest.fixture
def killed(killed_once, tmp_path):
    """A copy of that run, for one test; its checkpoints lie in `tmp_path`."""
    shutil.copytree(killed_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "root" / "relevance" / "run"


def test_a_killed_run_goes_on_from_an_earlier_checkpoint_in_one_timeline(killed, tmp_path):
    whole = monitor()
    fit(tmp_path / "whole", whole, max_epochs=2)
    offset = read_new_events(killed)["offset"]
    second = monitor()
    with messages() as lines:
        fit(tmp_path / "root", second, max_epochs=2, ckpt=tmp_path / "0.ckpt")
    assert second.folder == killed
    assert any("'run' resumes after epoch 0, step 4; 2 later evaluations are dropped" in line for line in lines)
    assert focus(killed) == focus(whole.folder)
    # Epoch 2 of the run that was killed stands no longer, though its files are there.
    assert len(list(killed.glob("samples/*.parquet"))) == 3
    assert set(read_samples(killed)["epoch"]) == {0, 1}
    assert list(evaluations(killed)) == ["epoch_0000_step_000004", "epoch_0001_step_000009"]
    # A page that had read all of the killed run is given everything anew.
    news = read_new_events(killed, offset)
    assert news["anew"]
    assert [event["epoch"] for event in news["events"]] == [0, 1]
    assert not news["notes"]


def test_a_killed_run_goes_on_from_its_last_checkpoint_without_a_word(killed, tmp_path):
    second = monitor()
    with messages() as lines:
        fit(tmp_path / "root", second, ckpt=tmp_path / "2.ckpt")
    assert second.folder == killed
    assert epochs(killed) == [0, 1, 2, 3]
    of_monitor = [line for line in lines if line.startswith("RelevanceMonitor: ")]
    of_model = ("calibrated probabilities", "not tested whether")
    assert not [line for line in of_monitor if not any(text in line for text in of_model)]


class Takeover(Callback):
    """Another process goes on with the run, as a job does that was queued again while this one still ran."""

    def __init__(self, watching):
        self.watching = watching

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 2:
            settings = json.loads((self.watching.folder / "run.json").read_text())
            settings["writer"] = {"host": "elsewhere", "pid": 1, "key": "another"}
            (self.watching.folder / "run.json").write_text(json.dumps(settings))


def test_a_folder_has_one_writer(tmp_path):
    watching = monitor()
    runner = trainer(tmp_path, watching, Takeover(watching), max_epochs=4)
    runner.fit(module(), loader(), loader())
    assert watching.failures == 0
    assert watching.folder.name == "run-2"
    assert epochs(tmp_path / "relevance" / "run") == [0, 1]
    assert epochs(watching.folder) == [0, 1, 2, 3]


@pytest.mark.parametrize(("call", "dies"), [(1, True), (2, False)])
def test_a_checkpoint_amid_an_evaluation_leads_to_no_doubled_record(call, dies, tmp_path):
    whole = monitor()
    fit(tmp_path / "whole", whole, max_epochs=3)
    first = monitor()
    net = module()
    runner = trainer(tmp_path / "parts", first, Stop(2), max_epochs=3)
    torch.manual_seed(1)
    calls: list[None] = []

    def save(*_):
        # As on a signal of a cluster's scheduler: amid what the monitor computes, which may end before the process.
        if first.core._before_evaluation is not None and runner.current_epoch == 1:
            calls.append(None)
            if len(calls) == call:
                runner.save_checkpoint(tmp_path / "amid.ckpt")
                if dies:
                    raise KeyboardInterrupt

    net.net.register_forward_hook(save)
    with pytest.raises((KeyboardInterrupt, SystemExit) if dies else RuntimeError):
        runner.fit(net, loader(), loader())
    saved = torch.load(tmp_path / "amid.ckpt", weights_only=True)["callbacks"][first.state_key]
    assert saved["evaluated_epoch"] == 0  # the one under way may not come to its end
    assert saved["weights"]["tried"] == saved["weights"]["evaluated"]
    second = monitor()
    fit(tmp_path / "parts", second, max_epochs=3, ckpt=tmp_path / "amid.ckpt")
    assert second.folder == first.folder
    # Lightning does not repeat a validation that was interrupted: what was not evaluated then is left out.
    expected = {0, 2} if dies else {0, 1, 2}
    assert epochs(second.folder) == sorted(expected)
    # What saves amid a forward pass makes calls of its own there: that map is the tape's, not a plan's, to rounding.
    focused = [value for epoch, value in enumerate(focus(whole.folder)) if epoch in expected]
    assert focus(second.folder) == pytest.approx(focused, rel=1e-6)
    assert [finding.first_epoch for finding in second.findings] == [finding.first_epoch for finding in whole.findings]


def test_a_full_disk_leads_to_one_folder(tmp_path, monkeypatch):
    watching = monitor()
    replace = os.replace

    def full(source, target):
        if str(target).endswith("run.json") and watching.core.planner.evaluated_epoch == 0:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(UserWarning, match="settings of the run"):
        fit(tmp_path, watching, max_epochs=3)
    assert [path.name for path in (tmp_path / "relevance").iterdir()] == ["run"]
    assert epochs(watching.folder) == [0, 1, 2]
    assert json.loads((watching.folder / "run.json").read_text())["ended"]
