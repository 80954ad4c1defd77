"""What a trainer knows at one moment, in a form that no trainer has a word in."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lrptrain.trainers.naming import NameSources
from lrptrain.trainers.processes import DataShare
from lrptrain.trainers.progress import Progress, no_bar


@dataclass(frozen=True)
class Moment:
    """Where the training stands.

    Attributes:
        epoch: The number of the epoch, as the trainer counts: Lightning from 0 on, transformers from 1 on.
        step: The step at which the trainer logs the values of a validation.
        is_training: Whether this is part of a training, and not a validation by itself.
        share_done: The share of the training that is done, in [0, 1]; None where nobody knows when it ends.
        keeps_last: Whether training leaves the weights of its last step, and not the best ones by some metric.
    """

    epoch: int
    step: int
    is_training: bool = True
    share_done: float | None = None
    keeps_last: bool = True


@dataclass(frozen=True)
class Output:
    """Where things are written.

    Attributes:
        root_dir: The folder below which runs are recorded, in `<root_dir>/relevance/<run>`.
        is_first_process: Whether this process writes and logs.
        progress: Shows how far the monitor is, where a bar is welcome.
        loggers: Where scalars, pictures and findings go, as `lrptrain.loggers` takes them.
    """

    root_dir: str | Path
    is_first_process: bool = True
    progress: Progress = no_bar
    loggers: Sequence[Any] = ()


@dataclass(frozen=True)
class Names:
    """What things are called, and who knows it.

    Attributes:
        sources: Objects that may have class names and a tokenizer, the first one first.
        hyperparameters: Objects that say what the training was started with; see `find_hyperparameters`.
        step: What the user calls the code that gives batches to the model.
        step_hint: What to do where the batch alone does not tell how the model is called, as a sentence.
        guidance: How a swap of the monitor's faults is written under the trainer.
    """

    sources: NameSources = ()
    hyperparameters: Sequence[Any] = ()
    step: str = "validation_step"
    step_hint: str = "Let validation_step call the model, which is listened to, or rename the entries (batch_adapter=)"
    guidance: str = 'RelevanceGuidance("swap", swap=monitor.faults)'


@dataclass(frozen=True, kw_only=True)
class TrainingContext:
    """What a monitor needs to know of a trainer while it works; each trainer has a function that makes it.

    Attributes:
        model: The module whose forward gives logits.
        module: The user's module, which holds the model: everything in it is left as it was.
        data_share: Which part of the data this process is given; None for one of its own.
        forward_context: Makes the context of every forward pass, such as autocast.
    """

    model: nn.Module
    module: nn.Module
    device: torch.device
    moment: Moment
    output: Output
    names: Names = field(default_factory=Names)
    data_share: DataShare | None = None
    forward_context: Callable[[], AbstractContextManager[Any]] = nullcontext
