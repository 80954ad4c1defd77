"""What the command line answers before it works, and how it finds out in which form a model takes images."""

import subprocess
import sys
from importlib.metadata import version
from typing import Any

import own_vision
import pytest
import pytorch_lightning as pl
import torch
import torchvision
from examples import EVIDENCE
from torch import nn
from transformers import BertConfig, ViTImageProcessor

import lrptrain
from lrptrain.cli import main
from lrptrain.cli.checkpoint import Checkpoint
from lrptrain.cli.main import sentence_of
from lrptrain.cli.normalisation import find_black, find_normalisation
from lrptrain.loggers import EpochRecord, write_record
from lrptrain.trainers.naming import find_class_names


def test_help_waits_for_no_library(capsys):
    """Seconds differ between machines; what is imported does not."""
    code = (
        "import sys\nfrom lrptrain.cli.main import VERBS, main\n"
        "for arguments in [[], ['--help'], ['--version'], *([verb, '--help'] for verb in VERBS)]:\n"
        "    try:\n        main(arguments)\n    except SystemExit as ended:\n        assert not ended.code\n"
        "print([name for name in ('torch', 'numpy', 'pytorch_lightning', 'torchmetrics') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    main(["--version"])
    assert capsys.readouterr().out == f"lrptrain {version('lrptrain')}\n"


def test_every_public_name_is_there():
    assert {name for name in lrptrain.__all__ if getattr(lrptrain, name, None) is None} == set()
    assert set(lrptrain.__all__) <= set(dir(lrptrain))
    with pytest.raises(AttributeError, match="nothing"):
        _ = lrptrain.nothing


def interrupted_in_the_trainer(*_: Any) -> None:
    """End as Lightning's trainer ends at Ctrl-C."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        sys.exit(1)


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [interrupted, interrupted_in_the_trainer])
def test_an_interrupt_is_exit_130(stop, monkeypatch):
    monkeypatch.setattr(sys.modules["lrptrain.cli.main"], "_run", stop)
    with pytest.raises(SystemExit) as ended:
        main(["fit"])
    assert ended.value.code == 130


def test_a_typo_in_a_config_is_its_sentence(tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text(
        "model: {class_path: ImageClassifier, init_args: {num_classes: 3}}\n"
        "data: {class_path: PlantedDigits, init_args: {train_sise: 3}}\n",
        encoding="utf-8",
    )
    for arguments in (["fit", "--config", str(config)], ["segment", f"--data={config}"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert capsys.readouterr().err == (
            "lrptrain: data: Problem with given class_path 'lrptrain.data.PlantedDigits': Option 'train_sise' is not "
            f"accepted (see `lrptrain {arguments[0]} --help`)\n"
        )
    assert sentence_of(ValueError("two\nlines")) == "two lines"


def test_check_is_a_function(tmp_path):
    power = {"tells": True, "text": "It does not rely on these alone: the light."}
    write_record(tmp_path, EpochRecord(epoch=3, step=40, findings=[EVIDENCE], power=power))
    result = lrptrain.check(tmp_path)
    assert result
    assert result.epoch == 3
    assert str(result).splitlines()[-1].startswith("passed: 0 shortcuts at epoch 3")


class Steps:
    """A transform of several, as torchvision's `Compose`."""

    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)


class Normalize:
    mean, std = [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]


class Folder(torch.utils.data.Dataset):
    transform = Steps(object(), Steps(Normalize()))

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3, 4, 4), 0


def normalisation(
    module: nn.Module | None = None, module_settings: Any = None, datamodule_settings: Any = None, data: Any = None
) -> Any:
    saved = {"hyper_parameters": module_settings, "datamodule_hyper_parameters": datamodule_settings}
    return find_normalisation(module or nn.Linear(1, 1), Checkpoint("model.ckpt", saved), data)


