"""What processes share that are started with an object."""

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest

from lrptrain.trainers.processes import SharedText


def sent(value):
    """What a spawned process is given: pickled as torch.multiprocessing does it, and read again."""
    return pickle.loads(ForkingPickler.dumps(value))


def test_a_text_set_by_a_started_process_is_seen_by_the_one_that_started_it():
    shared = SharedText(16)
    started = sent(shared)
    assert shared.text == started.text == ""
    started.text = "zwölf"
    assert shared.text == "zwölf"
    shared.text = "ein"
    assert started.text == "ein"


def test_a_text_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="5 bytes are more than the 4"):
        SharedText(4).text = "12345"
