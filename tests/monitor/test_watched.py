"""What cannot be known is nan: of a model at chance, or of too few samples. Nothing keeps an untrained model for it."""

import math
import re
from typing import Any

import pytest
import torch
from grouped_options import grouped
from guided_loops import Labelled
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from setting import Points, loader, messages, module, monitor, trainer, vit
from test_kept_weights import train
from transformers import EarlyStoppingCallback

import lrptrain
from lrptrain.callbacks import RelevanceMonitorCallback
from lrptrain.loggers import read_events

RELIANCE = "relevance/reliance"
UNKNOWN = (RELIANCE, "relevance/findings", "relevance/any_reliance")


def planted(samples=48, seed=0):
    """Images whose class the corner tells, and the annotated evidence does not."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(samples) % 2
    image = torch.randn(samples, 3, 16, 16, generator=generator) * 0.3
    image[label == 1, :, :4, :4] += 3
    mask = torch.zeros(samples, 16, 16, dtype=torch.uint8)
    mask[:, 8:, 8:] = 1
    return {"image": image, "label": label, "mask": mask}


def fit(folder, *callbacks, epochs=3, **options):
    """A training that learns nothing in its first epoch."""
    torch.manual_seed(1)
    trained = module()

    def configure_optimizers():
        optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: float(epoch > 0))]

    trained.configure_optimizers = configure_optimizers
    runner = trainer(folder, *callbacks, max_epochs=epochs, **options)
    runner.fit(trained, loader(planted(), 8), loader(planted(seed=1), 8))
    return runner


def watching(**options):
    return monitor(**{"max_samples": 32, "max_pictures": 0, "on_error": "raise", **options})


def reliances(folder):
    return [event["scalars"][RELIANCE] for event in read_events(folder)]


def test_a_model_at_chance_has_no_reliance_and_a_trained_one_has(tmp_path):
    ours = watching()
    points = Points()
    runner = fit(tmp_path, ours, logger=points, log_every_n_steps=1)
    values = reliances(ours.folder)
    assert values[0] is None
    assert values[-1] > 0.3
    first = read_events(ours.folder)[0]["scalars"]
    assert {first[key] for key in UNKNOWN} == {None}
    assert first["relevance/accuracy"] is not None
    rows = [row for _, row in points.rows if "relevance/accuracy" in row]
    assert not rows[0].keys() & set(UNKNOWN)
    assert rows[-1].keys() >= set(UNKNOWN)
    assert float(runner.callback_metrics[RELIANCE]) == pytest.approx(values[-1])


def test_a_checkpoint_of_the_least_reliance_is_none_of_the_untrained_model(tmp_path):
    kept = ModelCheckpoint(tmp_path, monitor=RELIANCE, mode="min")
    ours = watching()
    with messages() as lines:
        fit(tmp_path, ours, kept, enable_checkpointing=True)
    assert "epoch=0" not in kept.best_model_path
    assert kept.best_model_score is not None
    assert math.isfinite(float(kept.best_model_score))
    said = [line for line in lines if "is nan while the model is no better than guessing" in line]
    assert said == [
        "RelevanceMonitor: 'relevance/reliance' is nan while the model is no better than guessing, or samples are too "
        "few: ModelCheckpoint takes that for the worst value"
    ]


def test_early_stopping_that_ends_at_nan_is_refused_with_what_works(tmp_path):
    with pytest.raises(ValueError, match="EarlyStopping would end training") as refused:
        fit(tmp_path / "refused", watching(), EarlyStopping(RELIANCE, mode="min", patience=5))
    line = str(refused.value)
    assert "\n" not in line
    pasted = re.search(r"EarlyStopping\('.*\)$", line)
    assert pasted
    runner = fit(tmp_path, watching(), eval(pasted[0], {"EarlyStopping": EarlyStopping}))
    assert runner.current_epoch == 3


def test_a_checkpoint_of_the_worst_value_is_warned_of(tmp_path):
    worst = ModelCheckpoint(tmp_path, monitor="relevance/label/energy_pointing_game_per_class/0", mode="min")
    with pytest.warns(UserWarning, match="the wrong way, as higher is better: ModelCheckpoint") as caught:
        fit(tmp_path, watching(), worst, epochs=1, enable_checkpointing=True)
    (pasted,) = (m[0] for each in caught if (m := re.search(r"ModelCheckpoint\(monitor=.*\)", str(each.message))))
    kept = eval(pasted, {"ModelCheckpoint": ModelCheckpoint})
    kept.dirpath = str(tmp_path / "pasted")
    fit(tmp_path, watching(), kept, epochs=1, enable_checkpointing=True)  # warnings are errors


def test_what_is_never_known_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"needs tests: RelevanceMonitor\(\) without cues=None"):
        fit(
            tmp_path,
            watching(cues=None),
            ModelCheckpoint(tmp_path, monitor=RELIANCE),
            enable_checkpointing=True,
        )
    ours = watching(cues=None)
    fit(tmp_path, ours)
    scalars = read_events(ours.folder)[-1]["scalars"]
    assert scalars[RELIANCE] is None
    assert scalars["relevance/findings"] is None


def test_a_learning_rate_that_goes_by_it_is_said(tmp_path):
    trained = module()

    def configure_optimizers():
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": RELIANCE}}

    trained.configure_optimizers = configure_optimizers
    with messages() as lines:
        trainer(tmp_path, watching(), max_epochs=1).fit(trained, loader(planted(), 8), loader(planted(seed=1), 8))
    assert len([line for line in lines if "ReduceLROnPlateau takes that for the worst value" in line]) == 1


def train_planted(folder, *callbacks, **options):
    net = Labelled(vit())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step >= 6))
    best = {"load_best_model_at_end": True, "metric_for_best_model": f"eval_{RELIANCE}", "greater_is_better": False}
    sizes = {"num_train_epochs": 6, "per_device_train_batch_size": 8}
    given: dict[str, Any] = {"net": net, "sets": (planted(), planted(seed=1)), "optimizers": (optimizer, schedule)}
    return train(folder, *callbacks, **given, **{**sizes, **best, **options})


def test_the_trainer_of_transformers_keeps_no_untrained_model(tmp_path, caplog):
    ours = RelevanceMonitorCallback(
        max_samples=32, show=lrptrain.Show(max_pictures=0), run=lrptrain.Run(on_error="raise"), budget=None
    )
    with caplog.at_level("INFO", "lrptrain"):
        runner = train_planted(tmp_path, ours, EarlyStoppingCallback(6))
    assert reliances(ours.folder)[0] is None
    assert runner.state.best_global_step > 6
    assert math.isfinite(runner.state.best_metric)
    assert ours.scalars["relevance/accuracy"] > 0.8
    said = [each.getMessage() for each in caplog.records if "takes that for the worst value" in each.getMessage()]
    assert len(said) == 1
    assert "metric_for_best_model" in said[0]
    assert not [row for row in runner.state.log_history if math.isnan(row.get(RELIANCE, 0.0))]


def test_the_trainer_of_transformers_is_warned_of_the_default_direction(tmp_path):
    """Without `greater_is_better` larger is better, whatever the metric."""
    options: dict[str, Any] = {"max_samples": 32, "max_pictures": 0, "on_error": "raise", "budget": None}
    ours, again = (RelevanceMonitorCallback(**grouped(options)) for _ in range(2))
    with pytest.warns(UserWarning, match="the wrong way, as lower is better") as caught:
        train_planted(tmp_path, ours, greater_is_better=None, num_train_epochs=1)
    (pasted,) = (m[0] for each in caught if (m := re.search(r"TrainingArguments\(.*\)$", str(each.message))))
    given = eval(pasted.replace("TrainingArguments", "dict"))
    train_planted(tmp_path, again, **given, num_train_epochs=1)  # warnings are errors
