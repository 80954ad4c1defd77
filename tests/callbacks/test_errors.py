"""Misconfiguration fails before training; a later failure harms nothing."""

import copy
import importlib
import warnings

import pytest
import torch
from setting import PACKAGES, UNSEEING, UNTRAINED, Points, data, loader, module, monitor, trainer, vit
from torch import nn

import lrptrain
from lrptrain.batch.task import OneLabel
from lrptrain.callbacks import ExplanationAudit, RelevanceGuidance, RelevanceMonitor, SegmentationSeeds
from lrptrain.relevance.types import RelevanceWarning


def fit(tmp_path, watching, pl_module=None, columns=None, **options):
    val = columns if isinstance(columns, list) else loader(columns)
    trainer(tmp_path, watching, **options).fit(pl_module or module(), loader(), val)


def without_forward(**children):
    pl_module = module()
    del pl_module.net
    pl_module.scale = nn.Parameter(torch.ones(1))  # for the optimizer
    for name, child in children.items():
        setattr(pl_module, name, child)
    type(pl_module).forward = torch.nn.Module.forward
    return pl_module


@pytest.mark.parametrize(
    ("pl_module", "options", "message"),
    [
        (module(), {"model": "nett"}, "model='nett': Classifier has no such attribute"),
        (module(), {"model": "net.training"}, "is a bool, not a torch module"),
        (without_forward(a=vit(), b=vit()), {}, r"could be any of \['a', 'b'\]: say which with model="),
        (without_forward(), {}, "no child with parameters"),
    ],
)
def test_a_model_that_cannot_be_found_fails_before_the_first_step(pl_module, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        fit(tmp_path, monitor(**options), pl_module, num_sanity_val_steps=0)


def replaced(**columns):
    return {**data(), **columns}


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"picture": data()["image"], "label": data()["label"]}, {}, "no input in a batch with .*batch_adapter"),
        (replaced(mask=torch.zeros(24, 2, 16, 16)), {"region_names": ["a"]}, "2 regions need as many"),
        (replaced(label=torch.ones(24, 5)), {"task": OneLabel(4)}, "reads logits of more than 4 labels"),
        (replaced(label=torch.full((24,), 5)), {}, "target .* is out of range for 3 classes"),
        (data(), {"mean": [0.5] * 2, "std": [0.5] * 2}, "shape|broadcast|channels"),
        (data(), {"dataloader_idx": 1}, "dataloader_idx=1, but there are 1 validation dataloaders"),
    ],
)
def test_a_batch_that_cannot_be_used_fails_in_the_sanity_check(columns, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        fit(tmp_path, monitor(**options), module(**UNSEEING, **UNTRAINED), columns)


@pytest.mark.parametrize("channels", [2, 13])
def test_images_that_cannot_be_drawn_are_refused_with_what_goes_on_without_pictures(channels, tmp_path):
    columns = replaced(image=torch.randn(24, channels, 16, 16))
    with pytest.raises(ValueError, match="continues without pictures") as refused:
        trainer(tmp_path, monitor()).fit(module(net=vit(in_chans=channels)), loader(columns), loader(columns))
    assert "\n" not in str(refused.value)
    for goes_on in ({"max_pictures": 0}, {"channels": (1,) if channels == 2 else (3, 2, 1), "run_name": "drawn"}):
        watching = monitor(**goes_on, on_error="raise")
        trainer(tmp_path, watching).fit(module(net=vit(in_chans=channels)), loader(columns), loader(columns))
        assert watching.folder is not None
        assert watching.scored
        assert any((watching.folder / "pictures").glob("*")) == ("channels" in goes_on)


PNG = 0 * data()["mask"]
PNG[:, 4:12, 3:9] = 255


def test_masks_of_0_and_255_fail_in_a_validation_alone(tmp_path):
    with pytest.raises(ValueError, match="pass `mask > 0`"):
        trainer(tmp_path, monitor()).validate(module(), loader(replaced(mask=PNG)), verbose=False)


def test_entries_that_look_like_the_mask_or_the_label_are_told(tmp_path):
    plain = data()
    batches = [(plain["image"], {"class": plain["label"], "segmentation": PNG > 0})]
    with pytest.warns(UserWarning, match="'class' .* for 'label', 'segmentation' .* for 'mask'"):
        lrptrain.Monitor(vit(), batches, tmp_path)
    adapted = lrptrain.Monitor(vit(), batches, tmp_path, batch_adapter=lambda batch: {"image": batch[0], **batch[1]})
    adapted.close()


def test_a_head_that_begins_with_zeros_is_no_matter_before_training(tmp_path):
    untrained = vit()
    nn.init.zeros_(untrained.head.weight)
    nn.init.zeros_(untrained.head.bias)
    watching = monitor(on_error="raise", method="attnlrp")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=RelevanceWarning)  # the suite lets maps of zeros pass
        trainer(tmp_path, watching, max_epochs=1).fit(module(net=untrained), loader(), loader())
    assert len(watching.scored) == 8
    nn.init.zeros_(untrained.head.weight)
    nn.init.zeros_(untrained.head.bias)
    with pytest.warns(RelevanceWarning, match="the explained logit is 0"):
        lrptrain.attribute(copy.deepcopy(untrained), data()["image"], target=1)


