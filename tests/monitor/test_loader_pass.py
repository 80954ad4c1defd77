"""One pass over a loader reads each sample once, and changes nothing."""

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Subset, SubsetRandomSampler, TensorDataset

from lrptrain.batch import read_batch
from lrptrain.monitor.loader_pass import read_once, undisturbed
from lrptrain.monitor.unread_columns import WholeBatches


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


def rows(lengths):
    return [
        {"input_ids": torch.ones(n, dtype=torch.long), "rationale": [1] + [0] * (n - 1), "name": "x"} for n in lengths
    ]


def collator(side):
    def collate(samples):
        width = max(len(sample["input_ids"]) for sample in samples)
        assert all("rationale" not in sample for sample in samples)
        ids = torch.zeros(len(samples), width, dtype=torch.long)
        for row, sample in zip(ids, samples, strict=True):
            length = len(sample["input_ids"])
            row[slice(None, length) if side == "right" else slice(width - length, None)] = sample["input_ids"]
        return {"input_ids": ids, "attention_mask": ids}

    return collate


def test_columns_that_a_collator_drops_stand_where_its_tokens_do():
    for side, expected in (("right", [[1, 0, 255], [1, 0, 0]]), ("left", [[255, 1, 0], [1, 0, 0]])):
        batches = WholeBatches(rows([2, 3]), None, collator(side), ("rationale", "name"))
        batch = batches.collate_fn(rows([2, 3]))
        assert read_batch(batch)["rationale"].tolist() == expected
        assert batch["name"] == ["x", "x"]


def test_a_collator_gets_what_a_transform_makes_of_the_columns_that_a_dataset_names():
    # As after `datasets.Dataset.set_transform`: the dataset has the column "image", its samples have "pixel_values".
    samples = [{"pixel_values": torch.full((2,), float(i)), "mask": [i, 1]} for i in range(2)]
    batches = WholeBatches(
        samples, None, lambda batch: {"pixel_values": torch.stack([each["pixel_values"] for each in batch])}, {"mask"}
    )
    batch = batches.collate_fn(samples)
    assert batch["pixel_values"].tolist() == [[0, 0], [1, 1]]
    assert batch["mask"].tolist() == [[0, 1], [1, 1]]
