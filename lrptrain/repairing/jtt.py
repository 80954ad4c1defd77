"""Just train twice: samples that a first model errs on are drawn more often by a second one (Liu et al. 2021)."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from lrptrain.batch import BatchAdapter, read_batch
from lrptrain.batch.task import Regression, Task, TaskName, find_task
from lrptrain.repairing.predictions import predicted_classes
from lrptrain.trainers.discover import device_of, logits_model


def jtt_weights(
    model: nn.Module,
    loader: DataLoader[Any],
    factor: float = 20.0,
    *,
    batch_adapter: BatchAdapter | None = None,
    task: TaskName | Task | None = None,
) -> Float[Tensor, " samples"]:
    """Return how often each training sample is to be drawn: those that a first model errs on `factor` times as often.

    Needs no group and no annotation. Train a model shortly; then train a new one, from the start, with

        weights = lrptrain.jtt_weights(first, train_loader)
        sampler = torch.utils.data.WeightedRandomSampler(weights, len(weights))

    in place of shuffling. It is no callback, as it is two trainings. The published method repeats the errors in the
    data set: the same shares of samples, and an epoch that is longer by them. How long the first training is, and
    `factor`, are to be chosen on validation data, by their worst group where groups are known: the worst class sees no
    shortcut that serves all classes alike.

    Args:
        model: The first model: a LightningModule or any classifier.
        loader: The loader of the training set, whose data set is read once, in its own order, whatever the sampler.
        factor: How much more often.
        batch_adapter: Function that brings a batch of another form to the names of the contract.
        task: What output and labels mean, where they do not say so; see `lrptrain.audit`.

    Returns:
        A weight for each sample of the data set, in its order: 1, or `factor`.

    Raises:
        ValueError: If the loader's data set has no order, a sample has no label, or the model errs on none or on all.
    """
    if not factor > 0:
        raise ValueError(f"factor must be above 0, not {factor}")
    network = logits_model(model)
    meaning = find_task(task, network)
    if isinstance(meaning, Regression):
        raise ValueError("errors are those of classes, and this task is a regression")
    labels = []
    device = device_of(network)

    def read() -> Iterator[dict[str, Tensor]]:
        # A loader takes a seed from the global generator, which is left as it was.
        with torch.random.fork_rng(devices=[]):
            for batch in _in_order(loader):
                columns = read_batch(batch, batch_adapter, meaning)
                labels.append(_label(columns))
                yield {name: x.to(device) for name, x in columns.items() if isinstance(x, Tensor)}

    predicted = torch.from_numpy(predicted_classes(network, read(), meaning))
    wrong = predicted != torch.cat(labels)
    errors = int(wrong.sum())
    if errors in (0, len(wrong)):
        way_out = "shorter" if errors == 0 else "longer"
        extent = "none" if errors == 0 else "all"
        raise ValueError(f"the model errs on {extent} of its {len(wrong)} samples: train it for a {way_out} time")
    return torch.where(wrong, float(factor), 1.0).double()


def _label(columns: dict[str, Any]) -> Tensor:
    label = columns.get("label")
    if not isinstance(label, Tensor) or bool((label < 0).any()):
        raise ValueError("every training sample needs its label: a batch has samples without")
    return label.cpu().long()


def _in_order(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return a loader of the same data set, in its order.

    Raises:
        ValueError: If it has none.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        raise ValueError("weights are by the order of a data set: pass the DataLoader of one that has a length")
    batch_size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    if batch_size is None:
        raise ValueError("the loader does not make batches of a size by itself: pass one with a batch_size")
    return DataLoader(
        loader.dataset, batch_size, shuffle=False, num_workers=loader.num_workers, collate_fn=loader.collate_fn
    )
