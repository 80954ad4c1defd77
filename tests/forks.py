"""Processes that have imported what most examples and scripts import: that takes longer than what they do."""

import multiprocessing
import os
import re
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

# The last one leaves what the others have made out of the search for garbage in every fork.
PRELOADED = ["lrptrain.callbacks", "pytorch_lightning", "timm", "torchvision", "transformers", "tests.frozen"]


def in_two_epochs(code: str) -> str:
    """An example that trains for more epochs, or loops over them, in two: whether it runs shows in these."""
    return re.sub(r"(for epoch in range\(|max_epochs=|num_train_epochs=)(?:[3-9]|[1-9]\d+)\b", r"\g<1>2", code)


def start_fork(target: Callable[..., object], *arguments: Any) -> BaseProcess:
    """A started process that calls a function: a fork of one that has imported the libraries, once for all tests."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=_call, args=(target, *arguments))
    process.start()
    return process


def _call(target: Callable[..., object], *arguments: Any) -> None:
    os.fsync = lambda fd: None  # as in conftest.py
    target(*arguments)
