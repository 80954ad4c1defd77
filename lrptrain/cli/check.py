"""Let a run's findings pass or fail, from the command line: a gate for continuous integration."""

import sys


def check_run(run: str, max_severity: float = 0.0, fail_after: int = 2) -> None:
    """Exit with 1 if a finding of a run is graver than allowed.

    The severity of a confirmed finding is how far the intervention moved the prediction beyond its control, 0..1;
    that of all others is 0. What was confirmed in the last evaluations in a row counts, two by default, as a single one
    confirms something wrongly now and then; a run with fewer is judged by those that it has.

    Args:
        run: Folder of a monitored run (with events.jsonl), or one that holds a single such folder.
        max_severity: The gravest finding may have this severity.
        fail_after: The evaluations in a row in which a finding has to be confirmed.

    Raises:
        FileNotFoundError: If there is no such run, or it has no evaluation yet.
        ValueError: If several runs are meant, max_severity is not in 0..1, or fail_after below 1.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.monitor.check import check
    from lrptrain.terminal import fitted_to
    from lrptrain.trainers.emphasis import for_stream

    result = check(run, max_severity, fail_after)
    *paragraphs, verdict = str(result).split("\n")
    text = "\n".join([*paragraphs, fitted_to(sys.stdout, verdict)])
    print(for_stream(text, sys.stdout))
    if not result:
        sys.exit(1)