def sharded(package, name, tmp_path):
    """A trainer with a strategy that shards parameters, without the devices it would need."""
    strategies = importlib.import_module(f"{package}.strategies")
    runner = trainer(tmp_path, package=package)
    strategy = object.__new__(getattr(strategies, name))
    runner.__dict__["_accelerator_connector"] = type("Connector", (), {"strategy": strategy})()
    return runner


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("name", ["FSDPStrategy", "DeepSpeedStrategy"])
def test_sharded_strategies_without_dtensors_are_refused(package, name, tmp_path):
    message = f"RelevanceMonitor needs whole parameters, which {name} shards: use DDP, .*ModelParallelStrategy with"
    with pytest.raises(ValueError, match=message):
        monitor().setup(sharded(package, name, tmp_path), module(package), "fit")


@pytest.mark.parametrize("callback", [RelevanceGuidance("energy"), ExplanationAudit(), SegmentationSeeds()])
def test_callbacks_that_do_more_than_monitor_refuse_each_sharded_strategy(callback, tmp_path):
    name = type(callback).__name__
    with pytest.raises(ValueError, match=f"{name} needs whole parameters, which ModelParallelStrategy shards: use DDP"):
        callback.setup(sharded(PACKAGES[0], "ModelParallelStrategy", tmp_path), module(), "fit")


@pytest.mark.parametrize("callback", [RelevanceMonitor(), RelevanceGuidance("swap")])
def test_the_trainer_of_transformers_is_told_what_it_takes(callback, tmp_path):
    from transformers import Trainer, TrainingArguments

    with pytest.raises(ValueError, match=r"RelevanceMonitorCallback\(\)\] and lrptrain.guide\(trainer, \.\.\.\)"):
        Trainer(nn.Linear(2, 2), TrainingArguments(str(tmp_path), report_to=[], use_cpu=True), callbacks=[callback])


def test_a_strategy_is_known_by_its_class_and_not_by_its_name(tmp_path):
    """A plain strategy may be called anything, and one that derives from a sharding one may, too."""
    base = importlib.import_module("pytorch_lightning.strategies")
    runner = sharded(PACKAGES[0], "FSDPStrategy", tmp_path)
    runner.strategy.__class__ = type("Renamed", (base.FSDPStrategy,), {})
    with pytest.raises(ValueError, match="which Renamed shards"):
        monitor().setup(runner, module(), "fit")
    plain = type("NoFSDPStrategy", (base.SingleDeviceStrategy,), {})
    trainer(tmp_path, monitor(), strategy=plain(device="cpu"), max_epochs=1).validate(module(), loader(), verbose=False)


class First(RelevanceMonitor):
    pass


class Second(RelevanceMonitor):
    pass


def test_two_subclasses_of_the_monitor_without_names_are_refused(tmp_path):
    """Lightning tells their states apart by their classes, but they would log the same keys."""
    with pytest.raises(ValueError, match=r"give each a run=lrptrain.Run\(name="):
        trainer(tmp_path, First(), Second()).fit(module(), loader(), loader())
    trainer(tmp_path, First(run=lrptrain.Run(name="a")), Second(run=lrptrain.Run(name="b")), max_epochs=1).fit(
        module(), loader(), loader()
    )


class FailsLater(nn.Module):
    """After the sanity check's, every forward pass with gradients fails in evaluation."""

    def __init__(self):
        super().__init__()
        self.net = vit()
        # Attributes, and what they lead to, are put back behind the monitor; what only a function reaches is not.
        served = iter([True])
        self.fails = lambda: not next(served, False)

    def forward(self, image):
        if torch.is_grad_enabled() and not self.training and self.fails():
            raise RuntimeError("no more relevance")
        return self.net(image)


def weights(tmp_path, watching, **options):
    pl_module = module(net=FailsLater())
    torch.manual_seed(1)
    runner = trainer(tmp_path, *watching, max_epochs=3, **options)
    runner.fit(pl_module, loader(shuffle=True), loader())
    return runner, pl_module.state_dict()


def test_a_failure_is_told_once_counted_and_training_goes_on(tmp_path):
    watching = monitor(targets=["label"])
    with pytest.warns(UserWarning, match="RelevanceMonitor failed while computing relevance: RuntimeError") as caught:
        runner, after = weights(tmp_path / "a", [watching])
    assert len([each for each in caught if "RelevanceMonitor" in str(each.message)]) == 1
    assert watching.failures == 3
    assert runner.callback_metrics["relevance/failures"] == 3
    _, without = weights(tmp_path / "b", [])
    assert all(torch.equal(without[name], value) for name, value in after.items())


def test_files_that_cannot_be_written_keep_nothing_from_the_loggers(tmp_path):
    (tmp_path / "relevance").write_text("a file where the folder should be")
    watching = monitor()
    with pytest.warns(UserWarning, match="failed while writing files"):
        fit(tmp_path, watching)
    assert watching.failures == 2
    assert watching.folder is None


def test_without_a_sanity_check_a_wrong_batch_is_a_failure_like_any_other(tmp_path):
    watching = monitor()
    with pytest.warns(UserWarning, match="mask must be 1"):
        fit(tmp_path, watching, columns=replaced(mask=torch.full((24, 16, 16), 7)), num_sanity_val_steps=0)
    assert watching.failures == 2


def test_a_failure_makes_a_point_in_the_loggers(tmp_path):
    logger = Points()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights(tmp_path, [monitor(targets=["label"])], logger=logger, log_every_n_steps=1)
    logged = [row["relevance/failures"] for _, row in logger.rows if "relevance/failures" in row]
    assert logged == [1.0, 2.0, 3.0]
