import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, SubsetRandomSampler

from lrptrain.segmentation.images import image_batches


class Numbers(Dataset):
    """Image i is i throughout."""

    def __len__(self):
        return 7

    def __getitem__(self, index):
        return {"image": torch.full((3, 2, 2), float(index)), "label": index}


class Stream(IterableDataset):
    def __iter__(self):
        return (Numbers()[index] for index in range(5))


def seen(loader, rank=0, size=1):
    found = list(image_batches(loader, rank, size))
    names = [name for each in found for name in each.names]
    values = [int(image[0, 0, 0]) for each in found for image in each.images]
    return names, values


@pytest.mark.parametrize("shuffle", [False, True])
def test_processes_share_the_dataset(shuffle):
    loader = DataLoader(Numbers(), batch_size=2, shuffle=shuffle)
    assert seen(loader) == (list(range(7)), list(range(7)))
    assert seen(loader, 0, 2) == ([0, 2, 4, 6], [0, 2, 4, 6])
    assert seen(loader, 1, 2) == ([1, 3, 5], [1, 3, 5])


def test_what_a_distributed_sampler_repeats_is_taken_once():
    names = []
    for rank in range(2):
        sampler: DistributedSampler = DistributedSampler(Numbers(), 2, rank, shuffle=True)
        names += seen(DataLoader(Numbers(), batch_size=2, sampler=sampler), rank, 2)[0]
    assert sorted(names) == list(range(7))


def test_samplers_of_ones_own_and_streams():
    loader = DataLoader(Numbers(), batch_size=2, sampler=SubsetRandomSampler([5, 1, 3]))
    names, values = seen(loader)
    assert names == [0, 1, 2]
    assert sorted(values) == [1, 3, 5]
    assert seen(DataLoader(Stream(), batch_size=2)) == (list(range(5)), list(range(5)))
    assert seen([{"image": torch.zeros(2, 3, 2, 2)}]) == ([0, 1], [0, 0])


def test_random_states_of_the_loader_are_left_alone():
    own = torch.Generator().manual_seed(5)
    for sampler in (None, SubsetRandomSampler(range(7), generator=own)):
        loader = DataLoader(Numbers(), batch_size=2, shuffle=sampler is None, sampler=sampler, generator=own)
        before = own.get_state()
        seen(loader)
        assert torch.equal(own.get_state(), before)
    before = torch.get_rng_state()
    seen(DataLoader(Numbers(), batch_size=2, shuffle=True))
    assert torch.equal(torch.get_rng_state(), before)
