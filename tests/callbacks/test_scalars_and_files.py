"""What other callbacks, the loggers, the folder and a resumed run see."""

import json
import re
import warnings

import pytest
import torch
from examples import Everything
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from setting import PACKAGES, Points, balanced, data, loader, messages, module, monitor, trainer, vit
from torch import nn

from lrptrain.findings.announcement import look_at
from lrptrain.loggers import read_events, read_findings, read_samples
from lrptrain.metrics.localization import LOCALIZATION_METRICS
from lrptrain.monitor.summary import logged_metrics
from lrptrain.relevance import RelevanceWarning

FOCUS = "relevance/label/energy_pointing_game"
COSTS = {"relevance/seconds", "relevance/cost_share"}
LOGGED = "relevance/record_mb"


def fit(folder, *callbacks, ckpt=None, **options):
    runner = trainer(folder, *callbacks, **options)
    torch.manual_seed(1)
    runner.fit(module(net=balanced(), lr=1e-7, class_names=["a", "b", "c"]), loader(), loader(), ckpt_path=ckpt)
    return runner


def test_every_key_starts_alike_and_is_a_float(tmp_path):
    runner = fit(tmp_path, monitor(on_error="raise"))
    keys = set(runner.callback_metrics)
    assert all(key.startswith("relevance/") for key in keys)
    measures = [metric.key for metric in LOCALIZATION_METRICS]
    expected = {f"relevance/{target}/{name}" for target in ("label", "predicted") for name in measures}
    expected |= {
        f"relevance/{target}/{measures[0]}_per_class/{name}" for target in ("label", "predicted") for name in "abc"
    }
    plain = ["chance", "accuracy", "confidence", "samples", "findings", "reliance", "any_reliance", "failures"]
    plain.append("left_out")
    assert keys == expected | COSTS | {f"relevance/{name}" for name in plain}
    assert runner.callback_metrics["relevance/chance"] == 0.25
    assert 0 < runner.callback_metrics["relevance/cost_share"] < 1


def folders_of(keys):
    return {"/".join(key.split("/")[:depth]) for key in keys for depth in range(1, key.count("/") + 1)}


def test_no_key_is_a_folder_of_others(tmp_path):
    """Loggers that keep a file per key, such as MLflow's, could not write both."""
    logger = Points()
    watching = [monitor(on_error="raise", mixing_ratios=True), monitor(on_error="raise", name="second")]
    runner = trainer(tmp_path, *watching, logger=logger, log_every_n_steps=1)
    groups = {**data(), "group": torch.arange(24) % 2}
    torch.manual_seed(1)
    runner.fit(module(class_names=["a", "a/b", "a_b"]), loader(), loader(groups))
    keys = {key for _, row in logger.rows for key in row}
    assert keys >= {f"relevance/label/energy_pointing_game_per_class/{name}" for name in ("a", "a_b_1", "a_b_2")}
    assert keys >= {"relevance/accuracy_per_group/0", "relevance/second/label/auprc", "relevance/mixing/block_0"}
    assert not keys & folders_of(keys)
    plain = {key.removeprefix("relevance/").removeprefix("second/") for key in keys if key.startswith("relevance/")}
    undeclared = [key for key in plain if not any(each.matches(key) for each in logged_metrics())]
    assert not undeclared


def test_monitors_whose_keys_would_be_in_each_others_way_are_refused(tmp_path):
    with pytest.raises(ValueError, match="name='accuracy' is what another RelevanceMonitor logs a value as"):
        fit(tmp_path, monitor(), monitor(name="accuracy"))
    fit(tmp_path, monitor(name="accuracy"))


def test_mixing_ratios_per_block_on_request(tmp_path):
    runner = fit(tmp_path, monitor(on_error="raise", mixing_ratios=True))
    ratios = [float(runner.callback_metrics[f"relevance/mixing/block_{number}"]) for number in (0, 1)]
    assert "relevance/mixing/block_2" not in runner.callback_metrics
    assert all(0 < ratio < 1 for ratio in ratios)
    assert ratios[0] != ratios[1]


