"""`lrptrain audit`: are maps faithful, by tests on a checkpoint and its data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lrptrain.cli.loading import open_checkpoint


@dataclass(frozen=True, kw_only=True)
class CliAuditSettings:
    """The same as `lrptrain.auditing.AuditSettings`, the import of which takes seconds that a help must not wait.

    Attributes:
        random_maps: How many random orders a method's order is compared with.
        stages: In how many stages the weights are randomised, from the logits downwards.
    """

    random_maps: int = 3
    stages: int = 4


def audit_checkpoint(
    checkpoint: str,
    methods: str | None = None,
    budget: float = 900.0,
    tests: str | None = None,
    split: Literal["val", "test"] = "val",
    max_samples: int = 64,
    settings: CliAuditSettings = CliAuditSettings(),
    output: str = "audit",
    **options: Any,
) -> None:
    """Is a map faithful on your model? Tests of every method, and a verdict: yes, weakly, no, or why it is not judged.

    Writes audit.md, results.json and pictures to a folder. What is measured is kept there: started again, an audit of
    the same checkpoint goes on with what is missing. Ctrl-C keeps what is done.

    Args:
        checkpoint: Path of a checkpoint of `lrptrain fit`, or of any LightningModule named by --module.
        methods: Names of `lrptrain.methods()` separated by commas; else raw_attention, rollout, generic_attention,
            transformer_attribution, attnlrp, input_x_gradient and random.
        budget: Seconds, from the start of the command; tests that do not fit are left out, and named. The last lines
            say how many methods could be judged, and what one more takes.
        tests: Names of those to run separated by commas; else all.
        split: The samples are drawn from the validation or the test set.
        max_samples: How many samples, as evenly over the classes as they allow.
        settings: How much each test does.
        output: Folder to which the results are written, and from which an earlier audit is continued.
        **options: As for `open_checkpoint`.

    Raises:
        UnsupportedMethodError: If a method is unknown.
        ValueError: If a test is unknown, the data are not known, hold no sample, or a number is not positive.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    import time

    started = time.monotonic()
    from lrptrain.auditing.audit import AUDITED_METHODS, audit_samples, check_arguments
    from lrptrain.cli.datasets import names_in
    from lrptrain.cli.normalisation import find_black

    chosen = names_in(tests) if tests else None
    # Wrong names end the command before any data are loaded.
    names = check_arguments(names_in(methods) if methods else list(AUDITED_METHODS), chosen, budget)
    opened = open_checkpoint(checkpoint, split=split, max_samples=max_samples, **options)
    module, network = opened.load(opened.saved)
    audit_samples(
        network,
        opened.samples,
        names,
        budget=budget,
        batch_size=opened.batch_size,
        output=Path(output),
        verbose=True,
        started=started,
        tests=chosen,
        settings=settings,
        seed=opened.seed,
        task=opened.task,
        fill=find_black(module, opened.saved, opened.data, opened.batch_adapter) if opened.are_images else 0.0,
    )
