"""The sample: fair, reproducible, and the same however it comes by."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrptrain.monitor.stratified_sample import ValidationSample, allocate, priorities
from lrptrain.trainers.processes import DataShare

COUNTS = st.dictionaries(st.integers(-1, 8), st.integers(0, 30), max_size=8)


@settings(max_examples=200, deadline=None)
@given(COUNTS, st.integers(0, 60))
def test_places_are_shared_out_as_evenly_as_the_sizes_allow(counts, places):
    shares = allocate(counts, places)
    assert sum(shares.values()) == min(places, sum(counts.values()))
    assert all(0 <= shares[label] <= counts[label] for label in shares)
    unfilled = [shares[label] for label in shares if shares[label] < counts[label]]
    if unfilled:  # nobody has two more than somebody who could have more: the water level
        assert max(shares.values()) <= min(unfilled) + 1


def chosen_at_once(labels, places, seed):
    """The sample by its definition: of each class, those with the lowest priorities."""
    drawn = priorities(np.arange(len(labels)), seed)
    shares = allocate(Counter(labels.tolist()), places)
    picked = [sorted(np.flatnonzero(labels == c), key=lambda i: drawn[i])[:share] for c, share in shares.items()]
    return {int(i) for part in picked for i in part}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-1, 5), min_size=1, max_size=80),
    st.integers(1, 24),
    st.integers(0, 3),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_streaming_equals_choosing_at_once_for_any_order_and_processes(labels, places, seed, size, generator):
    labels = np.array(labels)
    order = list(range(len(labels)))
    generator.shuffle(order)
    keepers = [ValidationSample(places, seed) for _ in range(size)]
    while order:
        cut = generator.randint(1, 7)
        rows, order = order[:cut], order[cut:]
        batch = {"x": torch.tensor(rows), "label": torch.from_numpy(labels[rows])}
        keepers[generator.randrange(size)].add_batch(batch, indices=np.array(rows))
    everywhere = [(dict(keeper.counts), keeper.keys()) for keeper in keepers]
    chosen = [sample for keeper in keepers for _, _, sample in keeper.choose(everywhere)]
    assert {sample.sample_id for sample in chosen} == chosen_at_once(labels, places, seed)
    assert len(chosen) == min(places, len(labels))
    assert all(sample.label == labels[sample.sample_id] for sample in chosen)


def test_padding_is_not_counted():
    keeper = ValidationSample(10, 0)
    keeper.add_batch({"x": torch.arange(4), "label": torch.zeros(4, dtype=torch.long)}, share=DataShare(0, 1, 0, 2))
    assert keeper.counts == {0: 2}
    assert {sample.sample_id for _, _, sample in keeper.choose([(keeper.counts, keeper.keys())])} == {0, 2}


@pytest.mark.parametrize("readers", [1, 2, 3])
def test_processes_that_read_the_same_part_count_each_sample_once(readers):
    """Two parts of 0 to 10, dealt out in turn, of which the second is padded by one; batches of two."""
    counted = []
    for part in range(2):
        for reader in range(readers):
            sample = ValidationSample(20, 0)
            for start in range(0, 6, 2):
                rows = torch.arange(start, start + 2) * 2 + part
                sample.add_batch({"x": rows % 11}, 11, share=DataShare(part, 2, reader, readers))
            counted += [(each.sample_id, int(each.tensors["x"])) for each in sample.finish()]
    assert sorted(counted) == [(place, place) for place in range(11)]


def test_memory_stays_small_on_a_sorted_set():
    keeper = ValidationSample(64, 0)
    labels = torch.arange(2000) // 20
    for start in range(0, 2000, 50):
        rows = torch.arange(start, start + 50)
        keeper.add_batch({"x": rows, "label": labels[rows]}, indices=rows.numpy())
    assert sum(map(len, keeper.candidates.values())) < 6 * 64


def test_priorities_are_uniform_and_depend_on_the_seed():
    one, other = priorities(np.arange(20_000), 0), priorities(np.arange(20_000), 1)
    assert 0 <= one.min() < one.max() < 1
    np.testing.assert_allclose(np.histogram(one, 10, (0, 1))[0], 2000, rtol=0.1)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_any_integer_label_will_do(dtype):
    keeper = ValidationSample(2, 0)
    keeper.add_batch({"x": torch.arange(3), "label": torch.tensor([0, 1, 1], dtype=dtype)})
    assert {sample.label for _, _, sample in keeper.choose([(keeper.counts, keeper.keys())])} == {0, 1}


def test_a_smaller_sample_is_a_part_of_the_whole_one_with_as_even_classes():
    sample = ValidationSample(20, 0)
    sample.add_batch({"x": torch.arange(30), "label": torch.arange(30) % 3})
    sample.finish()
    sizes = [{each.sample_id for each in sample.first(count)} for count in range(21)]
    assert [len(ids) for ids in sizes] == list(range(21))
    assert all(smaller < larger for smaller, larger in itertools.pairwise(sizes))
    assert Counter(each.label for each in sample.first(9)) == {0: 3, 1: 3, 2: 3}
