"""Group DRO against algorithm 1 of Sagawa et al. 2020, written out with plain numbers."""

import math

import pytest
import torch
import torch.nn.functional as F
from gloo import in_processes

import lrptrain

STEP = 0.5
EXACT = 1e-12  # of float64: some ten sums of a dozen numbers


def batch(seed=0, groups=(0, 0, 0, 0, 2, 2, 1)):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(len(groups), 4, generator=generator, dtype=torch.float64)
    label = torch.randint(0, 3, (len(groups),), generator=generator)
    return features, label, torch.tensor(groups)


def layer():
    generator = torch.Generator().manual_seed(7)
    return torch.randn(3, 4, generator=generator, dtype=torch.float64).requires_grad_()


def losses_of(weight, features, label):
    return F.cross_entropy(features @ weight.T, label, reduction="none")


def textbook(shares, losses, group):
    """The new shares, and the loss: q_g <- q_g exp(step * loss_g), normalised; then sum of q_g loss_g."""
    of_group: dict[int, list[torch.Tensor]] = {}
    for value, member in zip(losses, group.tolist(), strict=True):
        of_group[member] = [*of_group.get(member, []), value]
    means = {member: torch.stack(values).sum() / len(values) for member, values in of_group.items()}
    moved = [
        share * math.exp(STEP * float(means[index].detach())) if index in means else share
        for index, share in enumerate(shares)
    ]
    moved = [share / sum(moved) for share in moved]
    return moved, sum(moved[member] * mean for member, mean in means.items())


@pytest.mark.parametrize("groups", [(0, 0, 0, 0, 2, 2, 1), (3, 3, 3, 3, 0, 0, 0), (1, 1, 1, 1, 1, 1, 1)])
def test_shares_loss_and_gradient_are_those_of_the_algorithm(groups):
    robust = lrptrain.GroupDROLoss(4, STEP)
    assert robust.shares == pytest.approx([0.25] * 4, rel=EXACT)
    shares = [0.25] * 4
    for step in range(4):  # groups that a batch lacks keep their factor: the shares of all others move
        features, label, group = batch(step, groups if step % 2 else (0, 1, 2, 3, 3, 1, 0))
        weight = layer()
        found = robust(losses_of(weight, features, label), group)
        found.backward()
        by_hand = layer()
        shares, expected = textbook(shares, losses_of(by_hand, features, label), group)
        expected.backward()
        assert found.item() == pytest.approx(expected.item(), rel=EXACT)
        assert robust.shares == pytest.approx(shares, rel=EXACT)
        assert torch.allclose(weight.grad, by_hand.grad, rtol=0, atol=EXACT)
    assert sum(robust.shares) == pytest.approx(1, rel=EXACT)


def test_one_group_is_plain_training():
    features, label, _ = batch()
    weight = layer()
    robust = lrptrain.GroupDROLoss(1, STEP)
    robust(losses_of(weight, features, label), torch.zeros(7, dtype=torch.long)).backward()
    by_hand = layer()
    losses_of(by_hand, features, label).mean().backward()
    assert torch.allclose(weight.grad, by_hand.grad, rtol=0, atol=EXACT)
    assert robust.shares == [1.0]


def test_a_share_that_has_become_tiny_grows_again():
    robust = lrptrain.GroupDROLoss(2, 10.0)
    for _ in range(100):  # exp(-1000) is 0 in float64
        robust(torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([0, 1]))
    for _ in range(100):
        robust(torch.tensor([0.0, 1.0], dtype=torch.float64), torch.tensor([0, 1]))
    assert robust.shares == pytest.approx([0.5, 0.5], abs=1e-9)


def test_what_is_not_finite_or_not_trained_on_moves_nothing():
    robust = lrptrain.GroupDROLoss(2, STEP)
    with torch.no_grad():
        robust(torch.tensor([3.0, 1.0]), torch.tensor([0, 1]))
    assert robust.shares == pytest.approx([0.5, 0.5])
    robust(torch.tensor([float("inf"), 1.0]), torch.tensor([0, 1]))
    assert robust.shares == pytest.approx([0.5, 0.5])
    assert robust.values["loss_1"] == 1.0  # and belongs to its own group
    robust(torch.tensor([3.0, 1.0]), torch.tensor([0, 1]))
    assert robust.shares[0] == pytest.approx(math.exp(1.5) / (math.exp(1.5) + math.exp(0.5)))


def test_a_run_goes_on():
    first = lrptrain.GroupDROLoss(3, STEP)
    features, label, _ = batch()
    group = torch.tensor([0, 1, 2, 2, 1, 0, 0])
    first(losses_of(layer(), features, label), group)
    second = lrptrain.GroupDROLoss(3, STEP)
    second.load_state_dict(first.state_dict())
    assert second.shares == first.shares != [1 / 3] * 3
    with pytest.raises(ValueError, match="had 3 groups, and this one has 2"):
        lrptrain.GroupDROLoss(2).load_state_dict(first.state_dict())


@pytest.mark.parametrize(
    ("losses", "group", "message"),
    [
        (torch.ones(2), torch.tensor([0, 2]), "group 2 is none of the 2 groups"),
        (torch.ones(2), torch.tensor([0, -1]), "group -1 is none of the 2 groups"),
        (torch.ones(2), torch.tensor([0]), "2 losses and 1 groups"),
        (torch.ones(2), torch.tensor([0.0, 1.0]), "one loss and one integer"),
        (torch.ones(2).mean(), torch.tensor([0, 1]), "one loss and one integer"),
    ],
)
def test_groups_that_do_not_fit_are_refused(losses, group, message):
    with pytest.raises(ValueError, match=message):
        lrptrain.GroupDROLoss(2)(losses, group)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": 0}, "groups must be at least 1"),
        ({"groups": 2, "step_size": -0.1}, "step_size must not be negative"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        lrptrain.GroupDROLoss(**options)


def two_steps(rank, ranks):
    """The shares, and the mean of the gradients over processes, as DDP takes it, of two steps on shares of a batch."""
    robust = lrptrain.GroupDROLoss(4, STEP)
    gradients = []
    for step in range(2):
        features, label, group = (x[rank::ranks] for x in batch(step, (0, 0, 0, 0, 2, 3, 1)))
        weight = layer()
        robust(losses_of(weight, features, label), group).backward()
        if ranks > 1:
            torch.distributed.all_reduce(weight.grad)
        gradients.append(weight.grad / ranks)
    problem = ""
    if ranks > 1:
        try:
            robust(torch.ones(2), torch.tensor([0, 4 if rank else 0]))
        except ValueError as error:
            problem = str(error)
    return robust.shares, gradients, problem


def test_two_processes_train_as_one_does(tmp_path):
    expected, gradients, _ = two_steps(0, 1)
    first, second = in_processes(two_steps, 2, tmp_path / "two", 2)
    assert first[0] == second[0] == pytest.approx(expected, rel=EXACT)
    for found, other, one in zip(first[1], second[1], gradients, strict=True):
        assert torch.equal(found, other)
        assert torch.allclose(found, one, rtol=0, atol=EXACT)
    assert (first[2], second[2]) == (
        "the groups of another process do not fit its losses",
        "group 4 is none of the 4 groups, which are counted from 0: say groups=",
    )


def test_the_name_of_an_entry_is_no_number_of_groups():
    with pytest.raises(TypeError, match="groups is the number of groups, not 'camera'; what tells a sample's group"):
        lrptrain.GroupDROLoss("camera")  # type: ignore[arg-type]
