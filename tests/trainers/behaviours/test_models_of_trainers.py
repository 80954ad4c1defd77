"""Models as people train them, under the Trainer of transformers and in loops."""

import copy
from typing import Any

import pytest
import torch
from examples import assert_same, board_of
from grouped_options import grouped
from hugging_face import quiet_arguments
from test_behaviours import FOCUS, pytestmark
from torch import nn
from trained import OPTIONS, Texts, bert, collate, unannotated

import lrptrain
from lrptrain.findings.announcement import look_at
from lrptrain.loggers import read_events

__all__ = ["pytestmark"]


def test_a_compiled_model_stays_compiled(tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 3))
    calls: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        calls.append(graph)
        return graph.forward

    compiled: Any = torch.compile(net, backend=backend)
    batch = {"image": torch.randn(8, 3, 4, 4), "label": torch.arange(8) % 3}
    expected = compiled(batch["image"])
    monitor = lrptrain.Monitor(
        compiled, [batch], tmp_path, **grouped({"on_error": "raise", **{**OPTIONS, "method": "input_x_gradient"}})
    )
    assert monitor.evaluate(0) is not None
    assert torch.equal(compiled(batch["image"]), expected)
    assert len(calls) == 1  # nothing was compiled anew


def test_averaged_weights_are_explained_beside_those_that_are_trained(tmp_path):
    net = bert()
    averaged = copy.deepcopy(net)
    with torch.no_grad():
        averaged.classifier.weight.neg_()
    batches = [collate(Texts(8, 1).rows)]
    both = [
        lrptrain.Monitor(each, batches, tmp_path, **grouped({"name": name, **OPTIONS}))
        for each, name in ((net, "a"), (averaged, "b"))
    ]
    for monitor in both:
        monitor.evaluate(0)
    assert both[0].scalars.keys() == {key.replace("/b/", "/a/") for key in both[1].scalars}
    assert both[0].scored[0].predicted != both[1].scored[0].predicted


def test_the_mode_and_the_gradients_of_a_model_are_left_alone(tmp_path):
    net = bert()
    net.train()
    net.bert.encoder.eval()  # a frozen part
    net(**collate(Texts(4, 0).rows, annotated=False)).loss.backward()
    gradients = {name: x.grad.clone() for name, x in net.named_parameters() if x.grad is not None}
    modes = {name: each.training for name, each in net.named_modules()}
    monitor = lrptrain.Monitor(net, [collate(Texts(8, 1).rows)], tmp_path, **grouped(OPTIONS))
    monitor.evaluate(0)
    assert modes == {name: each.training for name, each in net.named_modules()}
    assert_same(gradients, {name: x.grad for name, x in net.named_parameters() if x.grad is not None})


