"""The weights that training leaves are evaluated at its end, with all samples, and the record says so."""

import copy
import json
import warnings

import pytest
import torch
from grouped_options import grouped
from guided_loops import Labelled
from hugging_face import quiet_arguments
from pytorch_lightning.callbacks import (
    Callback,
    EarlyStopping,
    EMAWeightAveraging,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from setting import data, loader, messages, module, monitor, trainer, vit
from torch import nn
from transformers import Trainer

import lrptrain
from lrptrain.callbacks import RelevanceMonitorCallback
from lrptrain.loggers import read_events
from lrptrain.monitor.judging import FindingError


def assert_of(watching, net):
    """What was explained last is what a model answers."""
    assert watching.scored
    with torch.no_grad():
        logits = net.eval()(torch.stack([data()["image"][int(each.sample.sample_id)] for each in watching.scored]))
    answers = torch.stack([torch.from_numpy(each.probabilities) for each in watching.scored])
    assert torch.allclose(logits.softmax(1), answers.float(), atol=1e-5)


def events(watching):
    return read_events(watching.folder)


def kept_in(watching):
    """The evaluation of the kept checkpoint, which is the last one, as the record has it."""
    last = read_events(watching.folder)[-1]
    kept = json.loads((watching.folder / "run.json").read_text())["kept"]
    assert (kept["epoch"], kept["step"]) == (last["epoch"], last["step"])
    return last


class Scores(Callback):
    """Logs a score of each validation: the lowest is the best."""

    def __init__(self, *scores):
        self.scores = scores

    def on_validation_epoch_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            pl_module.log("score", torch.tensor(float(self.scores[trainer.current_epoch])))


def fit(folder, *callbacks, **options):
    runner = trainer(folder, *callbacks, **{"max_epochs": 3, "enable_checkpointing": True, **options})
    torch.manual_seed(1)
    trained = module(class_names=["a", "b", "c"])
    runner.fit(trained, loader(), loader())
    return trained


def best(path):
    net = module()
    net.load_state_dict(torch.load(path, weights_only=False)["state_dict"])
    return net


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The weights of a training without a monitor."""
    return fit(tmp_path_factory.mktemp("alone"), Scores(1, 0, 2)).state_dict()


@pytest.mark.parametrize("budget", [None, 1e-6])
def test_the_best_checkpoint_is_evaluated(budget, alone, tmp_path):
    score = Scores(1, 0, 2)
    checkpoint = ModelCheckpoint(tmp_path, monitor="score", mode="min")
    watching = monitor(budget=budget, on_error="raise")
    with messages() as lines:
        trained = fit(tmp_path, watching, score, checkpoint)
    assert_of(watching, best(checkpoint.best_model_path))
    event = kept_in(watching)
    assert event["weights"] == {"epoch": 1, "step": 9}
    assert (event["epoch"], event["step"]) in ((2, 14), (2, 15))  # at the end, behind an evaluation that is there
    assert [line for line in lines if "the checkpoint that is kept (epoch 1), on 8 samples" in " ".join(line.split())]
    for name, weight in alone.items():
        assert torch.equal(weight, trained.state_dict()[name]), name


def test_weights_that_the_last_evaluation_was_of_are_not_evaluated_again(tmp_path):
    watching = monitor(budget=None, on_error="raise")
    fit(tmp_path, watching, Scores(2, 1, 0), ModelCheckpoint(tmp_path, monitor="score"))
    assert [event["epoch"] for event in read_events(watching.folder)] == [0, 1, 2]
    assert kept_in(watching)["weights"] == {"epoch": 2, "step": 14}
    last = monitor(budget=None, on_error="raise")
    fit(tmp_path / "last", last)
    assert [event["epoch"] for event in read_events(last.folder)] == [0, 1, 2]
    assert kept_in(last)["weights"] == {"epoch": 2, "step": 14}


@pytest.mark.parametrize("options", [{"monitor": "score", "save_top_k": 0}, {}])
def test_a_checkpoint_that_no_value_chooses_is_that_of_the_last_step(options, tmp_path):
    watching = monitor(budget=1e-6, on_error="raise")
    trained = fit(tmp_path, watching, Scores(0, 1, 2), ModelCheckpoint(tmp_path, **options))
    assert_of(watching, trained)
    assert [event["epoch"] for event in read_events(watching.folder)] == [2]


class Removes(Callback):
    """Takes the files of the checkpoints away."""

    def __init__(self, folder):
        self.folder = folder

    def on_train_end(self, trainer, pl_module):
        for path in self.folder.glob("*.ckpt"):
            path.unlink()


def test_a_best_checkpoint_that_is_gone_is_a_failure_that_says_so_and_ends_nothing(tmp_path):
    watching = monitor(budget=None)
    with messages() as lines, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained = fit(
            tmp_path, watching, Scores(0, 1, 2), ModelCheckpoint(tmp_path, monitor="score"), Removes(tmp_path)
        )
    assert watching.failures == 1
    assert [each for each in caught if "failed while loading the best checkpoint" in str(each.message)]
    assert_of(watching, trained)
    assert json.loads((watching.folder / "run.json").read_text())["kept"] is None
    assert [line for line in lines if "epoch 2 that was not kept" in " ".join(line.split())]


class Doubles(Callback):
    """Leaves other weights than the last validation's, as averages kept by hand."""

    def on_train_end(self, trainer, pl_module):
        with torch.no_grad():
            for weight in pl_module.parameters():
                weight.mul_(2)


AVERAGES = {
    "by hand": Doubles,
    "exponential": lambda: EMAWeightAveraging(decay=0.5),
    "stochastic": lambda: StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1),
}


