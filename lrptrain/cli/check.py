"""Let a run's findings pass or fail, from the command line: a gate for continuous integration."""

import sys
from typing import NoReturn

FAILED = 1
WRONG_USE = 2  # the exit status of argparse
INCONCLUSIVE = 3
UNREADABLE = 4


def check_run(run: str, max_reliance: float = 0.0, fail_after: int = 2) -> None:
    """Exit with 0 if a run passes, 1 if it relies on a shortcut, 3 if it is inconclusive, 4 if it is unreadable.

    0 passed: the last evaluation is of the kept checkpoint, was conclusive, and found no shortcut above the limit.
    1 failed: it relies on one.
    2 wrong use: an option or the run's folder is not what it should be.
    3 inconclusive: the run has not ended, its last evaluation failed, had too few samples or no test, or the model is
    no better than guessing, or relies on something that needs your review.
    4 unreadable: there is no run, no evaluation, or a line of its record cannot be read.

    Args:
        run: Folder of a monitored run (with events.jsonl), or one that holds a single such folder.
        max_reliance: How much the model may rely on a shortcut: the lower bound of its effect, 0..1.
        fail_after: The evaluations in a row in which it has to exceed that; a run with fewer is judged by those.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.loggers.timeline import UnreadableRunError
    from lrptrain.monitor.check import check
    from lrptrain.terminal import fitted_to

    try:
        result = check(run, max_reliance, fail_after)
        *paragraphs, verdict = str(result).split("\n")
    except (UnreadableRunError, OSError) as error:
        _end(str(error), UNREADABLE)
    except ValueError as error:
        _end(str(error), WRONG_USE)
    except Exception as error:
        # Python would end with 1, which is the status of a fault.
        _end(f"{run!r} cannot be read as a run ({type(error).__name__}: {' '.join(str(error).split())})", UNREADABLE)
    text = "\n".join([*paragraphs, fitted_to(sys.stdout, verdict)])
    print(text)
    if not result:
        sys.exit(FAILED if result.verdict == "failed" else INCONCLUSIVE)


def _end(message: str, status: int) -> NoReturn:
    from lrptrain.terminal import fitted_to

    print(fitted_to(sys.stderr, f"lrptrain: {message}"), file=sys.stderr)
    sys.exit(status)
