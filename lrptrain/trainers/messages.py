"""What is said to the user outside of Lightning, in the first process alone."""

import logging
import os

from lrptrain.terminal import give_warning
from lrptrain.trainers.emphasis import for_logger, spoken_by
from lrptrain.trainers.processes import rank_and_size

logger = logging.getLogger("lrptrain")
# What torchrun and SLURM tell a process of its number, before torch's processes have found each other.
_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")


def is_first_process() -> bool:
    """Return whether this process is the one that writes and speaks."""
    rank, size = rank_and_size()
    if size > 1:
        return rank == 0
    return next((int(os.environ[name]) == 0 for name in _RANKS if os.environ.get(name, "").isdecimal()), True)


def inform(message: str) -> None:
    """Say something, on the terminal unless the program has set logging up otherwise."""
    if not is_first_process():
        return
    # Python's logging shows no INFO where nobody has set it up; whoever has decides what becomes of it.
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)
        logger.propagate = False
    text = for_logger(message, logger)
    with spoken_by(logger):
        logger.info(text)


def warn(message: str) -> None:
    """Warn the user."""
    if is_first_process():
        give_warning(message)
