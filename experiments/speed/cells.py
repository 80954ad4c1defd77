"""One measurement: time and peak memory of some work, over those of a training pass in the same place."""

import gc
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

from experiments.records import stamped

Inputs = torch.Tensor | dict[str, torch.Tensor]
Work = Callable[[], object]
OUT_OF_MEMORY = "out of memory"
SLOW = 5.0  # seconds of a call that is not repeated


def training_pass(model: nn.Module, inputs: Inputs) -> None:
    """One forward and one backward pass to all parameters, with the model's own (fused) attention."""
    output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    getattr(output, "logits", output)[:, 0].sum().backward()
    model.zero_grad(set_to_none=True)


def seconds(work: Work, device: str = "cpu") -> float:
    """Time of one call; on a GPU between two events, before and after all that the call has asked of it."""
    if device == "cpu":
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    torch.cuda.synchronize(device)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    torch.cuda.synchronize(device)
    return start.elapsed_time(end) / 1000


def time_ratio(work: Work, base: Work, rounds: int) -> dict[str, float]:
    """Median over rounds of the work's time over that of `base` right before it, and the seconds of the last."""
    base()
    work()
    return _compared(work, base, rounds, "cpu")


def _compared(work: Work, base: Work, rounds: int, device: str) -> dict[str, float]:
    pairs = [(seconds(base, device), seconds(work, device)) for _ in range(rounds)]
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
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        first = seconds(work, device)
        peak = torch.cuda.max_memory_allocated(device) - before
    theirs = seconds(base, device)
    if first > SLOW:
        times = [theirs] if theirs > SLOW else [seconds(base, device) for _ in range(3)]
        return {"bytes": peak, "time": first / statistics.median(times), "seconds": first}
    return {"bytes": peak, **_compared(work, base, rounds, device)}


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def apart(measure: Callable[[], dict[str, Any]], device: str, threads: int) -> dict[str, Any]:
    """The measurement in a process of its own, whose peak memory starts anew; on a GPU in this one.

    The parent must not have used more than one thread before.
    """
    if device != "cpu":
        outcome = _outcome(measure)
        gc.collect()  # what an error has left in its frames
        torch.cuda.empty_cache()
        return outcome
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
    return json.loads(text) if text else stamped({"error": f"the process was killed ({OUT_OF_MEMORY}?)"})


def _outcome(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured, or why it was not, with what it was measured on: threads are those of this process."""
    return stamped(_measured(measure))


def _measured(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return measure()
    except torch.OutOfMemoryError:
        return {"error": OUT_OF_MEMORY}
    except Exception as error:  # the table says which library fails, and how
        said = re.sub(r" \(/.*", "", (str(error).splitlines() or [""])[0])  # without the path of the machine
        return {"error": f"{type(error).__name__}: {said[:160]}"}
