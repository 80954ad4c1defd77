"""One measurement: time and peak memory of some work, over those of a training pass in the same place."""

import json
import os
import re
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Inputs = torch.Tensor | dict[str, torch.Tensor]
Work = Callable[[], object]
SLOW = 5.0  # seconds of a call that is not repeated


def training_pass(model: nn.Module, inputs: Inputs) -> None:
    """One forward and one backward pass to all parameters, with the model's own (fused) attention."""
    output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    getattr(output, "logits", output)[:, 0].sum().backward()
    model.zero_grad(set_to_none=True)


def seconds(work: Work) -> float:
    """Time of one call."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def time_ratio(work: Work, base: Work, rounds: int) -> dict[str, float]:
    """Median over rounds of the work's time over that of `base` right before it, and the seconds of the last."""
    base()
    work()
    return _compared(work, base, rounds)


def _compared(work: Work, base: Work, rounds: int) -> dict[str, float]:
    pairs = [(seconds(base), seconds(work)) for _ in range(rounds)]
    return {"time": statistics.median(mine / theirs for theirs, mine in pairs), "seconds": pairs[-1][1]}


def time_and_memory(work: Work, base: Work, rounds: int, device: str) -> dict[str, float]:
    """Bytes at the peak of a first call, above what was there before; then `time_ratio`.

    Of a slow call its first counts, and of a slow base, too. In a process that did nothing of the kind before.
    """
    if device == "cpu":
        before = _resident()
        first = seconds(work)
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    else:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        first = seconds(work)
        peak = torch.cuda.max_memory_allocated() - before
    theirs = seconds(base)
    if first > SLOW:
        times = [theirs] if theirs > SLOW else [seconds(base) for _ in range(3)]
        return {"bytes": peak, "time": first / statistics.median(times), "seconds": first}
    return {"bytes": peak, **_compared(work, base, rounds)}


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def apart(measure: Callable[[], dict[str, Any]], device: str, threads: int) -> dict[str, Any]:
    """The measurement in a process of its own, whose peak memory starts anew; on a GPU in this one.

    The parent must not have used more than one thread before.
    """
    if device != "cpu":
        return _outcome(measure)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        torch.set_num_threads(threads)
        with os.fdopen(writer, "w", encoding="utf-8") as file:
            json.dump(_outcome(measure), file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": "the process was killed (out of memory?)"}


def _outcome(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return measure()
    except Exception as error:  # the table says which library fails, and how
        said = re.sub(r" \(/.*", "", (str(error).splitlines() or [""])[0])  # without the path of the machine
        return {"error": f"{type(error).__name__}: {said[:160]}"}