class Sharded(nn.Module):
    """As FSDP's modules are called, whichever of its versions makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.net = bert()


def test_sharded_parameters_are_refused(tmp_path):
    sharded = type("FullyShardedDataParallel", (Sharded,), {})()
    with pytest.raises(ValueError, match="whole parameters, which FullyShardedDataParallel shards"):
        lrptrain.Monitor(sharded, [], tmp_path)


def partition(net: nn.Module) -> nn.Module:
    """Leave of the parameters what ZeRO-3 leaves, in its engine or by itself (zero.Init): nothing, with these names."""
    for number, parameter in enumerate(net.parameters()):
        shape = parameter.shape
        parameter.data = torch.empty(0)
        vars(parameter).update(ds_id=number, ds_shape=shape, ds_numel=shape.numel(), ds_status="NOT_AVAILABLE")
    return net


def test_parameters_that_deepspeed_partitions_are_refused_in_one_line_before_the_first_step(tmp_path):
    line = r"^DeepSpeed ZeRO-3 shards the parameters of 'bert.embeddings.w.*fully_shard[^\n]*$"
    with pytest.raises(ValueError, match=line):
        lrptrain.Monitor(partition(bert()), [collate(Texts(4, 1).rows)], tmp_path)
    runner = a_trainer(tmp_path, a_callback())
    partition(runner.model)
    with pytest.raises(ValueError, match=line):
        runner.train()
    assert runner.state.global_step == 0
    engine = type("DeepSpeedEngine", (Sharded,), {})()
    with pytest.raises(ValueError, match="needs whole parameters, which DeepSpeedEngine shards: use DDP, or fully_sh"):
        lrptrain.Monitor(engine, [], tmp_path)


@pytest.mark.parametrize(
    ("samples", "message"),
    [([], "no samples"), (3, "must be a DataLoader"), ([{"text": ["a"]}], "no input in a batch")],
)
def test_data_that_cannot_be_read_are_refused(samples, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        lrptrain.Monitor(bert(), samples, tmp_path)


def test_options_that_do_not_exist_are_refused(tmp_path):
    with pytest.raises(TypeError, match="max_sample"):
        lrptrain.Monitor(bert(), [], tmp_path, max_sample=3)
    with pytest.raises(ValueError, match="loggers= has a str"):
        lrptrain.Monitor(bert(), [], tmp_path, loggers=["wandb"])


def a_trainer(folder: Any, *callbacks: Any, **options: Any) -> Any:
    from transformers import Trainer

    sizes = {"num_train_epochs": 2, "per_device_train_batch_size": 4, "learning_rate": 1e-2}
    strategies = {"eval_strategy": "epoch", "save_strategy": "epoch"}
    names = ("eval_dataset", "data_collator", "processing_class")
    of_trainer = {name: options.pop(name) for name in names if name in options}
    return Trainer(
        bert(),
        quiet_arguments(folder, **{**sizes, **strategies, **options}),
        train_dataset=Texts(12, 0),
        callbacks=list(callbacks),
        **{"eval_dataset": Texts(11, 1), "data_collator": unannotated, **of_trainer},
    )


def a_callback(**options: Any) -> Any:
    from lrptrain.callbacks import RelevanceMonitorCallback

    return RelevanceMonitorCallback(**grouped({**OPTIONS, "on_error": "raise", **options}))


def test_a_score_chooses_the_best_checkpoint_and_stops_early(tmp_path):
    from transformers import EarlyStoppingCallback

    monitor = a_callback()
    best = {"metric_for_best_model": FOCUS, "greater_is_better": True, "load_best_model_at_end": True}
    # The monitor comes last: what it measures is there all the same when early stopping looks.
    trainer = a_trainer(tmp_path, EarlyStoppingCallback(3), monitor, num_train_epochs=3, **best)
    trainer.train()
    scores = [event["scalars"][FOCUS] for event in read_events(monitor.folder)]
    assert trainer.state.best_metric == pytest.approx(max(scores))
    metrics = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert all("relevance" not in key for entry in metrics for key in entry)  # hyperparameter searches add metrics up


def test_a_failed_evaluation_is_no_best_one(tmp_path):
    monitor = a_callback(on_error="warn")
    make = monitor.core.explainer.evaluator
    monitor.core.explainer.evaluator = lambda *given: 1 / 0 if monitor.core.reader.is_drawn else make(*given)
    trainer = a_trainer(tmp_path, monitor, metric_for_best_model=f"eval_{FOCUS}", greater_is_better=True)
    with pytest.warns(UserWarning, match="division by zero"):
        trainer.train()
    assert trainer.state.global_step == 6
    assert trainer.state.best_metric in (None, float("-inf"))


def test_restored_callbacks_are_the_same_object(tmp_path):
    monitor = a_callback(tokenizer=Words())
    a_trainer(tmp_path, monitor, num_train_epochs=1).train()
    again = a_callback(tokenizer=Words())
    trainer = a_trainer(tmp_path, again, restore_callback_states_from_checkpoint=True)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert again in trainer.callback_handler.callbacks
    assert [event["epoch"] for event in read_events(again.folder)] == [1, 2]
    assert again.folder == monitor.folder


class Words:
    """A tokenizer, as far as the monitor uses one."""

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"word{number}" for number in ids]

    def save_pretrained(self, folder: str) -> None:
        pass


def test_names_sets_and_tensorboard(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    monitor = a_callback(eval_name="second", name="mine")
    sets = {"first": Texts(6, 2), "second": Texts(11, 1)}
    a_trainer(
        tmp_path, monitor, eval_dataset=sets, processing_class=Words(), report_to=["tensorboard"], num_train_epochs=1
    ).train()
    assert len(read_events(monitor.folder)) == 1
    assert {each.sample.sample_id for each in monitor.scored} - {f"text{number}" for number in range(6)}
    page = next((monitor.folder / "highlights").rglob("*.html")).read_text()
    assert "word5" in page or "word6" in page
    board = board_of(tmp_path / "board")
    assert [point.step for point in board.Scalars("relevance/mine/chance")] == [3]
    assert any(tag.startswith("relevance/mine/highlights/") for tag in board.Tags()["tensors"])
    with pytest.raises(ValueError, match="eval_name='third' is not among"):
        a_trainer(tmp_path, a_callback(eval_name="third"), eval_dataset=sets).train()


def test_an_evaluation_by_itself_has_a_record_of_its_own_and_a_verdict(tmp_path, caplog):
    monitor = a_callback()
    trainer = a_trainer(tmp_path, monitor)
    with caplog.at_level("INFO", "lrptrain"):
        trainer.evaluate()
    assert monitor.folder.name == "run-validate"
    (said,) = (" ".join(each.getMessage().split()) for each in caplog.records if "this validation" in each.getMessage())
    assert said.startswith("RelevanceMonitorCallback: no ")
    assert "this validation, on 8 samples" in said
    assert said.endswith(f"See: {look_at(monitor.folder)}")
    trainer.train()
    assert monitor.folder.name == "run"
    assert [event["epoch"] for event in read_events(monitor.folder)] == [1, 2]


def test_within_a_budget_each_validation_that_the_best_metric_is_of_is_evaluated(tmp_path):
    monitor = a_callback(budget=0.05)
    a_trainer(tmp_path, monitor, num_train_epochs=3, metric_for_best_model="relevance/accuracy").train()
    assert [event["epoch"] for event in read_events(monitor.folder)] == [1, 2, 3]


def test_where_the_budget_pays_for_nothing_the_final_weights_are_evaluated_and_logged(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlflow").as_uri())
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    monitor = a_callback(budget=1e-6)
    loggers = ["mlflow", "tensorboard"]
    trainer = a_trainer(tmp_path, monitor, num_train_epochs=3, save_strategy="no", report_to=loggers)
    trainer.train()
    events = read_events(monitor.folder)
    assert [event["epoch"] for event in events] == [3]
    # The Trainer has ended the run and closed the writer before the final weights are evaluated.
    client = mlflow.MlflowClient()
    (run,) = client.search_runs(["0"])
    assert run.info.status == "FINISHED"
    for key in ("relevance/chance", "relevance/label/energy_pointing_game"):
        points = client.get_metric_history(run.info.run_id, key)
        assert [(point.step, point.value) for point in points] == [
            (event["step"], event["scalars"][key]) for event in events
        ]
    pages = client.list_artifacts(run.info.run_id, "relevance/highlights")
    assert [page.path.rpartition("_")[2] for page in pages] == ["000009.html"]
    board = board_of(tmp_path / "board")
    assert [point.step for point in board.Scalars("relevance/chance")] == [9]
    assert len([entry for entry in trainer.state.log_history if "relevance/samples" in entry]) == 1
