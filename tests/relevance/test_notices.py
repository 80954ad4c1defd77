"""What is said once per model."""

import gc
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch import nn

from lrptrain import RelevanceWarning
from lrptrain.relevance.notices import share_notices, warn_once


def said(model, kind):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_once(model, kind, "look out")
    return [(warning.category, str(warning.message)) for warning in caught]


def test_a_kind_is_said_once_per_model():
    first = nn.Linear(2, 2)
    second = nn.Linear(2, 2)
    assert said(first, "train mode") == [(RelevanceWarning, "look out")]
    assert said(first, "train mode") == []
    assert len(said(first, ("train mode", "lrp"))) == 1
    assert len(said(second, "train mode")) == 1


def test_a_copy_counts_as_the_model():
    model = nn.Linear(2, 2)
    copied = nn.Linear(2, 2)
    share_notices(copied, model)
    assert len(said(copied, "train mode")) == 1
    assert said(model, "train mode") == []


def test_a_model_is_not_kept_alive():
    model = nn.Linear(2, 2)
    alive = weakref.ref(model)
    with pytest.warns(RelevanceWarning):
        warn_once(model, "train mode", "look out")
    del model
    gc.collect()
    assert alive() is None


def test_threads_say_it_once_between_them():
    model = nn.Linear(2, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: warn_once(model, "train mode", "look out"), range(64)))
    assert len(caught) == 1


def test_the_line_that_called_the_engine_is_named():
    with pytest.warns(RelevanceWarning) as caught:
        warn_once(nn.Linear(2, 2), "train mode", "look out")
    assert caught[0].filename == __file__
