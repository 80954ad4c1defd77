"""`lrptrain audit`: are maps faithful, by tests on a checkpoint and its data."""

from pathlib import Path
from typing import Any, Literal

from lrptrain.cli.audit_settings import CliAuditSettings


def audit_checkpoint(
    checkpoint: str,
    data: str | None = None,
    methods: str | None = None,
    budget: float = 900.0,
    tests: str | None = None,
    split: Literal["val", "test"] = "val",
    max_samples: int = 64,
    batch_size: int = 16,
    seed: int = 0,
    settings: CliAuditSettings = CliAuditSettings(),  # noqa: B008
    retrain_epochs: int = 0,
    output: str = "audit",
    module: str | None = None,
    model: str | None = None,
    batch_adapter: str | None = None,
    task: str | None = None,
    device: str | None = None,
    trust: bool = False,
) -> None:
    """Is a map faithful on your model? Tests of every method, and a verdict: yes, weakly, no, or why it is not judged.

    Writes audit.md, results.json and pictures to a folder. What is measured is kept there: started again, an audit of
    the same checkpoint goes on with what is missing. Ctrl-C keeps what is done.

    Args:
        checkpoint: Path of a checkpoint of `lrptrain fit`, or of any LightningModule named by --module.
        data: package.DataModule, "package.DataModule(argument=value)", a loader, or a config of which the `data:`
            section is read; else the data that the checkpoint was trained with, where it says so.
        methods: Names of `lrptrain.methods()` separated by commas; else raw_attention, rollout, generic_attention,
            transformer_attribution, attnlrp, input_x_gradient and random.
        budget: Seconds, from the start of the command; tests that do not fit are left out, and named. The last lines
            say how many methods could be judged, and what one more takes.
        tests: Names of those to run separated by commas; else all.
        split: The samples are drawn from the validation or the test set.
        max_samples: How many samples, as evenly over the classes as they allow; as many again are taken for training.
        batch_size: Samples per forward pass.
        seed: Seed of all that is drawn.
        settings: How much each test does.
        retrain_epochs: How long models of other seeds are trained; 0 leaves these out. Another number needs another
            --output.
        output: Folder to which the results are written, and from which an earlier audit is continued.
        module: package.Class of the LightningModule, "package.Class(argument=value)", or a config of which the `model:`
            section is read; else the checkpoint's own, or this project's for images and texts.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: package.function that brings a batch of another form to the names of the contract.
        task: What output and labels mean, where they do not say so: "classes" (one-hot labels), "binary" (one logit,
            soft labels), "lrptrain.OneLabel(column=2)" (several labels), or "lrptrain.Regression(mean=3, std=1)".
        device: "cpu", "cuda" ...; else the GPU if there is one.
        trust: Also load a checkpoint that holds objects of any class, whose making runs code that the file brings.

    Raises:
        UnsupportedMethodError: If a method is unknown.
        ValueError: If a test is unknown, the data are not known, hold no sample, or a number is not positive.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    import time

    started = time.monotonic()
    from lrptrain.auditing.audit import AUDITED_METHODS, audit_samples, check_arguments
    from lrptrain.cli.checkpoint import read_checkpoint
    from lrptrain.cli.datasets import names_in, training_samples
    from lrptrain.cli.loading import load_model, load_samples
    from lrptrain.cli.modules import check_runs, module_source
    from lrptrain.cli.normalisation import find_black
    from lrptrain.cli.retrain import Retrain

    if retrain_epochs < 0:
        raise ValueError(f"retrain_epochs must be 0 or more, not {retrain_epochs}")
    chosen = names_in(tests) if tests else None
    # Wrong names end the command before any data are loaded.
    names = check_arguments(
        names_in(methods) if methods else list(AUDITED_METHODS), chosen, budget, max_samples, batch_size
    )
    saved = read_checkpoint(checkpoint, trust)
    drawn = load_samples(saved, data, split, max_samples, seed, batch_adapter, task)
    trained = load_model(saved, drawn.are_images, module, model, device)
    check_runs(trained.network, drawn.samples[0], model)
    fill = find_black(trained.module, saved, drawn.data, drawn.batch_adapter) if drawn.are_images else 0.0
    options: dict[str, Any] = {"tests": chosen, "settings": settings, "seed": seed, "fill": fill, "task": drawn.task}
    if retrain_epochs:
        if not hasattr(drawn.data, "train_dataloader"):
            raise ValueError("--retrain-epochs trains on the data: name a LightningDataModule in --data, not a loader")
        retrain = Retrain(module_source(module, saved, drawn.are_images), saved, drawn.data, retrain_epochs, model)
        options |= {"retrain": retrain, "retrain_seconds": retrain.seconds()}
    audit_samples(
        trained.network,
        drawn.samples,
        training_samples(drawn.data, max_samples, seed, drawn.batch_adapter, drawn.task),
        names,
        budget=budget,
        batch_size=batch_size,
        output=Path(output),
        verbose=True,
        started=started,
        **options,
    )
