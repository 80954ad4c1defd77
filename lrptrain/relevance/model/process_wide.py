"""What an attribution does to the whole process, and how threads share it.

Random generators, buffers and attributes of a model, and torch's compiler belong to all threads. Attributions that
change them run one after the other; a thread that merely runs a model continues beside them.
"""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

# Held by the attribution that runs now. Re-entrant: a callback preserves a model in which an attribution does, too.
_turn = threading.RLock()
# Guards the two below, for a moment only.
_guard = threading.Lock()
# How many blocks want the model to run without its compiled code, by thread.
_eager_blocks = Counter[int]()
# What the compiler was told before the first of them; None where there is none.
_stance: Any = None


@contextmanager
def in_turn() -> Iterator[None]:
    """Wait until no other thread is in such a block, and let none in."""
    lock = _turn  # a forked child has another lock by the time it leaves the block
    with lock:
        yield


@contextmanager
def eager() -> Iterator[None]:
    """Ignore `torch.compile` inside: a `TorchFunctionMode` sees no call of compiled code.

    The compiler knows one stance per process. What the caller told it comes back when the last thread leaves.
    """
    thread = threading.get_ident()
    _enter(thread)
    try:
        yield
    finally:
        _leave(thread)


def _enter(thread: int) -> None:
    global _stance
    with _guard:
        if _stance is None:
            _stance = torch.compiler.set_stance("force_eager")
        _eager_blocks[thread] += 1


def _leave(thread: int) -> None:
    with _guard:
        _eager_blocks[thread] -= 1
        if not _eager_blocks[thread]:
            del _eager_blocks[thread]
        _restore_stance()


def _restore_stance() -> None:
    global _stance
    if _stance is not None and not _eager_blocks:
        _stance.__exit__(None, None, None)
        _stance = None


def _after_fork() -> None:
    """In a forked child only the forking thread lives on: the locks and blocks of others would never be left."""
    global _turn, _guard
    _turn = threading.RLock()
    _guard = threading.Lock()
    thread = threading.get_ident()
    for other in set(_eager_blocks) - {thread}:
        del _eager_blocks[other]
    _restore_stance()


os.register_at_fork(after_in_child=_after_fork)
