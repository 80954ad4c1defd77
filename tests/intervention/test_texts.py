import torch

from lrptrain.intervention.texts import lent, random_tokens

IDS = torch.tensor([[1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16]])
REGION = torch.tensor([[0, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]], dtype=torch.bool)


def test_every_lendable_token_is_used_before_any_twice():
    lenders = torch.tensor([[91, 92, 93, 94], [81, 82, 83, 84]])
    lendable = torch.tensor([[1, 0, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    keys = torch.rand(2, 4, generator=torch.Generator().manual_seed(0))
    found = lent(IDS, REGION, lenders, lendable, keys)
    assert torch.equal(found[~REGION], IDS[~REGION])
    first = found[0, 1:4].tolist()
    assert set(first[:2]) == {91, 93}
    assert first[2] == first[0]
    assert len(set(found[1, :2].tolist())) == 2
    assert set(found[1, :2].tolist()) <= {81, 82, 83, 84}


def test_who_has_nothing_to_lend_changes_nothing():
    nothing = torch.zeros(2, 6, dtype=torch.bool)
    assert torch.equal(lent(IDS, REGION, IDS.flip(0), nothing, torch.rand(2, 6)), IDS)


def test_random_tokens_are_so_many_of_the_content():
    content = torch.tensor([[0, 1, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0]], dtype=torch.bool)
    found = random_tokens(content, torch.tensor([2, 5]), torch.rand(2, 6, generator=torch.Generator().manual_seed(0)))
    assert found.sum(1).tolist() == [2, 2]
    assert not (found & ~content).any()
    drawn = [random_tokens(content[:1], torch.tensor([1]), torch.rand(1, 6)) for _ in range(40)]
    assert len({tuple(one[0].tolist()) for one in drawn}) == 4  # each of the four in turn
