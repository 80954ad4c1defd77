from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from lrptrain.data import PlantedDigits
from lrptrain.models import ImageClassifier

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]

TIMM: dict[str, Any] = {
    "model": "vit_tiny_patch16_224",
    "model_kwargs": {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2},
}
VIT = {
    "model_type": "vit",
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


def trainer(**arguments):
    return pl.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, **arguments
    )


@pytest.fixture(params=["timm", "transformers"])
def model(request):
    torch.manual_seed(0)
    if request.param == "timm":
        return ImageClassifier(10, lr=1e-2, **TIMM)
    return ImageClassifier(10, model=VIT, backend="transformers", lr=1e-2)


@pytest.fixture(scope="module")
def data():
    return PlantedDigits("background", train_size=512, val_size=64, batch_size=64)


def test_training_learns_logs_and_its_checkpoint_rebuilds_the_model(model, data, tmp_path):
    run = trainer(max_epochs=4, enable_checkpointing=False)
    run.validate(model, data, verbose=False)
    before = run.callback_metrics["val/loss"]
    run.fit(model, data)
    assert set(run.callback_metrics) == {"train/loss", "val/loss", "val/accuracy"}
    assert run.callback_metrics["val/loss"] < before - 0.5
    assert run.global_step == 32
    assert run.optimizers[0].param_groups[0]["lr"] < 1e-4
    assert set(run.test(model, data, verbose=False)[0]) == {"test/accuracy"}

    run.save_checkpoint(tmp_path / "model.ckpt")
    again = ImageClassifier.load_from_checkpoint(tmp_path / "model.ckpt", map_location="cpu")
    images = torch.rand(3, 3, 32, 32)
    assert torch.equal(model.eval()(images), again.eval()(images))


def test_accuracies_are_the_share_of_right_answers(model, data):
    data.setup()
    run = trainer(enable_checkpointing=False)
    run.validate(model, data, verbose=False)
    batch = next(iter(data.val_dataloader()))
    with torch.no_grad():
        right = (model.eval()(batch["image"]).argmax(1) == batch["label"]).float().mean()
    assert run.callback_metrics["val/accuracy"] == pytest.approx(right)


def test_a_checkpoint_reloads_without_the_pretrained_weights(tmp_path):
    weights = tmp_path / "weights.pt"
    torch.save(ImageClassifier(10, **TIMM).net.state_dict(), weights)
    model = ImageClassifier(10, pretrained=str(weights), **TIMM)
    run = trainer(max_epochs=0)
    run.strategy.connect(model)
    run.save_checkpoint(tmp_path / "model.ckpt")
    weights.unlink()
    again = ImageClassifier.load_from_checkpoint(tmp_path / "model.ckpt", map_location="cpu")
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in model.state_dict().items())
    warm = ImageClassifier(10, pretrained=str(tmp_path / "model.ckpt"), **TIMM)
    assert torch.equal(warm.net.head.weight, model.net.head.weight)


def test_schedules_and_their_conditions(data):
    with pytest.raises(ValueError, match="schedule"):
        ImageClassifier(10, **{**TIMM, "schedule": "linear"})
    model = ImageClassifier(10, schedule="constant", lr=0.5, weight_decay=0.25, **TIMM)
    model.net.patch_embed.requires_grad_(False)
    optimizer = model.configure_optimizers()
    assert (optimizer.defaults["lr"], optimizer.defaults["weight_decay"]) == (0.5, 0.25)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters())) - 2


def test_one_cycle_needs_an_end(data):
    with pytest.raises(ValueError, match="set max_epochs"):
        trainer(max_epochs=-1, enable_checkpointing=False).fit(ImageClassifier(10, **TIMM), data)


@pytest.mark.parametrize(
    "arguments",
    [
        {"backend": "timm", "model": VIT},
        {"backend": "transformers", "model": VIT, "pretrained": True},
        {"backend": "flax"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(arguments):
    with pytest.raises(ValueError, match="timm takes a model name"):
        ImageClassifier(10, **arguments)
