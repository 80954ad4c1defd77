"""Classifiers of images and texts."""

from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from hugging_face import small_sizes
from torch.utils.data import DataLoader, StackDataset

from lrptrain.data import PlantedDigits
from lrptrain.models import ImageClassifier, TextClassifier

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]

TIMM: dict[str, Any] = {
    "model": "vit_tiny_patch16_224",
    "model_kwargs": {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2},
}
VIT = {**small_sizes(32, layers=2, inner=16), "model_type": "vit", "image_size": 32, "patch_size": 8}


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


BERT = {**small_sizes(32, layers=2), "model_type": "bert", "vocab_size": 20}


@pytest.fixture
def batches():
    """Texts of eight tokens whose label is whether token 7 stands in them."""
    tokens = torch.randint(8, 20, (512, 8), generator=torch.Generator().manual_seed(0))
    label = torch.arange(512) % 2
    tokens[label == 1, 3] = 7
    columns: dict[str, Any] = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "label": label}
    return DataLoader(StackDataset(**columns), batch_size=32)


def test_training_from_a_folder_learns_and_its_checkpoint_outlives_the_folder(batches, tmp_path):
    torch.manual_seed(0)
    folder = tmp_path / "pretrained"
    source = TextClassifier(3, BERT)
    source.net.save_pretrained(folder)
    model = TextClassifier(2, str(folder), {"hidden_dropout_prob": 0.05}, lr=1e-2)
    assert torch.equal(
        model.net.bert.embeddings.word_embeddings.weight, source.net.bert.embeddings.word_embeddings.weight
    )

    modes = []
    model.net.register_forward_pre_hook(lambda module, inputs: modes.append(module.training))
    run = trainer(max_epochs=2, enable_checkpointing=False)
    run.fit(model, batches, batches)
    assert any(modes)
    assert set(run.callback_metrics) == {"train/loss", "val/loss", "val/accuracy"}
    assert run.callback_metrics["val/accuracy"] > 0.95
    assert run.test(model, batches, verbose=False)[0].keys() == {"test/accuracy"}

    run.save_checkpoint(tmp_path / "model.ckpt")
    for file in folder.iterdir():
        file.unlink()
    again = TextClassifier.load_from_checkpoint(tmp_path / "model.ckpt", map_location="cpu")
    batch = next(iter(batches))
    first, second = (each.eval()(batch["input_ids"], batch["attention_mask"]) for each in (model, again))
    assert torch.equal(first, second)
    assert again.net.config.hidden_dropout_prob == 0.05
    assert model.hparams_initial["model"] == str(folder)


def test_padding_does_not_change_the_logits():
    model = TextClassifier(2, BERT).eval()
    tokens = torch.randint(1, 20, (2, 6))
    padded = torch.nn.functional.pad(tokens, (0, 3))
    mask = torch.nn.functional.pad(torch.ones_like(tokens), (0, 3))
    assert torch.allclose(model(tokens, torch.ones_like(tokens)), model(padded, mask), atol=1e-5)


def test_labels_of_several_classes_are_learned_each():
    """A class is there or not, by its colour, whatever the other is."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (64, 2), generator=generator)
    colours = torch.cat([labels, labels[:, :1]], 1)[:, :, None, None]
    images = colours.expand(64, 3, 32, 32) - 0.5 + 0.1 * torch.randn(64, 3, 32, 32, generator=generator)
    torch.manual_seed(0)
    model = ImageClassifier(2, lr=3e-3, **TIMM)
    batches = DataLoader(StackDataset(image=images, label=labels), batch_size=16)  # type: ignore[arg-type]
    trained = trainer(max_epochs=15, enable_checkpointing=False)
    trained.fit(model, batches, batches)
    assert "val/accuracy" not in trained.callback_metrics
    assert trained.callback_metrics["val/average_precision"] > 0.95
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model.eval()(images), labels.float())
    assert trained.callback_metrics["val/loss"] == pytest.approx(loss.item(), rel=1e-3)
    (tested,) = trained.test(model, batches, verbose=False)
    assert tested["test/average_precision"] > 0.95
    with pytest.raises(ValueError, match="labels are of 2 classes, the model has num_classes=3"):
        ImageClassifier(3, **TIMM).training_step({"image": images, "label": labels}, 0)
