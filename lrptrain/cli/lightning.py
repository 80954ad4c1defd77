"""LightningCLI with any model and data, this project's by their short names."""

import warnings
from collections.abc import Sequence
from typing import Any

from lrptrain.extras import require


def lightning_cli(args: Sequence[str], **options: Any) -> Any:
    """Run LightningCLI.

    Lightning's own reads the hyperparameters of `--ckpt_path`, and imports the classes and functions that they name.
    Here the config alone says what is made, and of a checkpoint no objects are unpickled.

    Args:
        args: Arguments as typed behind the command.
        **options: Options of `LightningCLI`.

    Returns:
        The `LightningCLI`, with `model`, `datamodule` and `trainer`.
    """
    cli = require("pytorch_lightning.cli", "cli").LightningCLI
    from pytorch_lightning import LightningDataModule, LightningModule

    import lrptrain.callbacks
    import lrptrain.data
    import lrptrain.models  # noqa: F401  (their classes may be named without the module)

    class Guarded(cli):  # type: ignore[misc, valid-type]
        config: Any

        def _parse_ckpt_path(self) -> None:
            options = self.config[self.config["subcommand"]]
            if options.get("ckpt_path") and options.get("weights_only") is None:
                options["weights_only"] = True  # of an address, too, where Lightning would unpickle anything

    with warnings.catch_warnings():
        # LightningCLI warns of arguments that are not those of the process.
        warnings.filterwarnings("ignore", message="LightningCLI's args parameter is intended")
        any_class = {"subclass_mode_model": True, "subclass_mode_data": True}
        return Guarded(LightningModule, LightningDataModule, **any_class, args=list(args), **options)
