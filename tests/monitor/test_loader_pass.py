"""One pass over a loader reads each sample once, and changes nothing."""

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Subset, SubsetRandomSampler, TensorDataset

from lrptrain.monitor.loader_pass import read_once, undisturbed


def dataset(samples=10):
    return TensorDataset(torch.arange(samples))


def numbers(loader, batch_size=4):
    return [int(x) for placed in read_once(loader, batch_size) for x in placed.batch[0]]


def places(loader):
    return [int(place) for placed in read_once(loader, 4) if placed.places is not None for place in placed.places]


def test_samples_come_in_the_order_of_the_set():
    assert numbers(DataLoader(dataset(), 3, shuffle=True)) == list(range(10))
    assert numbers(dataset()) == list(range(10))
    assert numbers([(torch.tensor([3, 1]),), (torch.tensor([2]),)]) == [3, 1, 2]
    assert places(DataLoader(dataset(), 3, shuffle=True)) == list(range(10))


def test_samples_that_a_sampler_leaves_out_stay_out():
    part = DataLoader(dataset(), 3, sampler=SubsetRandomSampler([7, 2, 5]))
    assert numbers(part) == [2, 5, 7]
    assert numbers(DataLoader(Subset(dataset(), [7, 2]), 3)) == [7, 2]
    twice = RandomSampler(dataset(), replacement=True, num_samples=40, generator=torch.Generator().manual_seed(0))
    assert numbers(DataLoader(dataset(), 3, sampler=twice)) == list(range(10))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(5))


def test_a_stream_comes_in_its_order():
    batches = list(read_once(DataLoader(Stream(), 2), 4))
    assert [placed.batch.tolist() for placed in batches] == [[0, 1], [2, 3], [4]]
    assert all(placed.places is None for placed in batches)


def test_a_loader_goes_on_as_if_nobody_had_read_it():
    def orders(reads):
        loader = DataLoader(dataset(), 3, shuffle=True, generator=torch.Generator().manual_seed(0))
        first = [x.tolist() for (x,) in loader]
        if reads:
            numbers(loader)
        return first, [x.tolist() for (x,) in loader]

    assert orders(True) == orders(False)


def test_a_prepared_loader_goes_on_with_its_epochs():
    from accelerate.data_loader import DataLoaderShard, SeedableRandomSampler

    def orders(reads):
        sampler = SeedableRandomSampler(dataset(), data_seed=1)
        loader = DataLoaderShard(dataset(), batch_size=3, sampler=sampler)
        first = [x.tolist() for (x,) in loader]
        if reads:
            numbers(loader)
            with undisturbed(loader):
                list(loader)
        return first, [x.tolist() for (x,) in loader], loader.iteration

    assert orders(True) == orders(False)
    assert orders(True)[2] == 2
