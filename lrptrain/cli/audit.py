"""`lrptrain audit`: are maps faithful, by tests on a checkpoint and its data."""

from pathlib import Path
from typing import Any, Literal

from lrptrain.cli.audit_settings import CliAuditSettings
from lrptrain.cli.loading import open_checkpoint


def audit_checkpoint(
    checkpoint: str,
    methods: str | None = None,
    budget: float = 900.0,
    tests: str | None = None,
    split: Literal["val", "test"] = "val",
    max_samples: int = 64,
    settings: CliAuditSettings = CliAuditSettings(),  # noqa: B008
    retrain_epochs: int = 0,
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
        max_samples: How many samples, as evenly over the classes as they allow; as many again are taken for training.
        settings: How much each test does.
        retrain_epochs: How long models of other seeds are trained; 0 leaves these out. Another number needs another
            --output.
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
    from lrptrain.cli.datasets import names_in, training_samples
    from lrptrain.cli.modules import module_source
    from lrptrain.cli.normalisation import find_black
    from lrptrain.cli.retrain import Retrain

    if retrain_epochs < 0:
        raise ValueError(f"retrain_epochs must be 0 or more, not {retrain_epochs}")
    chosen = names_in(tests) if tests else None
    # Wrong names end the command before any data are loaded.
    names = check_arguments(names_in(methods) if methods else list(AUDITED_METHODS), chosen, budget)
    opened = open_checkpoint(checkpoint, split=split, max_samples=max_samples, **options)
    saved, data, seed, task = opened.saved, opened.data, opened.seed, opened.task
    module, network = opened.load(saved)
    tested: dict[str, Any] = {"tests": chosen, "settings": settings, "seed": seed, "task": task}
    tested["fill"] = find_black(module, saved, data, opened.batch_adapter) if opened.are_images else 0.0
    if retrain_epochs:
        if not hasattr(data, "train_dataloader"):
            raise ValueError("--retrain-epochs trains on the data: name a LightningDataModule in --data, not a loader")
        source = module_source(options.get("module"), saved, opened.are_images)
        retrain = Retrain(source, saved, data, retrain_epochs, options.get("model"))
        tested |= {"retrain": retrain, "retrain_seconds": retrain.seconds()}
    audit_samples(
        network,
        opened.samples,
        training_samples(data, max_samples, seed, opened.batch_adapter, task),
        names,
        budget=budget,
        batch_size=opened.batch_size,
        output=Path(output),
        verbose=True,
        started=started,
        **tested,
    )
