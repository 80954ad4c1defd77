"""What a monitor does is the same under every trainer."""

import json
import shutil
import warnings
from functools import partial
from typing import Any

import pytest
import torch
from examples import Everything, assert_same, board_of
from torch import nn
from torch.utils.data import DataLoader
from trained import (
    NAMES,
    OPTIONS,
    TRAINERS,
    Headless,
    OneLogit,
    Pairs,
    Pictures,
    Texts,
    Trained,
    Training,
    Vision,
    bert,
    by_lightning,
    by_transformers,
    collate,
)

import lrptrain
from lrptrain.batch import read_batch
from lrptrain.callbacks import RelevanceMonitorCallback
from lrptrain.loggers import read_events
from lrptrain.monitor.judging import FindingError
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
KNOW_THEIR_END = ("lightning", "transformers")


@pytest.fixture(scope="module", params=TRAINERS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def train(name):
    return TRAINERS[name]


@pytest.fixture(scope="module")
def folder(name, tmp_path_factory):
    """Where the runs write that several tests look at."""
    return tmp_path_factory.mktemp(name)


@pytest.fixture(scope="module")
def monitored(train, folder) -> Trained:
    """A sound run of two epochs."""
    return train(Training(folder / "monitored", {"on_error": "raise"}, board=folder / "board"))


@pytest.fixture(scope="module")
def alone(train, folder) -> Trained:
    """The same training without a monitor."""
    return train(Training(folder / "alone"))


@pytest.fixture(scope="module")
def disturbed(train, folder) -> tuple[Trained, list[str]]:
    """A run of three epochs with a bad sample and a failure, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        done = train(Training(folder / "disturbed", {"max_samples": 11}, epochs=3, wrong=10, fails_in=1))
    return done, [str(each.message) for each in caught]


@pytest.fixture(scope="module")
def no_time(train, folder) -> Trained:
    """A run of three epochs with next to no time for the monitor, of a model that looks where it should."""
    options = {"budget": 1e-6, "on_error": "raise"}
    return train(Training(folder / "no_time", options, epochs=3))


@pytest.fixture(scope="module")
def paired(train, folder) -> Trained:
    """A run on pairs of texts, some of which have no label."""
    net = bert(initializer_range=0.5)  # weights so large that it makes a difference which part a token is of
    options = {"on_error": "raise", "max_samples": 11}
    return train(Training(folder / "paired", options, epochs=1, net=net, texts=Pairs))


def epochs(monitor):
    """Those of the evaluations, counted from the trainer's first on: the Trainer of transformers logs that as 1."""
    first = int(isinstance(monitor, RelevanceMonitorCallback))
    return [event["epoch"] - first for event in read_events(monitor.folder)]


def test_training_is_the_same_to_the_bit(alone, monitored):
    assert monitored.monitor.failures == 0
    assert_same(alone.state["weights"], monitored.state["weights"])


@pytest.mark.parametrize("part", ["gradients", "frozen", "modes", "torch", "numpy", "python"])
def test_gradients_modes_and_random_states_are_left_alone(part, alone, monitored):
    assert_same(alone.state[part], monitored.state[part])


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
    assert lrptrain.check(monitor.folder, max_reliance=1.0).findings == tuple(monitor.findings)


def test_classes_have_the_names_of_the_model(monitored):
    settings = json.loads((monitored.monitor.folder / "run.json").read_text())
    assert settings["class_names"] == NAMES
    assert settings["model"] == "BertForSequenceClassification"
    assert settings["task"] == "classes"


def test_a_failure_ends_no_training(disturbed):
    done, lines = disturbed
    assert done.monitor.failures == 1
    assert epochs(done.monitor) == [0, 2]
    assert sum("out of memory" in line for line in lines) == 1


def test_a_bad_sample_is_left_out(disturbed):
    done, lines = disturbed
    assert sum("1 sample is left out" in line and "text10" in line for line in lines) == 1
    assert len(done.monitor.scored) == 10


def test_a_run_resumes_from_a_checkpoint_and_branches_from_one_that_it_has_passed(train, tmp_path):
    first = train(Training(tmp_path, {}, epochs=1))
    saved = tmp_path.with_name(f"{tmp_path.name}-saved")
    shutil.copytree(tmp_path, saved, ignore=shutil.ignore_patterns("relevance"))
    second = train(Training(tmp_path, {}, epochs=2, resumes=True))
    assert second.monitor.folder == first.monitor.folder
    assert epochs(second.monitor) == [0, 1]
    for path in tmp_path.glob("checkpoint-*"):
        shutil.rmtree(path)
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    branch = train(Training(tmp_path, {}, epochs=2, resumes=True)).monitor
    assert branch.folder != first.monitor.folder
    assert epochs(branch) == [0, 1]
    assert json.loads((branch.folder / "run.json").read_text())["parent"]


def test_tensorboard_has_the_scalars_and_the_texts(monitored, folder):
    board = board_of(folder / "board")
    events = read_events(monitored.monitor.folder)
    assert [x.value for x in board.Scalars(FOCUS)] == pytest.approx([each["scalars"][FOCUS] for each in events])
    assert any(tag.startswith("relevance/highlights/") for tag in board.Tags()["tensors"])


def test_where_the_budget_pays_for_nothing_the_final_weights_are_evaluated(no_time, name):
    # A loop of one's own does not say when it ends: its first evaluation is not put off until then.
    assert epochs(no_time.monitor) == ([2] if name in KNOW_THEIR_END else [0, 2])
    batch = collate(
        [row for row in Texts(11, 1).rows if row["sample_id"] == no_time.monitor.scored[0].sample.sample_id]
    )
    with torch.no_grad():
        final = no_time.net.eval()(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    expected = torch.from_numpy(no_time.monitor.scored[0].probabilities).float()
    assert torch.allclose(final.softmax(1)[0], expected, atol=1e-5)


def test_a_model_without_a_finding_has_none(no_time):
    assert no_time.monitor.findings == []
    # That there is none is known of a model that tells classes apart alone.
    assert {event["scalars"]["relevance/findings"] for event in read_events(no_time.monitor.folder)} <= {0, None}
    assert lrptrain.check(no_time.monitor.folder, max_reliance=0.0).findings == ()


def test_both_parts_of_a_pair_are_read(paired):
    net = paired.net.eval()
    rows = {row["sample_id"]: row for row in Pairs(11, 1).rows}
    changed = 0
    for each in paired.monitor.scored:
        batch = collate([rows[each.sample.sample_id]], annotated=False)
        del batch["labels"]
        of_one_part = net(**{**batch, "token_type_ids": torch.zeros_like(batch["token_type_ids"])}).logits
        probabilities = torch.from_numpy(each.probabilities).float()
        assert torch.allclose(net(**batch).logits.softmax(1)[0], probabilities, atol=1e-5)  # eps is 6e-8
        changed += not torch.allclose(of_one_part.softmax(1)[0], probabilities, atol=1e-3)
    assert changed > 5


def test_a_sample_without_a_label_is_explained_for_its_prediction(paired):
    targets = {int(str(each.sample.sample_id).removeprefix("text")): set(each.maps) for each in paired.monitor.scored}
    assert targets == {i: {"predicted"} if i % 3 == 2 else {"label", "predicted"} for i in range(11)}


def test_one_logit_is_that_of_two_classes(train, tmp_path):
    done = train(Training(tmp_path, {"on_error": "raise", "class_names": NAMES}, epochs=1, net=OneLogit()))
    rows = {row["sample_id"]: row for row in Texts(11, 1).rows}
    assert len(done.monitor.scored) == OPTIONS["max_samples"]
    for each in done.monitor.scored:
        batch = collate([rows[each.sample.sample_id]], annotated=False)
        with torch.no_grad():
            probability = done.net.eval()(**batch).logits.sigmoid().item()
        assert each.probabilities[1] == pytest.approx(probability, abs=1e-5)
        assert each.predicted == (probability > 0.5)


def test_images_and_their_masks_are_read(train, tmp_path):
    done = train(Training(tmp_path, {"on_error": "raise"}, epochs=1, net=Vision(), texts=Pictures))
    assert {tuple(each.maps["label"].shape) for each in done.monitor.scored} == {(4,)}
    assert done.monitor.core.recorder.scalars["relevance/chance"] == 0.5
    for each in done.monitor.scored:
        positive = each.maps["label"].clamp(min=0)
        share = positive[[0, 2]].sum() / positive.sum()  # the left two of four patches
        assert each.values["label/energy_pointing_game"] == pytest.approx(float(share), abs=1e-6)
    assert list((done.monitor.folder / "pictures").iterdir())


def test_masks_of_0_and_255_are_refused_before_the_first_step(train, tmp_path):
    training = Training(tmp_path, {}, net=Vision(), texts=partial(Pictures, evidence=255))
    before = {key: value.clone() for key, value in training.net.state_dict().items()}
    with pytest.raises(ValueError, match="255"):
        train(training)
    assert_same(before, dict(training.net.state_dict()))


def with_adapter() -> nn.Module:
    import peft

    return peft.get_peft_model(bert(), peft.LoraConfig(peft.TaskType.SEQ_CLS, r=2, target_modules=["query", "value"]))


def with_checkpointing(reentrant: bool) -> nn.Module:
    net: Any = bert()
    enable = getattr(net, "activation_checkpointing_enable", None) or net.gradient_checkpointing_enable
    enable({"use_reentrant": reentrant})
    return net


def compiled() -> Any:
    return torch.compile(Vision(), backend="eager")


def assert_harmless(train, folder, make, **options):
    """`make` builds the model."""
    watched = train(Training(folder / "one", {"on_error": "raise"}, epochs=1, net=make(), **options))
    alone = train(Training(folder / "two", epochs=1, net=make(), **options))
    assert watched.monitor.failures == 0
    assert len(watched.monitor.scored) == OPTIONS["max_samples"]
    assert_same(alone.state, watched.state)


# Each is a row in the table of the documentation.


def test_adapters_are_trained_as_ever(train, tmp_path):
    assert_harmless(train, tmp_path, with_adapter)


def test_recomputed_blocks_are_trained_as_ever(train, tmp_path):
    assert_harmless(train, tmp_path, partial(with_checkpointing, reentrant=False))


def test_reentrant_checkpoints_are_trained_as_ever(train, tmp_path):
    """In evaluation mode no block is computed again."""
    assert_harmless(train, tmp_path, partial(with_checkpointing, reentrant=True))


def test_autocast_to_bf16_is_trained_as_ever(train, tmp_path):
    assert_harmless(train, tmp_path, bert, precision="bf16")


def test_a_compiled_model_is_trained_as_ever(train, tmp_path):
    assert_harmless(train, tmp_path, compiled, texts=Pictures)


def test_a_gate_ends_training(train, tmp_path):
    net = bert()
    torch.nn.init.normal_(net.classifier.weight, std=5.0)  # so that it gives several answers
    options = {"fail_on": "inconclusive", "cues": [Everything()]}
    with pytest.raises(FindingError, match="stopped by fail_on='inconclusive' in 2 evaluations in a row"):
        train(Training(tmp_path, options, net=net, epochs=6, texts=Headless))
    (events,) = tmp_path.rglob("events.jsonl")
    assert 2 <= len(events.read_text().splitlines()) < 6


def test_what_cannot_work_is_refused_before_the_first_step(name, train, tmp_path):
    training = Training(tmp_path, {"class_names": ["only one"]}, net=bert())
    before = {key: value.clone() for key, value in training.net.state_dict().items()}
    with pytest.raises(ValueError, match="class_names"):
        train(training)
    assert_same(before, dict(training.net.state_dict()))


@pytest.mark.parametrize("train", [by_lightning, by_transformers])  # a loop that never evaluates knows it
def test_without_a_validation_there_is_a_word(train, tmp_path):
    with pytest.warns(UserWarning, match="will evaluate nothing"):
        train(Training(tmp_path, {}, epochs=1, validates=False))
    with pytest.raises(ValueError, match="needs evaluations"):
        train(Training(tmp_path, {"fail_on": "relies"}, epochs=1, validates=False))
