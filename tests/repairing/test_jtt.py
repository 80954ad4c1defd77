"""Just train twice: weights by the errors of a first model, in the order of the data set."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, StackDataset

import lrptrain
from tests.repairing.test_repair import TwoPlaces, images


def reader_of_corners():
    model = TwoPlaces()
    with torch.no_grad():
        model.head.bias.zero_()
    return model


def data_set(samples=90, agreeing=0.8):
    return images(samples, agreeing)


def test_errors_are_drawn_more_often_whatever_the_loaders_order():
    columns = data_set()
    model = reader_of_corners()
    state = torch.random.get_rng_state()
    # The mean of a corner's 4 pixels has noise of 0.05 beside its brightness of 0.5: it is always read.
    conflicting = columns["group"] % 2 == 0
    expected = torch.where(conflicting, 7.0, 1.0).double()
    assert 0 < conflicting.sum() < 45
    dataset = StackDataset(**columns)
    for options in ({"shuffle": True}, {"drop_last": True}, {"sampler": torch.utils.data.RandomSampler(dataset)}):
        found = lrptrain.jtt_weights(model, DataLoader(dataset, 16, **options), 7.0)
        assert torch.equal(found, expected)
    batched = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(dataset), 16, drop_last=True)
    assert torch.equal(lrptrain.jtt_weights(model, DataLoader(dataset, batch_sampler=batched), 7.0), expected)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.training
    # What the sampler draws: a share of 7 e / (7 e + n - e) are errors.
    drawn = torch.utils.data.WeightedRandomSampler(found.tolist(), 4000, generator=torch.Generator().manual_seed(0))
    share = expected[list(drawn)].eq(7.0).double().mean().item()
    errors = int(conflicting.sum())
    assert share == pytest.approx(7 * errors / (7 * errors + 90 - errors), abs=4 * 0.5 / 4000**0.5)


class Stream(IterableDataset):
    def __iter__(self):
        yield from ()


@pytest.mark.parametrize(
    ("agreeing", "columns", "message"),
    [
        (1.0, {}, "errs on none of its 90 samples: train it for a shorter time"),
        (0.0, {}, "errs on all of its 90 samples: train it for a longer time"),
        (0.8, {"label": torch.full((90,), -1)}, "every training sample needs its label"),
    ],
)
def test_weights_that_would_do_nothing_are_refused(agreeing, columns, message):
    dataset = StackDataset(**{**data_set(agreeing=agreeing), **columns})
    with pytest.raises(ValueError, match=message):
        lrptrain.jtt_weights(reader_of_corners(), DataLoader(dataset, 16))


@pytest.mark.parametrize(
    ("loader", "factor", "message"),
    [
        (DataLoader(Stream(), 4), 20.0, "pass the DataLoader of one that has a length"),
        ([data_set()], 20.0, "pass the DataLoader of one that has a length"),
        (DataLoader(StackDataset(**data_set()), None), 20.0, "pass one with a batch_size"),
        (DataLoader(StackDataset(**data_set()), 4), 0.0, "factor must be above 0"),
    ],
)
def test_loaders_without_an_order_are_refused(loader, factor, message):
    with pytest.raises(ValueError, match=message):
        lrptrain.jtt_weights(reader_of_corners(), loader, factor)
