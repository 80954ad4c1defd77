import pytest
import pytorch_lightning as pl
import torch

from lrptrain.cli.loading import (
    black_of,
    default_device,
    draw_samples,
    image_size,
    load_data,
    load_model,
    module_path,
    names_in,
)
from lrptrain.data import ImageMaskFolder, PlantedDigits


def test_the_draw_is_fixed_by_the_seed_and_even_over_the_classes():
    data = PlantedDigits(train_size=10, val_size=200)
    first, again, other = (draw_samples(data, "val", 20, seed) for seed in (0, 0, 1))
    ids = [[sample.sample_id for sample in samples] for samples in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]
    assert sorted(sample.label for sample in first) == [digit for digit in range(10) for _ in range(2)]
    assert not torch.equal(first[0].tensors["image"], draw_samples(data, "test", 20, 0)[0].tensors["image"])


def test_black_is_what_the_normalisation_makes_of_zero():
    normalised = ImageMaskFolder("somewhere", mean=(0.5, 0.25, 0.0), std=(0.5, 0.5, 1.0))
    assert black_of(normalised) == [-1.0, -0.5, 0.0]
    assert black_of(PlantedDigits()) == 0.0


def test_the_class_that_the_command_line_saved_is_taken(tmp_path):
    torch.save(
        {
            "hyper_parameters": {"_class_path": "my.Model"},
            "datamodule_hyper_parameters": {"_class_path": "lrptrain.data.PlantedDigits", "val_size": 7},
        },
        tmp_path / "model.ckpt",
    )
    checkpoint = str(tmp_path / "model.ckpt")
    data = load_data(checkpoint, None)
    assert data.sizes["val"] == 7
    assert module_path(checkpoint, is_image=True) == "my.Model"
    torch.save({}, checkpoint)
    assert module_path(checkpoint, is_image=True) == "lrptrain.models.ImageClassifier"
    assert module_path(checkpoint, is_image=False) == "lrptrain.models.TextClassifier"


def test_unknown_data_and_files_are_told(tmp_path):
    torch.save({}, tmp_path / "bare.ckpt")
    with pytest.raises(ValueError, match="--data"):
        load_data(str(tmp_path / "bare.ckpt"), None)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_data("nowhere.ckpt", None)
    with pytest.raises(FileNotFoundError, match=r"no config 'nowhere\.yaml'"):
        load_data("any.ckpt", "nowhere.yaml")
    (tmp_path / "empty.yaml").write_text("model: 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="`data:`"):
        load_data("any.ckpt", str(tmp_path / "empty.yaml"))


class Wrapped(pl.LightningModule):
    """Its model is an attribute: it has no forward of its own."""

    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(2, 3)
        self.head = torch.nn.Linear(3, 4)


def test_the_model_may_be_an_attribute_of_the_module(tmp_path):
    torch.manual_seed(0)
    module = Wrapped()
    torch.save({"state_dict": module.state_dict(), "pytorch-lightning_version": "2.4.0"}, tmp_path / "model.ckpt")
    path = f"{Wrapped.__module__}.Wrapped"
    model = load_model(str(tmp_path / "model.ckpt"), True, path, "head")
    assert isinstance(model, torch.nn.Linear)
    assert torch.equal(model.weight, module.head.weight)
    assert not model.training
    with pytest.raises(ValueError, match="say which with model="):
        load_model(str(tmp_path / "model.ckpt"), True, path, None)
    for absent in ("nowhere.Model", "lrptrain.models.Nothing", "Model"):
        with pytest.raises(ValueError, match=f"--module '{absent}' is not the dotted path"):
            load_model(str(tmp_path / "model.ckpt"), True, absent, None)


def test_a_model_without_a_size_asks_for_one():
    with pytest.raises(ValueError, match="--size"):
        image_size(torch.nn.Linear(2, 2))


def test_small_helpers():
    assert names_in("a, b,a") == ["a", "b"]
    assert default_device("cpu") == torch.device("cpu")
