"""`lrptrain audit`: are maps faithful, by tests on a model and its data."""

from dataclasses import replace
from typing import Any

from lrptrain.cli.source import given, read_source


def audit_model(
    methods: str | None = None,
    budget: float | None = None,
    tests: str | None = None,
    max_samples: int | None = None,
    output: str | None = None,
    **options: Any,
) -> None:
    """Is a map faithful on your model? Numbers and a verdict per method: yes, weakly, no, or why it is not judged.

    `lrptrain audit my_module:function`, where the function returns (model, loader) or a dict of the arguments of
    `lrptrain.audit`. Writes audit.html and results.json to a folder. What is measured is kept there: started again, an
    audit of the same model resumes. Ctrl-C keeps what is done.

    Args:
        methods: Names of `lrptrain.methods()` separated by commas; else raw_attention, rollout, generic_attention,
            transformer_attribution, attnlrp, input_x_gradient and random.
        budget: Seconds, 900 by default; tests that do not fit are left out, and named. The last lines say how many
            methods could be judged, and what one more takes.
        tests: Names of those to run separated by commas; else all.
        max_samples: How many samples, as evenly over the classes as they allow; 64 by default.
        output: Folder to which the results are written, and from which an earlier audit is continued; "audit" by
            default.
        **options: As for `read_source`.

    Raises:
        UnsupportedMethodError: If a method is unknown.
        ValueError: If a test is unknown, the data hold no sample, or a number is not positive.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.auditing.audit import audit
    from lrptrain.auditing.context import AuditSettings

    typed = given(methods=_names(methods), budget=budget, max_samples=max_samples, output=output)
    returned = read_source(("model", "loader"), **options)
    if tests is not None:
        typed["settings"] = replace(returned.get("settings") or AuditSettings(), tests=_names(tests))
    audit(**{"output": "audit", "verbose": True, **returned, **typed})


def _names(listed: str | None) -> list[str] | None:
    return None if listed is None else [name.strip() for name in listed.split(",")]
