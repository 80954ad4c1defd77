"""LightningCLI with any model and data, this project's by their short names."""

import warnings
from collections.abc import Sequence
from typing import Any

from lrptrain.extras import require


def lightning_cli(args: Sequence[str], **options: Any) -> Any:
    """Run LightningCLI.

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

    with warnings.catch_warnings():
        # LightningCLI warns of arguments that are not those of the process.
        warnings.filterwarnings("ignore", message="LightningCLI's args parameter is intended")
        any_class = {"subclass_mode_model": True, "subclass_mode_data": True}
        return cli(LightningModule, LightningDataModule, **any_class, args=list(args), **options)