def test_where_the_normalisation_is_from(tmp_path):
    saved = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
    subset = torch.utils.data.Subset(Folder(), [0, 1])
    for found in (
        normalisation(datamodule_settings=saved),
        normalisation(module_settings=saved),
        normalisation(data=torch.utils.data.DataLoader(subset)),
    ):
        assert (found.mean, found.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    image = torch.rand(3, 4, 4)
    expected = torch.stack([(image[c] - found.mean[c]) / found.std[c] for c in range(3)])
    assert torch.equal(found.apply(image), expected)
    # The data of a datamodule that is here go before the arguments that its module saved.
    assert normalisation(module_settings=saved, data=own_vision.plain).is_identity
    with pytest.raises(ValueError, match="nothing says how the images were normalised"):
        normalisation()
    with pytest.raises(ValueError, match=r"pass --mean and --std \(0 and 1 for images in 0..1\)$"):
        normalisation(data=own_vision.loader())
    itself = nn.Linear(1, 1)
    itself.mean = itself.std = torch.ones(3)
    with pytest.raises(ValueError, match="which it may apply to its images by itself"):
        normalisation(itself)


class Held(torch.utils.data.Dataset):
    """A dataset that holds something, under a name of its own."""

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return torch.randn(3, 4, 4), 0


class Module(pl.LightningDataModule):
    """Says what it knows as attributes of its class."""

    names = ["cat", "dog"]

    def val_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(Held())


class WithNumbers(Module):
    mean, std = Normalize.mean, Normalize.std


class WithTransform(Module):
    preprocessing = Steps(Normalize())


def held(**attributes: Any) -> Any:
    return torch.utils.data.DataLoader(Held(**attributes))


COMPOSED = torchvision.transforms.Compose(
    [torchvision.transforms.ToTensor(), torchvision.transforms.Normalize(Normalize.mean, Normalize.std)]
)
PLACES: dict[str, Any] = {
    "a dataset's own Compose": lambda: held(tf=COMPOSED),
    "its class's": lambda: torch.utils.data.DataLoader(Folder()),
    "one of several splits": lambda: held(augmentations={"train": COMPOSED, "val": COMPOSED}),
    "a list": lambda: held(steps=[object(), Normalize()]),
    "a pipeline of modules": lambda: held(pipeline=nn.Sequential(torchvision.transforms.v2.Normalize(*vars_of()))),
    "a wrapped dataset": lambda: held(dataset=Held(tf=COMPOSED)),
    "joined datasets": lambda: torch.utils.data.DataLoader(
        torch.utils.data.ConcatDataset([Held(tf=COMPOSED), Held(other=COMPOSED)])
    ),
    "an image processor": lambda: held(
        processor=ViTImageProcessor(do_normalize=True, image_mean=Normalize.mean, image_std=Normalize.std)
    ),
    "numbers of a datamodule's class": WithNumbers,
    "a transform of a datamodule's class": WithTransform,
}


def vars_of() -> tuple[list[float], list[float]]:
    return Normalize.mean, Normalize.std


@pytest.mark.parametrize("place", PLACES)
def test_a_normalisation_is_found_wherever_the_data_hold_it(place):
    found = normalisation(data=PLACES[place]())
    assert (found.mean, found.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


class Noise:
    """Adds something, of this mean and standard deviation."""

    mean, std = 0.0, 0.1


class OtherNormalize(Normalize):
    mean = [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    "attributes", [{"noise": Noise()}, {"first": Normalize(), "second": OtherNormalize()}, {"rows": [Normalize()] * 99}]
)
def test_what_may_be_something_else_is_no_normalisation(attributes):
    with pytest.raises(ValueError, match="nothing says how the images were normalised") as refused:
        normalisation(data=held(**attributes))
    # The data are there: to ask for them would lead to the same line.
    assert "--data" not in str(refused.value)
    assert str(refused.value).endswith("pass --mean and --std (0 and 1 for images in 0..1)")


def test_a_datamodules_names_are_those_of_the_classes():
    assert find_class_names(None, [Module()], 2) == ["cat", "dog"]
    assert find_class_names(None, [Module()], 3) is None


def test_black_is_that_of_the_normalisation(capsys):
    """What removed pixels become: (0 - mean) / std, by the same finder as for the command `attribute`."""
    none = Checkpoint("model.ckpt", {})
    subset = torch.utils.data.DataLoader(torch.utils.data.Subset(Folder(), [0, 1]))
    expected = pytest.approx([-0.1 / 0.4, -0.2 / 0.5, -0.3 / 0.6])
    assert find_black(nn.Linear(1, 1), none, subset) == expected
    assert "Normalize of the dataset; removed pixels become black" in capsys.readouterr().out
    saved = Checkpoint("model.ckpt", {"hyper_parameters": {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}})
    assert find_black(nn.Linear(1, 1), saved, own_vision.loader()) == expected
    assert find_black(nn.Linear(1, 1), none, own_vision.plain) == 0
    assert "not normalised: so are the images of the data; removed" in capsys.readouterr().out
    # Of one channel, one number: images may have one.
    grey = Checkpoint("model.ckpt", {"datamodule_hyper_parameters": {"mean": [0.5], "std": [0.25]}})
    assert find_black(nn.Linear(1, 1), grey, own_vision.loader()) == -2
    assert find_black(nn.Linear(1, 1), none, own_vision.loader()) == 0
    assert "nothing says for sure" in capsys.readouterr().out


def test_the_card_of_a_model(tmp_path):
    ViTImageProcessor(image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6]).save_pretrained(tmp_path)
    part = nn.Linear(1, 1)
    part.config = BertConfig.from_dict({"name_or_path": str(tmp_path)})  # type: ignore[assignment]
    assert normalisation(nn.Sequential(part)).mean == (0.1, 0.2, 0.3)
    card = nn.Linear(1, 1)
    card.pretrained_cfg = {"mean": own_vision.MEAN, "std": own_vision.STD}  # type: ignore[assignment]
    # The loader's images are normalised so: it confirms the card, and contradicts another one.
    assert normalisation(card, data=own_vision.loader()).mean == own_vision.MEAN
    assert "if training did otherwise" in normalisation(card).source
    with pytest.raises(ValueError, match="nothing says"):
        normalisation(nn.Sequential(part, card))  # two cards
    with pytest.raises(ValueError, match="are not normalised as"):
        normalisation(part, data=own_vision.loader())


@pytest.mark.parametrize(
    ("low", "high", "contradicts"),
    [
        (0.2, 0.8, False),
        (0.0, 0.6, False),
        (-0.05, 1.05, False),
        (-0.5, 1.0, True),
        (0.0, 1.5, True),
    ],
)
def test_a_card_is_contradicted_by_what_lies_beyond_black_and_white(low, high, contradicts):
    card = nn.Linear(1, 1)
    card.pretrained_cfg = {"mean": [0.5] * 3, "std": [0.4] * 3}  # type: ignore[assignment]
    images = torch.linspace(low, high, 16).view(4, 4).expand(8, 3, 4, 4)
    pairs: Any = [((image - 0.5) / 0.4, 0) for image in images]
    data = torch.utils.data.DataLoader(pairs, batch_size=8)
    if contradicts:
        with pytest.raises(ValueError, match="are not normalised as"):
            normalisation(card, data=data)
    else:
        assert "if training did otherwise, pass --mean and --std" in normalisation(card, data=data).source


def test_images_from_minus_one_to_one_are_those_of_another_card():
    card = nn.Linear(1, 1)
    card.pretrained_cfg = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}  # type: ignore[assignment]
    pairs: Any = [(torch.linspace(-1, 1, 16).view(4, 4).expand(3, 4, 4), 0)]
    data = torch.utils.data.DataLoader(pairs)
    with pytest.raises(ValueError, match="are not normalised as"):
        normalisation(card, data=data)
