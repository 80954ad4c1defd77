"""One process per model, with a limit on its processor time and its memory."""

import multiprocessing
import resource
import time
import warnings
from multiprocessing.connection import Connection
from typing import Any

from experiments.sweep.case import Case

MEMORY = 6 << 30


def examined(case: Case, methods: tuple[str, ...], seconds: int) -> dict[str, Any]:
    """What a process of its own says of a model; what it did not come to is "time" or "died".

    Args:
        case: The model.
        methods: The methods to try.
        seconds: Processor time that it may take; five times that on the clock.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(case, methods, seconds, sender), daemon=True)
    started = time.monotonic()
    process.start()
    sender.close()
    said: dict[str, Any] = {"methods": {}}
    ended = False
    while not ended:
        if not receiver.poll(max(0.0, started + 5 * seconds - time.monotonic())):
            process.kill()
            said["error"] = "the clock"
            break
        try:
            message = receiver.recv()
        except EOFError:
            said["error"] = said.get("error") or "ended by itself"
            break
        ended = message == "end"
        if not ended:
            name, value = message
            if name in methods:
                said["methods"][name] = value
            else:
                said[name] = value
    process.join()
    if not ended:
        reason = "time" if process.exitcode in (-24, -9) else f"died ({process.exitcode})"
        for method in methods:
            said["methods"].setdefault(method, reason)
    return said


def _work(case: Case, methods: tuple[str, ...], seconds: int, sender: Connection) -> None:
    import torch

    from experiments.sweep.checks import attention_kind, verdicts

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 2))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        try:
            subject = case.build()
            with torch.no_grad():
                subject.explained(subject.run())
        except Exception as error:
            sender.send(("unbuilt", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"))
            return
        sender.send(("attention", attention_kind(subject)))
        for name, verdict in verdicts(subject, methods):
            sender.send((name, verdict))
        used = resource.getrusage(resource.RUSAGE_SELF)
        sender.send(("seconds", round(used.ru_utime + used.ru_stime, 1)))
    finally:
        sender.send("end")
        sender.close()
