"""The command line, `lrptrain COMMAND`: Lightning's `fit`, `validate` and `test`, and the `COMMANDS` below."""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from lrptrain.cli.lightning import lightning_cli
from lrptrain.extras import require

LIGHTNING = {name: f"lrptrain.cli.main.{name}" for name in ("fit", "validate", "test")}
FLAGS = ("--open",)
COMMANDS = {
    "demo": "lrptrain.cli.demo.demo",
    "attribute": "lrptrain.cli.attribute.attribute_file",
    "check": "lrptrain.cli.check.check",
    "compare": "lrptrain.cli.compare.compare",
    "audit": "lrptrain.cli.audit.audit",
    "segment": "lrptrain.cli.segment.segment",
    "dashboard": "lrptrain.dashboard.server.dashboard",
    "report": "lrptrain.dashboard.report.report",
    "wandb-workspace": "lrptrain.loggers.wandb_workspace.wandb_workspace",
}


def main(args: Sequence[str] | None = None) -> None:
    """Run a command.

    Args:
        args: As typed behind `lrptrain`; those of the process by default.
    """
    given = list(sys.argv[1:] if args is None else args)
    if given[:1] and given[0] in LIGHTNING:
        lightning_cli(given)
        return
    known = LIGHTNING | COMMANDS
    wanted = given[:1] if given[:1] and given[0] in COMMANDS else list(known)  # one alone loads only what it needs
    commands: dict[str, Any] = {name: _load(known[name]) for name in wanted}
    try:
        require("jsonargparse", "cli").auto_cli(commands, args=_spelled_out(given), prog="lrptrain")
    except (ValueError, NotImplementedError, ImportError, OSError) as error:
        if not isinstance(error, OSError) and not _is_ours(error):
            raise
        sys.exit(f"lrptrain: {error}")


def _load(name: str) -> Any:
    """A function by its dotted name."""
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(module), function)


def _spelled_out(given: Sequence[str]) -> list[str]:
    """Options as jsonargparse reads them: a flag has a value, too."""
    following = [*given[1:], "--"]
    return [
        f"{one}=true" if one in FLAGS and after.startswith("--") else _underscored(one)
        for one, after in zip(given, following, strict=True)
    ]


def _underscored(argument: str) -> str:
    """`--max-severity=0.1` as `--max_severity=0.1`: options may be written either way."""
    name, equals, value = argument.partition("=")
    return f"--{name[2:].replace('-', '_')}{equals}{value}" if name.startswith("--") else argument


def _is_ours(error: BaseException) -> bool:
    """Whether this package raised it, with a message for the user; a traceback would only bury that."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("lrptrain.")


def fit() -> None:
    """Train: `lrptrain fit --config FILE`; `lrptrain fit --help` lists all options (LightningCLI)."""


def validate() -> None:
    """One validation pass: `lrptrain validate --config FILE --ckpt_path CHECKPOINT` (LightningCLI)."""


def test() -> None:
    """Test: `lrptrain test --config FILE --ckpt_path CHECKPOINT` (LightningCLI)."""