def test_checkpoints_and_early_stopping_follow_the_scalars(tmp_path):
    kept = ModelCheckpoint(tmp_path, monitor=FOCUS, mode="max", save_top_k=-1)
    stopping = EarlyStopping(FOCUS, mode="max", patience=1, min_delta=1.0, strict=True)
    watching = monitor(on_error="raise", every_n_epochs=2)
    runner = fit(tmp_path, kept, stopping, watching, max_epochs=4, enable_checkpointing=True)
    assert runner.current_epoch == 1 + 1  # nothing gets better by 1
    assert len(kept.best_k_models) == 2
    assert kept.best_model_score == max(e["scalars"][FOCUS] for e in read_events(watching.folder))


def test_the_folder_reads_back(tmp_path):
    watching = monitor()
    runner = fit(tmp_path, watching)
    assert watching.folder == tmp_path / "relevance" / "run"
    events, rows = read_events(watching.folder), read_samples(watching.folder)
    assert [event["epoch"] for event in events] == [0, 1]
    assert events[1]["scalars"][FOCUS] == pytest.approx(runner.callback_metrics[FOCUS].item(), abs=1e-6)
    assert set(events[1]["scalars"]) == set(runner.callback_metrics) | {LOGGED}
    assert 0 < events[0]["scalars"][LOGGED] < events[1]["scalars"][LOGGED] < 0.1
    assert len(list(watching.folder.glob("inputs/*.json"))) == 8
    assert len(rows["sample_id"]) == 16
    assert len(rows["map_label"][0]) == 16
    assert read_findings(watching.folder) == watching.findings
    assert len(list(watching.folder.glob("pictures/epoch_0001_*/*.png"))) == 2
    settings = json.loads((watching.folder / "run.json").read_text())
    assert settings["class_names"] == ["a", "b", "c"]
    assert settings["model"] == "Classifier"


def told(folder):
    """All but the costs."""
    events = read_events(folder)
    for event in events:
        event["scalars"] = {key: value for key, value in event["scalars"].items() if key not in COSTS | {LOGGED}}
    return events, read_samples(folder), read_findings(folder)


def test_a_resumed_run_continues_as_if_nothing_had_been(tmp_path):
    options = {"every_n_epochs": 3, "run_name": None, "cues": [Everything()], "min_effect": 1e-6, "max_samples": 12}
    whole, first, second = (monitor(**options) for _ in range(3))
    fit(tmp_path / "whole", whole, max_epochs=4)
    kept = ModelCheckpoint(tmp_path, save_last=True, save_top_k=0)
    fit(tmp_path / "parts", first, kept, max_epochs=2, enable_checkpointing=True)
    ckpt = str(tmp_path / "last.ckpt")
    torch.load(ckpt, weights_only=True)
    runner = fit(tmp_path / "parts", second, EarlyStopping(FOCUS, mode="max", patience=9), max_epochs=4, ckpt=ckpt)
    assert runner.current_epoch == 4
    assert second.folder == first.folder
    events, samples, findings = told(second.folder)
    # The first part has ended with an evaluation of its own, as its last epoch was passed over.
    assert [event["epoch"] for event in events] == [0, 1, 3]
    kept_rows = [row for row, epoch in enumerate(samples["epoch"]) if epoch != 1]
    samples = {name: [column[row] for row in kept_rows] for name, column in samples.items()}
    assert ([event for event in events if event["epoch"] != 1], samples, findings) == told(whole.folder)
    assert {finding.first_epoch for finding in second.findings} == {0}


def test_a_monitor_may_join_a_run_that_had_none(tmp_path):
    kept = ModelCheckpoint(tmp_path, save_last=True, save_top_k=0)
    fit(tmp_path, kept, enable_checkpointing=True)
    watching = monitor(on_error="raise")
    fit(tmp_path, watching, max_epochs=3, ckpt=str(tmp_path / "last.ckpt"))
    assert [event["epoch"] for event in read_events(watching.folder)] == [2]


