"""What a trainer knows at one moment, in a form that no trainer has a word in."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lrptrain.trainers.naming import NameSources
from lrptrain.trainers.processes import DataShare
from lrptrain.trainers.progress import Progress, no_bar


@dataclass(frozen=True, kw_only=True)
class TrainingContext:
    """What a monitor needs to know of a trainer while it works; each trainer has a function that makes it.

    Attributes:
        model: The module whose forward gives logits.
        module: The user's module, which holds the model: everything in it is left as it was.
        device: The device of the model.
        epoch: The number of the epoch, as the trainer counts: Lightning from 0 on, transformers from 1 on.
        step: The step at which the trainer logs the values of a validation.
        root_dir: The folder below which runs are recorded, in `<root_dir>/relevance/<run>`.
        is_training: Whether this is part of a training, and not a validation by itself.
        is_first_process: Whether this process writes and logs.
        data_share: Which part of the data this process is given; None for one of its own.
        progress: Shows how far the monitor is, where a bar is welcome.
        forward_context: Makes the context of every forward pass, such as autocast.
        loggers: Where scalars, pictures and findings go, as `lrptrain.loggers` takes them.
        name_sources: Objects that may have class names and a tokenizer, the first one first.
        hyperparameter_sources: Objects that say what the training was started with; see `find_hyperparameters`.
        step_name: What the user calls the code that gives batches to the model.
        step_hint: What to do where the batch alone does not tell how the model is called, as a sentence.
        guidance: How a swap of the monitor's faults is written under the trainer.
        share_done: The share of the training that is done, in [0, 1]; None where nobody knows when it ends.
        keeps_last: Whether training leaves the weights of its last step, and not the best ones by some metric.
    """

    model: nn.Module
    module: nn.Module
    device: torch.device
    epoch: int
    step: int
    root_dir: str | Path
    is_training: bool = True
    is_first_process: bool = True
    data_share: DataShare | None = None
    progress: Progress = no_bar
    forward_context: Callable[[], AbstractContextManager[Any]] = nullcontext
    loggers: Sequence[Any] = ()
    name_sources: NameSources = ()
    hyperparameter_sources: Sequence[Any] = ()
    step_name: str = "validation_step"
    step_hint: str = "Let validation_step call the model, which is listened to, or rename the entries (batch_adapter=)"
    guidance: str = 'RelevanceGuidance("swap", swap=monitor.faults)'
    share_done: float | None = None
    keeps_last: bool = True
