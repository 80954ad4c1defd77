"""A guided step is the step that plain PyTorch takes on the sum of both losses."""

import weakref

import pytest
import torch
from guided import FEW, annotated_data, by_hand, descended, explicit, guidance, hand_loss, stepped, weights
from setting import vit

from lrptrain.guidance.losses import MapSettings
from lrptrain.guidance.objective import Objective
from lrptrain.relevance.passes.interception import intercepted

EXACT = 1e-12  # of float64; 2e-15 measured
METHODS = ("generic_attention", "transformer_attribution", "attnlrp", "input_x_gradient")
LOSSES = [*(("energy", method) for method in METHODS), *((loss, METHODS[0]) for loss in ("rrr", "consistency"))]
SEVERAL = [("consistency+energy", METHODS[0]), ("energy+l1+rrr", METHODS[3])]


def assert_close(found, expected, tolerance=EXACT):
    assert found.keys() == expected.keys()
    for name in found:
        difference = (found[name] - expected[name]).abs().max().item()
        assert difference <= tolerance, (name, difference)


@pytest.mark.parametrize(
    ("losses", "method", "rows"), [(*each, (None, FEW)[i % 2]) for i, each in enumerate(LOSSES + SEVERAL)]
)
def test_one_step_is_that_of_plain_pytorch(losses, method, rows, tmp_path):
    columns = annotated_data(rows=rows)
    found = stepped(tmp_path, guidance(losses, weight=0.5, method=method), columns)
    assert_close(found, by_hand(columns, names=losses, method=method))
    unguided = by_hand(columns, weight=0.0, names=losses, method=method)
    assert max((found[name] - unguided[name]).abs().max() for name in found) > 1e-6


@pytest.mark.parametrize(
    ("losses", "rows", "calls"), [("energy", None, 1), ("consistency", None, 2), ("energy", FEW, 2)]
)
def test_how_often_the_model_runs(losses, rows, calls, tmp_path):
    net, seen = vit().double(), []
    net.register_forward_hook(lambda module, given, output: seen.append(len(output)))
    stepped(tmp_path, guidance(losses, compare_every_n_batches=0), annotated_data(rows=rows), net)
    assert len(seen) == calls
    assert rows is None or seen == [6, len(rows)]


def term_gradients(loss, method):
    columns, net = annotated_data(), vit().double()
    objective = Objective({loss: 1.0}, MapSettings(method))
    with intercepted(net, 6, objective.records(6, 6), keeps_maps=objective.keeps_maps) as calls:
        net(columns["image"])
    generator = torch.Generator().manual_seed(0)
    found = objective.losses(calls[0], columns["mask"], columns["label"], torch.arange(6), generator)[loss].total
    names, parameters = zip(*net.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(found, parameters, allow_unused=True), strict=True))


def test_the_backward_pass_frees_what_the_recording_held(tmp_path, monkeypatch):
    recorded = []
    alive = []
    losses = Objective.losses

    def noted(self, forward, *args, **options):
        recorded.append(weakref.ref(forward.tape))
        return losses(self, forward, *args, **options)

    monkeypatch.setattr(Objective, "losses", noted)
    net = vit().double()
    net.head.weight.register_hook(lambda _: alive.append(recorded[0]() is not None))
    stepped(tmp_path, guidance("energy", compare_every_n_batches=0), annotated_data(), net)
    assert alive
    assert not any(alive)


class InHalfPrecision(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, image):
        return self.net(image).half()


def test_logits_in_half_precision_give_the_loss_of_the_others():
    # Their gradient is taken of a multiple of them, which no row may meet on its way.
    columns, net = annotated_data(dtype=torch.float32), vit()
    objective = Objective({"energy": 1.0}, MapSettings("generic_attention"))
    losses = []
    for model in (net, InHalfPrecision(net)):
        with intercepted(model, 6, objective.records(6, 6), keeps_maps=objective.keeps_maps) as calls:
            model(columns["image"])
        losses.append(objective.losses(calls[0], columns["mask"], columns["label"], torch.arange(6))["energy"].total)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=0)  # a gradient of 1 is exact in half precision


def unreached(gradients):
    return {name for name, x in gradients.items() if x is None or x.abs().max() < 1e-14}


# What is added last moves all positions of a logit alike: a gradient of the logit does not see it.
LAST = {"norm.bias", "head.bias"}
BLIND = {
    ("energy", "generic_attention"): LAST,
    ("energy", "transformer_attribution"): {"head.bias"},
    ("energy", "attnlrp"): {*LAST, "blocks.1.mlp.fc2.bias"},  # its epsilon rule hands on shares of the output, twice
    ("energy", "input_x_gradient"): LAST,
    ("rrr", "generic_attention"): set(),
    ("consistency", "generic_attention"): set(),
}


@pytest.mark.parametrize(("loss", "method"), LOSSES)
def test_every_weight_that_can_be_guided_is(loss, method):
    gradients = term_gradients(loss, method)
    assert unreached(gradients) == BLIND[loss, method]
    if method != "transformer_attribution":  # whose rules look at the scores themselves
        for i in range(2):  # softmax does not see what a key's bias adds to all scores of a row
            assert gradients[f"blocks.{i}.attn.qkv.bias"][32:64].abs().max() < 1e-14


def test_only_what_is_trained_is_guided(tmp_path):
    columns, net = annotated_data(), vit().double()
    net.requires_grad_(False)
    trained = {"head": net.head, "blocks.1": net.blocks[1], "norm": net.norm}
    for part in trained.values():
        part.requires_grad_(True)
    found, expected, start = (
        stepped(tmp_path, guidance(weight=0.5), columns, net),
        by_hand(columns, names="energy"),
        weights(vit().double()),
    )
    for name in found:
        goal = expected if name.startswith(tuple(trained)) else start
        torch.testing.assert_close(found[name], goal[name], rtol=0, atol=EXACT)
    assert hand_loss(explicit(vit().double()), columns, "energy") > 0


def test_a_loss_of_ones_own_is_trained_with(tmp_path):
    """One that is not on maps: the entropy of the prediction on the image with nothing but the evidence."""
    from lrptrain.guidance import LOSSES, register_loss
    from lrptrain.guidance.losses import LossSum, Needs

    columns = annotated_data()
    alone = columns["image"] * (columns["mask"] == 1)[:, None]

    def entropy(logits):
        return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)

    @register_loss("evidence_entropy", Needs.SECOND_PASS)
    def evidence_entropy(batch):
        judged = (batch.annotation == 1).flatten(1).any(1)[batch.guided]
        image = batch.forward.explained * (batch.annotation == 1)[:, None]
        return LossSum.over(entropy(batch.forward.again(image[batch.guided], batch.guided)), judged)

    try:
        found = stepped(tmp_path, guidance({"evidence_entropy": 0.5}), columns)
    finally:
        del LOSSES["evidence_entropy"]
    net = vit().double()
    total = (
        torch.nn.functional.cross_entropy(net(columns["image"]), columns["label"]) + 0.5 * entropy(net(alone)).mean()
    )
    assert_close(found, descended(net, total))
