"""`lrptrain repair`: the last layer of a checkpoint, anew, by samples in which a shortcut tells nothing."""

from pathlib import Path
from typing import Any, Literal

from lrptrain.cli.loading import open_checkpoint


def repair_checkpoint(
    checkpoint: str,
    output: str = "repaired.ckpt",
    split: Literal["train", "val"] = "val",
    balance: str | None = None,
    copies: int = 5,
    max_samples: int = 512,
    batch_size: int = 32,
    **options: Any,
) -> None:
    """Make the last layer anew, by samples with the surroundings of others, or with all groups alike.

    Writes another checkpoint, which differs in that layer alone. Prints accuracies before and after, what an exchange
    with another class costs beyond one with the same class, and what was not tested. All other layers keep what they
    have learned: where that is the shortcut alone, this mends little, and the numbers say so.

    Args:
        checkpoint: Path of a checkpoint of `lrptrain fit`, or of any LightningModule named by --module.
        output: Path of the checkpoint to write.
        split: The samples are drawn from the validation or the training set. On samples that it was trained on, a
            model is sure of everything.
        balance: "outside" needs annotations (masks, boxes, rationales), "groups" a `group` of each sample; "colour",
            "spectrum", "grain", "light", "framing" and "border" need images alone. By default outside where there are
            annotations, else groups.
        copies: How many other surroundings each sample is given.
        max_samples: How many samples, as evenly over the classes as they allow.
        batch_size: Samples per forward pass.
        **options: As for `open_checkpoint`.

    Raises:
        FileExistsError: If there is such an output.
        ValueError: If the data are not known, hold too few samples, or no linear layer makes the logits.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    import torch

    from lrptrain.files import write_atomically
    from lrptrain.guidance.swap_names import known_name
    from lrptrain.repairing.balance import NAMES, Swaps
    from lrptrain.repairing.repair import repair_samples
    from lrptrain.trainers.checks import check_counts

    check_counts(copies=copies)
    if balance is not None:
        known_name(balance, "balance", NAMES)
    if Path(output).exists():
        raise FileExistsError(f"{output!r} exists: name another --output")
    opened = open_checkpoint(checkpoint, split=split, max_samples=max_samples, batch_size=batch_size, **options)
    module, network = opened.load(opened.saved)
    swaps = Swaps(copies, batch_size, opened.seed)
    repaired = repair_samples(network, opened.samples, balance=balance, swaps=swaps, task=opened.task)
    layer = network.get_submodule(repaired.layer)
    name = next(path for path, each in module.named_modules() if each is layer)
    weights = dict(opened.saved.content["state_dict"])
    for part, values in (("weight", repaired.weight), ("bias", repaired.bias)):
        if values is not None:
            weights[f"{name}.{part}"] = values.to(weights[f"{name}.{part}"])
    # The optimizer's momenta belong to the old layer: a training that is given this checkpoint begins anew. Lightning
    # wants the states of optimizers in it all the same, and takes those that are there.
    content = {key: x for key, x in opened.saved.content.items() if key != "loops"}
    content |= {key: [] for key in ("optimizer_states", "lr_schedulers") if key in content}
    write_atomically(Path(output), lambda part: torch.save({**content, "state_dict": weights}, part))
    print(f"{repaired}\n{output}")
