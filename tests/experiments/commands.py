"""Commands of the experiments, run until their arguments are read and no further."""

import argparse
import contextlib
import io
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any
from unittest import mock

READS = re.compile(r"no_options\(__doc__\)|ArgumentParser\(|parser\(__doc__\)")
SAID = re.compile(r"python -m (experiments\.[\w.]+)([^\n`#]*)")
"""A command on a page: its module and its arguments, without the comment behind it."""


class ParsedError(Exception):
    """The arguments are read."""


def parse_only(
    self: argparse.ArgumentParser, *arguments: list[str], parse: Any = argparse.ArgumentParser.parse_args
) -> argparse.Namespace:
    """Stand in for `parse_args`."""
    parse(self, *arguments)
    raise ParsedError


def ended(name: str, arguments: list[str]) -> tuple[object, str]:
    """How a command ends, `ParsedError` or the status it exits with, and what it prints, in single spaces."""
    sys.modules.pop(name, None)  # else runpy warns
    printed = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        mock.patch.object(sys, "argv", [name, *arguments]),
        mock.patch.object(argparse.ArgumentParser, "parse_args", parse_only),
    ):
        try:
            runpy.run_module(name, run_name="__main__")
        except ParsedError:
            return ParsedError, ""
        except SystemExit as end:
            return end.code, " ".join(printed.getvalue().split())
    raise AssertionError(f"{name} has run without a look at its arguments")


def commands() -> dict[str, str]:
    """The source of every experiment that is a command, by the name of its module."""
    files = {path: path.read_text(encoding="utf-8") for path in sorted(Path("experiments").rglob("*.py"))}
    return {".".join(path.with_suffix("").parts): text for path, text in files.items() if "__main__" in text}


def said_on_pages() -> set[tuple[str, str]]:
    """The commands of all pages, modules and arguments."""
    pages = [
        Path("README.md"),
        Path("CONTRIBUTING.md"),
        *Path("docs").rglob("*.md"),
        *Path("experiments").rglob("*.md"),
    ]
    return {found for page in pages for found in SAID.findall(page.read_text(encoding="utf-8"))}


def check_commands() -> None:
    """All say at `--help` what they do, refuse an option that is none, and take what the pages say."""
    for name, source in commands().items():
        # Before it is run: without that, all of the experiment would be.
        assert READS.search(source), f"{name} does not look at its arguments"
        sentence = " ".join(source.split('"""')[1].split("\n\n")[0].split())
        status, printed = ended(name, ["--help"])
        assert status == 0, (name, status, printed)
        assert sentence in printed, (name, sentence, printed)
        status, printed = ended(name, ["--no-such-option"])
        assert status == 2, (name, status, printed)
    for name, arguments in sorted(said_on_pages()):
        status, printed = ended(name, shlex.split(arguments))
        assert status is ParsedError, (name, arguments, status, printed)
