"""The record of an evaluation: what it is called, where it goes, and what is told of it."""

import json
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
from examples import OPEN, explained, finding
from grouped_options import grouped
from torch import nn

from lrptrain.loggers import read_events
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.evaluation import Evaluation
from lrptrain.monitor.recorder import Recorder, unannounced
from lrptrain.monitor.run import EvaluationKey
from lrptrain.trainers.context import Moment, Output, TrainingContext
from lrptrain.trainers.failures import Failures


def evaluation(probability: float = 0.9, **moment: Any) -> Evaluation:
    samples = [explained(i, (probability, 1 - probability)) for i in range(3)]
    return Evaluation(samples, **{"epoch": 1, "step": 7, **moment})


def test_what_another_monitor_has_told_is_a_line():
    module = nn.Linear(1, 1)
    both = [finding(), OPEN]
    assert unannounced(module, evaluation(), both[:1], "first") == (both[:1], [])
    # In another order of the batches the last digits are others.
    new, lines = unannounced(module, evaluation(0.9 + 2e-5), both, "second")
    assert new == both[1:]
    assert lines == ["second: 1 finding that first has told"]


def test_what_differs_is_announced():
    module = nn.Linear(1, 1)
    unannounced(module, evaluation(), [finding()], "first")
    for another in (
        unannounced(module, evaluation(), [finding(verdict="inconclusive")], "second"),
        unannounced(module, evaluation(0.902), [finding()], "second"),  # other data with the same ids
        unannounced(nn.Linear(1, 1), evaluation(), [finding()], "second"),
        unannounced(module, evaluation(step=8), [finding()], "second"),
    ):
        assert len(another[0]) == 1
        assert not another[1]


def test_a_monitor_tells_again_what_it_has_told_itself():
    """As when a user validates the same weights twice."""
    module = nn.Linear(1, 1)
    for _ in range(2):
        assert unannounced(module, evaluation(), [finding()], "first") == ([finding()], [])
        assert unannounced(module, evaluation(), [finding()], "second") == (
            [],
            ["second: 1 finding that first has told"],
        )


def recorder(**options: Any) -> tuple[Recorder, list[str]]:
    said: list[str] = []
    made = Recorder(MonitorConfig.of("Monitor", grouped({"run_name": "run", **options})), said.append)
    made.reset()
    return made, said


def written(made: Recorder, folder: Any, failures: Failures, *loggers: Any, step: int = 7, **moment: Any) -> Any:
    """One evaluation, written; the module that it is of has a weight."""
    module = nn.Linear(1, 1)
    context = TrainingContext(
        model=module, module=module, device=torch.device("cpu"), moment=Moment(1, step, **moment),
        output=Output(folder, loggers=loggers),
    )  # fmt: skip
    made.key = made.next_key = EvaluationKey.new((1, step))
    done = evaluation(step=step)
    record = made.build(done, [])
    made.write(context, record, done, {"method": "attnlrp"}, {3: "no image"}, failures)
    return record


def test_classes_have_names_and_labels_are_called_so():
    made, _ = recorder()
    assert made.names(evaluation(), []) == ["0", "1"]
    assert made.names(evaluation(), [{"class_names": ["cat", "dog"]}]) == ["cat", "dog"]
    assert recorder(class_names=["a", "b"])[0].names(evaluation(), [{"class_names": ["c", "d"]}]) == ["a", "b"]
    with pytest.raises(ValueError, match="gave no samples"):
        made.names(Evaluation([]), [])


def test_keys_begin_with_the_name_of_the_monitor():
    assert recorder()[0].with_prefix({"relevance/chance": 0.5}) == {"relevance/chance": 0.5}
    assert recorder(name="mine")[0].with_prefix({"relevance/chance": 0.5}) == {"relevance/mine/chance": 0.5}


class Fails:
    """A logger that cannot take a number, and takes pictures and texts."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        raise OSError("no place left")

    def log_text(self, key: str, text: str) -> None:
        self.given.append(key)


class Keeps(Fails):
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.given += metrics

    def save(self) -> None:
        pass


def test_an_evaluation_is_written_and_a_logger_that_fails_keeps_nothing_from_the_others(tmp_path):
    made, said = recorder()
    fails, keeps, failures = Fails(), Keeps(), Failures("warn", "Monitor")
    with pytest.warns(UserWarning, match="logging to Fails: OSError: no place left"):
        written(made, tmp_path, failures, fails, keeps)
    written(made, tmp_path, failures, keeps, step=8)
    assert failures.count == 1
    assert fails.given == ["relevance/findings_table"]  # texts come although numbers do not
    assert keeps.given.count("relevance/accuracy") == 2
    assert sum("has no place for pictures" in line for line in said) == 2, "said once of each kind of logger"
    folder = tmp_path / "relevance" / "run"
    assert made.folder == folder
    assert [event["step"] for event in read_events(folder)] == [7, 8]
    assert json.loads((folder / "left_out.json").read_text()) == {"3": "no image"}
    settings = json.loads((folder / "run.json").read_text())
    assert (settings["method"], settings["model"], settings["class_names"]) == ("attnlrp", "Linear", ["0", "1"])


def test_a_folder_that_cannot_be_made_keeps_nothing_from_the_loggers(tmp_path):
    (tmp_path / "relevance").write_text("a file where the folder should be")
    made, _ = recorder()
    keeps, failures = Keeps(), Failures("warn", "Monitor")
    with pytest.warns(UserWarning, match="failed while writing files"):
        written(made, tmp_path, failures, keeps)
    assert "relevance/accuracy" in keeps.given
    assert made.folder is None


def test_a_resumed_run_goes_on_in_its_folder_and_a_validation_by_itself_does_not(tmp_path):
    made, _ = recorder()
    failures = Failures("raise", "Monitor")
    written(made, tmp_path, failures)
    resumed, _ = recorder()
    resumed.load_state_dict(made.state_dict())
    written(resumed, tmp_path, failures, step=9)
    assert resumed.folder == made.folder
    alone, _ = recorder()
    written(alone, tmp_path, failures, is_training=False)
    assert alone.folder == tmp_path / "relevance" / "run-validate"


def test_what_a_spawned_process_wrote_is_seen_by_the_one_that_started_it(tmp_path):
    made, _ = recorder()
    # As `strategy="ddp_spawn"` hands it on: a copy but for what lies in shared memory.
    shared = pickle.loads(ForkingPickler.dumps(made._spawned_folder))
    spawned, _ = recorder()
    spawned._spawned_folder = shared
    written(spawned, tmp_path, Failures("raise", "Monitor"))
    assert made.run is None
    assert made.folder == spawned.folder
    assert made.findings_of_others() == []
    made.reset()
    assert made.folder is None
