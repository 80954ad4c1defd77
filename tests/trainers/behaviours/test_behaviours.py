"""What a monitor does is the same under every trainer."""

import json
import warnings

import pytest
import torch
from torch.utils.data import DataLoader
from trained import (
    NAMES,
    OPTIONS,
    TRAINERS,
    Texts,
    Trained,
    Training,
    bert,
    by_lightning,
    by_loop,
    by_transformers,
    collate,
)

import lrptrain
from lrptrain.batch import read_batch
from lrptrain.loggers import read_events
from lrptrain.monitor.gate import FindingError
from lrptrain.monitor.stratified_sample import ValidationSample

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*number of training batches"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory"),
    pytest.mark.filterwarnings("ignore:.*pin_memory"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated"),  # peft 0.21 asks for it
    pytest.mark.filterwarnings("ignore:You defined a `validation_step`"),
]
FOCUS = "relevance/label/energy_pointing_game"


@pytest.fixture(scope="module", params=TRAINERS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def train(name):
    return TRAINERS[name]


@pytest.fixture(scope="module")
def monitored(train, tmp_path_factory) -> Trained:
    """A sound run of two epochs."""
    return train(Training(tmp_path_factory.mktemp("monitored"), {"on_error": "raise"}))


def assert_equal(one, other, path=""):
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_equal(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), path
    else:
        assert one == other, path


# Accelerate and Fabric prepare what a loop then uses: what happens later is the loop's.
in_each_way = pytest.mark.parametrize("train", [by_lightning, by_transformers, by_loop])


def epochs(monitor):
    return [event["epoch"] for event in read_events(monitor.folder)]


def test_training_is_the_same_to_the_bit(train, monitored, tmp_path):
    alone = train(Training(tmp_path))
    assert monitored.monitor.failures == 0
    assert_equal(alone.state, monitored.state)


def test_maps_are_those_of_the_model_as_it_is_then(monitored):
    net = monitored.net.eval()
    rows = {row["sample_id"]: row for row in Texts(11, 1)}
    for each in monitored.monitor.scored:
        batch = collate([rows[each.sample.sample_id]], annotated=False)
        labels = batch.pop("labels")
        alone = lrptrain.attribute(net, batch, target=labels, method=each.method)
        # The monitor explains padded batches: float32 sums in another order, eps 6e-8 over some 1e3 terms of a map.
        assert torch.allclose(
            each.maps["label"][: alone.scores.shape[1]], alone.scores[0].double(), rtol=1e-3, atol=1e-6
        )


def test_all_trainers_have_the_same_sample(monitored):
    """Whatever order a loader has, the sample follows from the places of its samples alone."""
    in_order = ValidationSample(OPTIONS["max_samples"], seed=0)
    for batch in DataLoader(Texts(11, 1), 4, collate_fn=collate):
        in_order.add_batch(read_batch(batch))
    expected = sorted((each.label, each.sample_id) for each in in_order.finish())
    assert [(each.sample.label, each.sample.sample_id) for each in monitored.monitor.scored] == expected


def test_a_run_has_its_record(monitored):
    monitor = monitored.monitor
    assert epochs(monitor) == [0, 1]
    assert monitor.folder.name == "run"
    events = read_events(monitor.folder)
    assert [event["step"] for event in events] in ([3, 6], [2, 5])  # Lightning's logged steps count from 0
    assert events[-1]["scalars"][FOCUS] == pytest.approx(monitored.history[-1][FOCUS])
    assert list((monitor.folder / "highlights").iterdir())
    assert lrptrain.check(monitor.folder, max_severity=1.0).findings == tuple(monitor.findings)


def test_classes_have_the_names_of_the_model(monitored):
    settings = json.loads((monitored.monitor.folder / "run.json").read_text())
    assert settings["class_names"] == NAMES
    assert settings["model"] == "BertForSequenceClassification"
    assert settings["task"] == "classes"


@in_each_way
def test_a_failure_ends_no_training_and_a_bad_sample_is_left_out(train, tmp_path):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        done = train(Training(tmp_path, {"max_samples": 11}, epochs=3, wrong=10, fails_in=1))
    assert done.monitor.failures == 1
    assert epochs(done.monitor) == [0, 2]
    lines = [str(each.message) for each in told]
    assert sum("out of memory" in line for line in lines) == 1
    assert sum("1 sample is left out" in line and "text10" in line for line in lines) == 1
    assert len(done.monitor.scored) == 10


@in_each_way
def test_a_run_goes_on_from_a_checkpoint(train, tmp_path):
    first = train(Training(tmp_path, {}, epochs=1))
    second = train(Training(tmp_path, {}, epochs=2, resumes=True))
    assert second.monitor.folder == first.monitor.folder
    assert epochs(second.monitor) == [0, 1]


@in_each_way
def test_a_gate_ends_training(train, tmp_path):
    with pytest.raises(FindingError, match="stopped by fail_on='suspected'"):
        train(Training(tmp_path, {"fail_on": "suspected", "bound": 0.999, "intervention": None}, epochs=3))
    (events,) = tmp_path.rglob("events.jsonl")
    assert len(events.read_text().splitlines()) == 1


def test_what_cannot_work_is_refused_before_the_first_step(name, train, tmp_path):
    training = Training(tmp_path, {"class_names": ["only one"]}, net=bert())
    before = {key: value.clone() for key, value in training.net.state_dict().items()}
    with pytest.raises(ValueError, match="class_names"):
        train(training)
    assert_equal(before, dict(training.net.state_dict()))


@pytest.mark.parametrize("train", [by_lightning, by_transformers])
def test_without_a_validation_there_is_a_word(train, tmp_path):
    with pytest.warns(UserWarning, match="will evaluate nothing"):
        train(Training(tmp_path, {}, epochs=1, validates=False))
    with pytest.raises(ValueError, match="needs evaluations"):
        train(Training(tmp_path, {"fail_on": "confirmed"}, epochs=1, validates=False))
