"""`lrptrain VERB`: Lightning's `fit`, `validate` and `test`, and the verbs of this folder, one file each."""

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from lrptrain.cli.check import WRONG_USE
from lrptrain.cli.lightning import lightning_cli
from lrptrain.cli.source import find_modules_here, instantiated
from lrptrain.extras import require
from lrptrain.terminal import fitted_to

LIGHTNING_VERBS = {
    "fit": "Train a model (LightningCLI): lrptrain fit --config FILE.",
    "validate": "Validate once (LightningCLI): --config FILE --ckpt_path FILE.",
    "test": "Test a model (LightningCLI): --config FILE --ckpt_path FILE.",
}
VERBS = {
    "demo": ("lrptrain.cli.demo.demo", "Train a small ViT with a planted tag: monitored, then guided."),
    "inspect": ("lrptrain.cli.inspect.inspect_model", "Print on which cues a trained model relies."),
    "attribute": ("lrptrain.cli.attribute.attribute_samples", "Show which patches or words speak for a class."),
    "audit": ("lrptrain.cli.audit.audit_model", "Test whether maps are faithful on your model."),
    "check": ("lrptrain.cli.check.check_run", "Exit with 0 if a run passes, 1 if not, 3 if inconclusive."),
    "segment": ("lrptrain.cli.segment.segment", "Make masks and a segmenter from a classifier of images."),
    "dashboard": ("lrptrain.cli.dashboard.dashboard", "Serve runs as a page on this machine."),
    "report": ("lrptrain.cli.report.report", "Write runs as one HTML file."),
    "wandb-workspace": ("lrptrain.cli.wandb_workspace.wandb_workspace", "Save a view of a W&B project's runs."),
}
"""For each verb the function that it calls, imported only then, and its line in the help.

No function is called as one of `lrptrain.__all__`: jsonargparse would look it up there, and import all that it needs.
"""
POSITIONAL = {
    "demo": ("output",),
    "inspect": ("source",),
    "attribute": ("source", "sample"),
    "audit": ("source",),
    "segment": ("source",),
}
"""For each verb its options that may be typed without a name: what is not required has one for jsonargparse."""
GONE = {
    "compare": "lrptrain audit, which measures the same: docs/how-to/compare-methods.md",
    "compare-models": "lrptrain inspect of each, which says what it relies on: docs/how-to/inspect.md",
    "repair": "lrptrain.repair(model, loader) in Python: docs/how-to/repair.md",
}
"""For each verb that is no more, what to use instead."""
FLAGS = ("--open",)
"""Options that need no value."""
RENAMED = {
    "check": {"max_severity": "max_reliance"},
    "audit": {"folder": "output", "limit": "max_samples"},
    "demo": {"samples": "max_samples"},
    "dashboard": {"folder": "run"},
    "segment": {"folder": "output", "checkpoint": "ckpt_path"},
}
"""For each verb its options that were renamed: the old name, then the new one."""
INTERRUPTED = 130  # what shells report of a process that Ctrl-C ended: 128 + SIGINT


