"""The command line, `lrptrain VERB`: one file per verb."""

from lrptrain.cli.main import main

__all__ = ["main"]
