"""A tuner fits before any hook of a callback: guidance guides there, too."""

import pytest
import pytorch_lightning as pl
from guided import annotated_data, guidance
from pytorch_lightning.callbacks import LearningRateFinder
from pytorch_lightning.tuner import Tuner
from setting import loader, module, trainer, vit


class Data(pl.LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        self.batch_size = 6
        self.columns = annotated_data(24) | {"group": annotated_data(24)["label"]}

    def train_dataloader(self):
        return loader(self.columns, self.batch_size)


def tuned(checkpointed=False):
    net = vit().double()
    net.set_grad_checkpointing(checkpointed)
    pl_module = module(net=net)
    del type(pl_module).validation_step
    pl_module.lr = 0.01
    return pl_module


@pytest.mark.parametrize(("loss", "tune"), [("swap", "lr_find"), ("energy", "scale_batch_size")])
def test_a_tuner_trains(loss, tune, tmp_path):
    callback, data = guidance(loss), Data()
    runner = trainer(tmp_path, callback, max_epochs=1)
    options = (
        {"num_training": 5, "update_attr": False} if tune == "lr_find" else {"max_trials": 1, "steps_per_trial": 1}
    )
    getattr(Tuner(runner), tune)(tuned(), datamodule=data, **options)
    runner.fit(tuned(), datamodule=data)
    assert runner.global_step == 24 // data.batch_size


def test_the_finder_as_a_callback_trains(tmp_path):
    finder = LearningRateFinder(num_training_steps=5, update_attr=False)
    callback = guidance("swap")
    runner = trainer(tmp_path, callback, finder, max_epochs=1)
    runner.fit(tuned(), datamodule=Data())
    assert callback.failures == 0
    assert runner.callback_metrics["guidance/samples"] == 6


def test_checkpointed_blocks_are_tuned_as_they_are_and_guided_after_it(tmp_path):
    callback, pl_module = guidance("energy"), tuned(checkpointed=True)
    runner = trainer(tmp_path, callback, max_epochs=1)
    Tuner(runner).lr_find(pl_module, datamodule=Data(), num_training=5, update_attr=False)
    runner.fit(pl_module, datamodule=Data())
    assert callback.failures == 0
    assert runner.callback_metrics["guidance/samples"] == 6