@pytest.mark.filterwarnings("ignore:.*Swapping scheduler")
@pytest.mark.parametrize(
    ("average", "budget", "first"),
    [("by hand", None, False), ("exponential", 1e-6, False), ("stochastic", None, True)],
)
def test_what_other_callbacks_leave_in_the_model_is_evaluated(budget, average, first, tmp_path):
    watching = monitor(budget=budget, on_error="raise")
    others = [AVERAGES[average]()]
    trained = fit(tmp_path, *([watching, *others] if first else [*others, watching]), max_epochs=4)
    assert_of(watching, trained)
    assert "on_train_end" not in vars(trained)
    kept_in(watching)


def test_the_kept_weights_are_judged_by_themselves(tmp_path):
    """A gate asks for two evaluations in a row: those of a part of the samples are none of the whole."""
    watching = monitor(budget=1e-6, on_error="raise", max_samples=60, fail_on="relies", fail_after=2)
    with pytest.raises(FindingError, match="cannot pass after its last evaluation"):  # it has learned nothing
        trainer(tmp_path, watching, max_epochs=2).fit(module(), loader(), loader(data(60)))
    assert [event["scalars"]["relevance/samples"] for event in read_events(watching.folder)] == [16, 16, 60]
    assert watching.core.judging._required(at_end=True) == 1


def test_a_run_whose_kept_weights_were_evaluated_goes_on_from_its_last_checkpoint(tmp_path):
    checkpoint = ModelCheckpoint(tmp_path, save_last=True, save_top_k=0)

    def stops():  # so that each validation is evaluated
        return EarlyStopping("relevance/samples", mode="max", patience=9)

    first = monitor(budget=1e-6, on_error="raise", max_samples=60)
    trainer(tmp_path, first, stops(), checkpoint, max_epochs=2, enable_checkpointing=True).fit(
        module(), loader(), loader(data(60))
    )
    again = monitor(budget=1e-6, on_error="raise", max_samples=60)
    trainer(tmp_path, again, stops(), max_epochs=3).fit(
        module(), loader(), loader(data(60)), ckpt_path=tmp_path / "last.ckpt", weights_only=False
    )
    assert again.folder == first.folder
    moments = [(event["epoch"], event["step"]) for event in read_events(again.folder)]
    assert moments == [(0, 4), (1, 9), (1, 10), (2, 14), (2, 15)]


def train(folder, *callbacks, scores=(), net=None, sets=None, optimizers=(None, None), **options):
    """The Trainer of transformers after a training, whose collator drops the masks."""
    train_rows, rows = (
        [{"pixel_values": x, "labels": y, "mask": m} for x, y, m in zip(*each.values(), strict=True)]
        for each in sets or (data(), data())
    )
    scores = iter(scores)
    arguments = {
        "num_train_epochs": 3, "per_device_train_batch_size": 5, "learning_rate": 1e-2, "eval_strategy": "epoch",
        "save_strategy": "epoch", "logging_strategy": "no", "remove_unused_columns": False,
    }  # fmt: skip

    def collate(chosen):
        return {name: torch.stack([row[name] for row in chosen]) for name in ("pixel_values", "labels")}

    runner = Trainer(
        net or Labelled(vit()),
        quiet_arguments(folder, **{**arguments, **options}),
        train_dataset=train_rows,
        eval_dataset=rows,
        data_collator=collate,
        compute_metrics=lambda _: {"score": next(scores, 0.0)},
        callbacks=list(callbacks),
        optimizers=optimizers,
    )
    runner.train()
    return runner


def callback(**options):
    return RelevanceMonitorCallback(**grouped({"max_samples": 8, "max_pictures": 2, "on_error": "raise", **options}))


def test_the_trainer_of_transformers_has_its_best_weights_evaluated(tmp_path):
    watching = callback(budget=1e-6)
    runner = train(
        tmp_path, watching, scores=(1.0, 3.0, 2.0), load_best_model_at_end=True, metric_for_best_model="score"
    )
    assert_of(watching, runner.model.net)
    event = kept_in(watching)
    assert event["weights"] == {"epoch": 2, "step": 10}  # as the Trainer counts them
    assert event["step"] in (15, 16)
    rows = [row for row in runner.state.log_history if "relevance/samples" in row]
    assert [row["step"] for row in rows] == [each["step"] for each in read_events(watching.folder)]


def test_a_loop_has_the_weights_evaluated_that_it_closes_with(tmp_path):
    torch.manual_seed(1)
    net = vit()
    watching = lrptrain.Monitor(
        net, loader(), tmp_path, max_samples=8, show=lrptrain.Show(max_pictures=2), run=lrptrain.Run(on_error="raise")
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for epoch in range(3):
        for batch in loader():
            nn.functional.cross_entropy(net(batch["image"]), batch["label"]).backward()
            optimizer.step()
            optimizer.zero_grad()
        watching.evaluate(epoch)
        if epoch == 1:
            chosen = copy.deepcopy(net.state_dict())
    net.load_state_dict(chosen)
    watching.close()
    assert_of(watching, net)
    assert kept_in(watching)["weights"] == {"epoch": 1, "step": 1}
    assert len(events(watching)) == 4


@pytest.mark.parametrize("evaluates", [True, False])
def test_a_loop_that_closes_with_what_it_has_evaluated_evaluates_it_once(evaluates, tmp_path):
    with lrptrain.Monitor(
        vit(), loader(), tmp_path, max_samples=8, show=lrptrain.Show(max_pictures=2), run=lrptrain.Run(on_error="raise")
    ) as watching:
        if evaluates:
            watching.evaluate(5)
    assert [event["epoch"] for event in events(watching)] == [5 if evaluates else 0]
    kept_in(watching)
