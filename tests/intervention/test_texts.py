import torch

from lrptrain.intervention.texts import random_tokens


def test_random_tokens_are_so_many_of_the_content():
    content = torch.tensor([[0, 1, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0]], dtype=torch.bool)
    keys = torch.rand(2, 6, generator=torch.Generator().manual_seed(0))
    chosen = random_tokens(content, torch.tensor([2, 5]), keys)
    assert chosen.sum(1).tolist() == [2, 2]
    assert not (chosen & ~content).any()
    draws = [random_tokens(content[:1], torch.tensor([1]), torch.rand(1, 6)) for _ in range(40)]
    assert len({tuple(draw[0].tolist()) for draw in draws}) == 4  # each of the four in turn