def main(args: Sequence[str] | None = None) -> None:
    """Run a verb.

    Args:
        args: Arguments as typed behind `lrptrain`; those of the process by default.
    """
    arguments = list(sys.argv[1:] if args is None else args)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return
    if arguments[0] == "--version":
        print(f"lrptrain {_version()}")
        return
    verb = arguments[0]
    # A typing error is answered before the module of a verb, and what that needs, is imported.
    if verb in GONE:
        _refuse(f"`lrptrain {verb}` is {GONE[verb]}")
    if verb not in LIGHTNING_VERBS and verb not in VERBS:
        alike = "".join(f"; did you mean {each}?" for each in get_close_matches(verb, [*LIGHTNING_VERBS, *VERBS], n=1))
        _refuse(f"there is no verb {verb!r}{alike}; `lrptrain --help` lists all")
    try:
        _run(verb, arguments)
    except argparse.ArgumentError as error:
        message = sentence_of(error)
        # jsonargparse names an option that it does not know in quotes; here, those of options that were renamed.
        new_names = [f"{old} is now {new}" for old, new in RENAMED.get(verb, {}).items() if f"'{old}'" in message]
        if message.startswith("unrecognized") and "source" in POSITIONAL.get(verb, ()):
            message += ": my_module:function may return them, in a dict of arguments"
        _refuse(f"{message} ({'; '.join([*new_names, f'see `lrptrain {verb} --help`'])})")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except SystemExit as ended:
        # Lightning's trainer ends its training in good order at Ctrl-C, and then the process, with the status 1.
        if isinstance(ended.__context__, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        raise
    except (TypeError, ValueError, NotImplementedError, ImportError, OSError) as error:
        # A message of this package is enough for the user; an error of user code, as in `fit`, needs its traceback.
        if verb in LIGHTNING_VERBS or not (isinstance(error, OSError) or _is_ours(error)):
            raise
        # To the standard error, with the status 1.
        sys.exit(fitted_to(sys.stderr, f"lrptrain: {error}"))


def usage() -> str:
    """Return the help: all verbs with one line each."""
    lines = LIGHTNING_VERBS | {verb: line for verb, (_, line) in VERBS.items()}
    width = max(map(len, lines)) + 2
    return "\n".join(
        [
            "usage: lrptrain VERB [options]\n",
            "Fine-tune ViT- and BERT-style models while seeing what they look at.\n",
            "verbs:",
            *(f"  {verb:{width}}{line}" for verb, line in lines.items()),
            "\n`lrptrain VERB --help` lists the options of a verb.",
        ]
    )


def _run(verb: str, arguments: list[str]) -> None:
    if verb in LIGHTNING_VERBS:
        find_modules_here()
        # By default an error in the arguments is printed behind the names of all options, several screens of them.
        raised = {"exit_on_error": False}
        lightning_cli(arguments, parser_kwargs={"prog": "lrptrain", **raised, verb: raised})
        return
    spelled = _spelled_out(arguments[1:])
    # jsonargparse would only say that there is no such option.
    for option in spelled:
        name = option.removeprefix("--").partition("=")[0].partition(".")[0]  # --settings.seeds is one of --settings
        if option.startswith("--") and name in RENAMED.get(verb, {}):
            _refuse(f"--{name} of `lrptrain {verb}` is now --{RENAMED[verb][name]}")
    # "lrptrain.cli.check.check_run" is the function `check_run` of the module "lrptrain.cli.check".
    module, _, function = VERBS[verb][0].rpartition(".")
    component: Any = getattr(importlib.import_module(module), function)
    spelled = _named(spelled, POSITIONAL.get(verb, ()))
    options = {"prog": f"lrptrain {verb}", "exit_on_error": False}
    jsonargparse = require("jsonargparse", "cli")
    if "source" not in POSITIONAL.get(verb, ()):
        jsonargparse.auto_cli(component, args=spelled, **options)
        return
    # `auto_cli` has a --config of its own, of options.
    about = str(inspect.getdoc(component)).partition("\n\nArgs:")[0]
    parser = jsonargparse.ArgumentParser(description=about, **options)
    parser.add_function_arguments(component, as_group=False, sub_configs=True)
    component(**instantiated(parser, parser.parse_args(spelled)))


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("lrptrain")
    except PackageNotFoundError:  # run from a clone that is not installed
        return "(not installed)"


def _refuse(message: str) -> NoReturn:
    """End with one line on the standard error and the status of argparse."""
    print(fitted_to(sys.stderr, f"lrptrain: {message}"), file=sys.stderr)
    sys.exit(WRONG_USE)


def sentence_of(error: BaseException) -> str:
    """Return what an error of jsonargparse says, without the list of all types that an argument might have had.

    For example `model: Problem with given class_path 'my.Model': Option 'widht' is not accepted`.
    """
    text = str(error)
    # Each type of a union has its reason behind "- ", on one line or several; then follows the value.
    reasons = re.split(r"\n\s*- ", re.split(r"\n\s*Given value", text)[0])[1:]
    # Of a union of types each says why it does not fit; that it is not None helps nobody.
    telling = [reason for reason in reasons if not reason.startswith(("Expected a <class 'NoneType'>", "Not a valid"))]
    key = re.search(r'[Kk]ey "([^"]+)"', text)
    if not telling or key is None:
        return " ".join(text.split())
    reason = re.sub(r"Expected a dot import path string: (\S+)", r"there is no class '\1'", telling[0])
    return f"{key[1]}: {' '.join(reason.split())}"


def _spelled_out(options: Sequence[str]) -> list[str]:
    """Return options as jsonargparse reads them: `--open` is `--open=true`, `--max-reliance` is `--max_reliance`."""
    following = [*options[1:], "--"]  # the end counts as an option
    return [
        f"{option}=true" if option in FLAGS and after.startswith("--") else _underscored(option)
        for option, after in zip(options, following, strict=False)
    ]


def _named(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return words as options: `my_module:function cat.png --target 3`, wherever what has no name stands among them."""
    has_config = any(word.partition("=")[0] == "--config" for word in words)
    unused = [name for name in names if not (has_config and name == "source")]
    named = []
    for before, word in zip(["", *words], words, strict=False):
        is_value = before.startswith("--") and "=" not in before
        named.append(word if is_value or word.startswith("-") or not unused else f"--{unused.pop(0)}={word}")
    return named


def _underscored(argument: str) -> str:
    """`--max-reliance=0.1` as `--max_reliance=0.1`: options may be written either way."""
    name, equals, value = argument.partition("=")
    # A value may hold dashes, too: only the name before "=" is changed.
    return f"--{name[2:].replace('-', '_')}{equals}{value}" if name.startswith("--") else argument


def _is_ours(error: BaseException) -> bool:
    """Whether this package raised an error, with a message for the user; a traceback would only bury that."""
    # The last frame of the traceback is where the error was raised, the first one is in this module.
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("lrptrain.")
