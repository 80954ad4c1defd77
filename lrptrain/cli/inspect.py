"""`lrptrain inspect`: what a trained model relies on."""

from typing import Any

from lrptrain.cli.source import given, read_source


def inspect_model(max_samples: int | None = None, html: str | None = None, **options: Any) -> None:
    """Print on which cues a trained model relies, shortcuts first.

    `lrptrain inspect my_module:function`, where the function returns (model, loader) or a dict of the arguments of
    `lrptrain.inspect`.

    Args:
        max_samples: How many samples, as evenly over the classes as they allow; 128 by default.
        html: The file to which the report is written as a page.
        **options: As for `read_source`.

    Raises:
        ValueError: If model or data cannot work, with what to change.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.monitor.inspection import inspect

    report = inspect(**read_source(("model", "samples", "tokenizer"), **options) | given(max_samples=max_samples))
    print(report)
    if html is not None:
        print(f"\n{report.save(html)}")