def test_validate_writes_beside_the_run_it_validates(tmp_path):
    package = PACKAGES[1]
    watching = monitor()
    runner = trainer(tmp_path, watching, package=package, max_epochs=1)
    pl_module = module(package)
    runner.fit(pl_module, loader(), loader())
    (run,) = (tmp_path / "relevance").iterdir()
    before = told(run)
    with messages() as lines:
        runner.validate(pl_module, loader(), verbose=False)
    assert watching.folder.name == "run-validate"
    (said,) = (" ".join(line.split()) for line in lines if "this validation" in line)
    assert re.match("RelevanceMonitor: no .* this validation, on 8 samples", said)
    assert said.endswith(f"See: {look_at(watching.folder)}")
    assert told(run) == before
    assert len(read_samples(watching.folder)["sample_id"]) == 8


def test_validation_within_an_epoch_is_evaluated_each_time(tmp_path):
    logger = Points()
    fit(tmp_path, monitor(), max_epochs=1, val_check_interval=2, logger=logger, log_every_n_steps=1)
    # After two and four of five batches, and of the weights that the fifth has left.
    assert [step for step, row in logger.rows if FOCUS in row] == [1, 3, 4]


def test_two_monitors_of_different_methods_keep_their_own_state(tmp_path):
    pair = monitor(name="lrp"), monitor(name="gradient", method="input_x_gradient")
    kept = ModelCheckpoint(tmp_path, save_last=True, save_top_k=0)
    runner = fit(tmp_path, *pair, kept, max_epochs=1, enable_checkpointing=True)
    for one in pair:
        share = runner.callback_metrics[f"relevance/{one.config.run.name}/label/energy_pointing_game"]
        assert float(share) == pytest.approx(
            read_events(one.folder)[0]["scalars"][f"{one.config.prefix}/label/energy_pointing_game"]
        )
    assert pair[0].folder != pair[1].folder
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["callbacks"]
    assert {pair[0].state_key, pair[1].state_key} <= set(state)


def cumulative_vit():
    """A ViT with an operation through which no relevance passes, so that the default method cannot serve it."""

    class Cumulated(nn.Module):
        def forward(self, tokens):
            return torch.logcumsumexp(tokens, 1)

    net = vit()
    net.norm_pre = Cumulated()
    return net


def test_the_run_keeps_to_the_method_that_the_sanity_check_chose_and_names_it(tmp_path):
    watched = monitor()
    with messages() as lines, warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        end = trainer(tmp_path, watched, max_epochs=2)
        end.fit(module(net=cumulative_vit()), loader(), loader())
    assert watched.failures == 0
    assert {each.method for each in watched.scored} == {"generic_attention"}
    assert json.loads((watched.folder / "run.json").read_text())["method"] == "generic_attention"
    assert sum("maps are by generic_attention" in line for line in lines) == 1
    engine = [str(each.message) for each in given if issubclass(each.category, RelevanceWarning)]
    assert sum("default method" in message for message in engine) == 1, engine
    # The key of the state is that of the arguments: what was chosen is in the state, and a resumed run keeps to it.
    state = watched.state_dict()
    resumed = monitor()
    assert resumed.state_key == watched.state_key
    resumed.load_state_dict(state)
    assert resumed.state_dict()["method"] == "generic_attention"


@pytest.mark.filterwarnings("ignore::lrptrain.RelevanceWarning")
def test_without_a_sanity_check_the_first_evaluation_chooses(tmp_path):
    watched = monitor(class_maps=3)
    trainer(tmp_path, watched, max_epochs=1, num_sanity_val_steps=0).fit(
        module(net=cumulative_vit()), loader(), loader()
    )
    assert watched.failures == 0
    assert watched.state_dict()["method"] == "generic_attention"
    assert list((watched.folder / "class_maps").glob("*.parquet"))
