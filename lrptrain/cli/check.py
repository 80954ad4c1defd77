"""Let a run's findings pass or fail, from the command line: a gate for continuous integration."""

import sys
from typing import NoReturn

FAILED = 1
WRONG_USE = 2  # the exit status of argparse
NOT_SURE = 3
UNREADABLE = 4


def check_run(run: str, max_severity: float = 0.0, fail_after: int = 2) -> None:
    """Exit with 0 if a run passes, 1 if a finding is graver than allowed, 3 if nobody can say, 4 if it is unreadable.

    0 passed: enough was tested, and nothing graver than allowed was found.
    1 failed: a confirmed fault is graver than allowed.
    2 wrong use: an option or the run's folder is not what it should be.
    3 not sure: too few samples, no test, a model at chance, or something that moves the answers and may be no fault.
    4 unreadable: there is no run, no evaluation, or a line of its record cannot be read.

    The severity of a confirmed finding is how far the intervention moved the prediction beyond its control, 0..1;
    that of all others is 0. What was confirmed in the last evaluations in a row counts, two by default, as a single one
    confirms something wrongly now and then; a run with fewer is judged by those that it has.

    Args:
        run: Folder of a monitored run (with events.jsonl), or one that holds a single such folder.
        max_severity: The gravest finding may have this severity.
        fail_after: The evaluations in a row in which a finding has to be confirmed.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.loggers.timeline import UnreadableRunError
    from lrptrain.monitor.check import check
    from lrptrain.terminal import fitted_to
    from lrptrain.trainers.emphasis import for_stream

    try:
        result = check(run, max_severity, fail_after)
        *paragraphs, verdict = str(result).split("\n")
    except (UnreadableRunError, OSError) as error:
        _end(str(error), UNREADABLE)
    except ValueError as error:
        _end(str(error), WRONG_USE)
    except Exception as error:
        # Python would end with 1, which is the status of a fault.
        _end(f"{run!r} cannot be read as a run ({type(error).__name__}: {' '.join(str(error).split())})", UNREADABLE)
    text = "\n".join([*paragraphs, fitted_to(sys.stdout, verdict)])
    print(for_stream(text, sys.stdout))
    if not result:
        sys.exit(FAILED if result.verdict == "failed" else NOT_SURE)


def _end(message: str, status: int) -> NoReturn:
    from lrptrain.terminal import fitted_to

    print(fitted_to(sys.stderr, f"lrptrain: {message}"), file=sys.stderr)
    sys.exit(status)
