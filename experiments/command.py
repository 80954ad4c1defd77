"""The command line of an experiment that has nothing to choose."""

import argparse


def no_options(description: str | None) -> None:
    """Say at `--help` what a command does, and refuse any other argument, before it does it.

    Args:
        description: The docstring of the command's file.
    """
    argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
