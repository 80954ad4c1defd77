"""A run that goes on from a checkpoint: one timeline in one folder, and nobody else's files touched."""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from examples import Everything
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import ModelCheckpoint
from setting import balanced, loader, messages, module, monitor, trainer

from lrptrain.dashboard.runs import read_new_events
from lrptrain.dashboard.samples import evaluations
from lrptrain.loggers import read_events, read_samples
from lrptrain.monitor.run import RunPoint, _start_of


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


def contents(folder):
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


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
    assert any("'run' goes on after epoch 0, step 4; 2 later evaluations are dropped" in line for line in lines)
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
    of_model = ("more often than it is sure", "not tested whether")
    assert not [line for line in of_monitor if not any(text in line for text in of_model)]


def test_a_branch_of_a_run_that_ended_has_a_folder_of_its_own(tmp_path):
    first, branch = monitor(), monitor()
    fit(tmp_path / "root", first, max_epochs=3, folder=tmp_path)
    before = contents(first.folder)
    with messages() as lines:
        fit(tmp_path / "root", branch, max_epochs=4, ckpt=tmp_path / "0.ckpt")
    assert contents(first.folder) == before
    assert branch.folder == tmp_path / "root" / "relevance" / "run-2"
    assert any("went on from the checkpoint to its end: this run goes on in 'run-2'" in line for line in lines)
    assert epochs(branch.folder) == [0, 1, 2, 3]
    assert set(read_samples(branch.folder)["epoch"]) == {0, 1, 2, 3}
    about, parent = (json.loads((folder / "run.json").read_text()) for folder in (branch.folder, first.folder))
    shared = {
        "epoch": 0,
        "step": 4,
        "id": json.loads((first.folder / "events.jsonl").read_text().splitlines()[0])["id"],
    }
    assert about["parent"] == {"run": "run", "id": parent["id"], "evaluation": shared}
    assert about["id"] != parent["id"]


def test_a_run_that_ended_goes_on_from_its_end_in_its_own_folder(tmp_path):
    first, second = monitor(), monitor()
    fit(tmp_path / "root", first, max_epochs=2, folder=tmp_path)
    fit(tmp_path / "root", second, max_epochs=3, ckpt=tmp_path / "1.ckpt")
    assert second.folder == first.folder
    assert epochs(first.folder) == [0, 1, 2]


def test_a_run_taken_back_is_not_mixed_with_what_it_was_before(killed, tmp_path):
    fit(tmp_path / "root", monitor(), max_epochs=2, ckpt=tmp_path / "0.ckpt")
    assert epochs(killed) == [0, 1]
    before = contents(killed)
    third = monitor()
    with messages() as lines:
        fit(tmp_path / "root", third, max_epochs=4, ckpt=tmp_path / "2.ckpt")  # of the timeline that was left
    assert any("'run' went on from before the checkpoint: this run goes on in 'run-2'" in line for line in lines)
    assert epochs(third.folder) == [0, 1, 2, 3]
    assert contents(killed) == before


def test_another_name_asks_for_a_branch(killed, tmp_path):
    before = contents(killed)
    branch = monitor(run_name="warmer")
    fit(tmp_path / "root", branch, max_epochs=2, ckpt=tmp_path / "0.ckpt")
    assert branch.folder.name == "warmer"
    assert epochs(branch.folder) == [0, 1]
    assert contents(killed) == before


def test_a_checkpoint_in_another_root_leaves_the_run_of_that_name_alone(killed, tmp_path):
    stranger = monitor()
    fit(tmp_path / "other", stranger, max_epochs=1)
    before = contents(stranger.folder)
    second = monitor()
    fit(tmp_path / "other", second, ckpt=tmp_path / "2.ckpt")
    assert contents(stranger.folder) == before
    assert second.folder == tmp_path / "other" / "relevance" / "run-2"
    assert epochs(second.folder) == [3]


def test_a_run_that_another_process_writes_is_branched(killed, tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        settings = json.loads((killed / "run.json").read_text())
        settings["writer"] |= {"pid": other.pid, "started": _start_of(other.pid)}
        (killed / "run.json").write_text(json.dumps(settings))
        branch = monitor()
        fit(tmp_path / "root", branch, max_epochs=4, ckpt=tmp_path / "2.ckpt")
        other.communicate(b"\n")
    assert branch.folder.name == "run-2"
    assert epochs(branch.folder) == [0, 1, 2, 3]
    assert epochs(killed) == [0, 1, 2]


def test_the_number_of_a_process_that_ended_may_be_anothers(killed, tmp_path):
    settings = json.loads((killed / "run.json").read_text())
    settings["writer"]["pid"] = 1  # there is one, but it started at another time
    (killed / "run.json").write_text(json.dumps(settings))
    second = monitor()
    fit(tmp_path / "root", second, ckpt=tmp_path / "2.ckpt")
    assert second.folder == killed


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
    assert focus(second.folder) == [value for epoch, value in enumerate(focus(whole.folder)) if epoch in expected]
    assert [finding.first_epoch for finding in second.findings] == [finding.first_epoch for finding in whole.findings]


@pytest.mark.parametrize("name", ["../stranger", "a/b", "..", "", "a\\b", 3])
def test_a_checkpoint_does_not_choose_where_files_are_written(name):
    assert RunPoint.from_dict({"name": name, "run_id": "1", "last": None, "pending": None}) is None


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


def test_the_state_is_data(tmp_path):
    fit(tmp_path, monitor(), max_epochs=1, folder=tmp_path)
    state = torch.load(tmp_path / "0.ckpt", weights_only=True)
    (own,) = [value for key, value in state["callbacks"].items() if key.startswith("RelevanceMonitor")]
    assert own["run"]["name"] == "run"
    assert (own["run"]["last"]["epoch"], own["run"]["last"]["step"]) == (0, 4)


def test_what_a_spawned_process_found_is_seen_by_the_one_that_called_fit(tmp_path):
    watching = monitor(cues=[Everything()], min_effect=1e-6, max_samples=24)
    # As `strategy="ddp_spawn"` hands it on: a copy but for what lies in shared memory.
    spawned = pickle.loads(ForkingPickler.dumps(watching))
    fit(tmp_path, spawned, max_epochs=1, learner=module(net=balanced(), lr=1e-7))
    assert watching.folder == spawned.folder == tmp_path / "relevance" / "run"
    assert watching.findings == spawned.findings != []
