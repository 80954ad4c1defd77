"""What the command line answers before it works."""

import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest
import pytorch_lightning as pl
from examples import EVIDENCE

import lrptrain
from lrptrain.cli import main
from lrptrain.cli.main import sentence_of
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
    for arguments in (["fit", "--config", str(config)], ["segment", "--config", str(config)]):
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


class Module(pl.LightningDataModule):
    """Says what it knows as attributes of its class."""

    names = ["cat", "dog"]


def test_a_datamodules_names_are_those_of_the_classes():
    assert find_class_names(None, [Module()], 2) == ["cat", "dog"]
    assert find_class_names(None, [Module()], 3) is None
