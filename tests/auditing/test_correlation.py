import pytest
import torch
from audited import context, registered
from model_zoo import KINDS, select
from scipy.stats import kendalltau
from small_models import Small, patches
from torch.nn import functional as F

import lrptrain
from lrptrain.auditing.context import AuditBatch, AuditContext
from lrptrain.auditing.correlation import rank_association, reference_scores
from lrptrain.auditing.score import summarize


def correlation(model, inputs, target, method, reference):
    """The values of the test of a reference on one batch."""
    batch = {"image": inputs} if isinstance(inputs, torch.Tensor) else inputs
    size = len(next(iter(batch.values())))
    label = torch.as_tensor(target).expand(size)
    audited = AuditBatch(batch, inputs, torch.zeros(size, 2), label, explained=label)
    return registered(reference).run(AuditContext(model, [audited], (method,)), method)


def test_the_gradient_is_that_with_attention_held_fixed():
    model, images = Small(), patches()
    pixels = images.clone().requires_grad_()
    tokens = model.embed(pixels).flatten(2).transpose(1, 2) + model.position
    q, k, v = model.qkv(tokens).chunk(3, -1)
    attention = (q @ k.mT / 8**0.5).softmax(-1).detach()
    logits = model.head((tokens + model.out(attention @ v)).mean(1))
    (gradient,) = torch.autograd.grad(logits[:, 2].sum(), pixels)
    expected = F.avg_pool2d((gradient * images).sum(1), 4).flatten(1).abs() * 16
    torch.testing.assert_close(reference_scores(model, images, 2, "gradient"), expected)
    attended = lrptrain.attribute(model, images, 2, "input_x_gradient").scores.abs()
    assert (attended - expected).abs().max() > 1e-3


def test_leave_one_out_is_the_distance_of_the_outputs():
    model, images = Small(), patches()
    before = model(images).softmax(1)
    found = reference_scores(model, images, None, "leave_one_out")
    for token in (0, 5, 15):
        row, column = token // 4 * 4, token % 4 * 4
        without = images.clone()
        without[:, :, row : row + 4, column : column + 4] = 0
        expected = (model(without).softmax(1) - before).abs().sum(1) / 2
        torch.testing.assert_close(found[:, token], expected.detach())


@pytest.mark.parametrize("reference", ["gradient", "leave_one_out"])
@pytest.mark.parametrize("name", ["torchvision_vit", "hf_vit", "bert"])
def test_a_batch_equals_singles_and_padding_changes_nothing(name, reference):
    model, inputs = KINDS[name].build(True), KINDS[name].inputs()
    together = correlation(model, inputs, 1, "generic_attention", reference)
    for i in range(3):
        alone = select(inputs, slice(i, i + 1))
        if KINDS[name].size is None:
            alone = {key: x[:, : (10, 7, 4)[i]] for key, x in alone.items()}
        one = correlation(model, alone, 1, "generic_attention", reference)
        for key in ("tau", "p_value"):
            assert one[key] == pytest.approx(together[key][i : i + 1], abs=1e-5, nan_ok=True)


def test_special_tokens_and_padding_take_no_part_and_the_size_of_a_signed_map_counts():
    model, inputs = KINDS["bert"].build(True), KINDS["bert"].inputs()
    reference = reference_scores(model, inputs, 0, "leave_one_out")
    assert (reference[:, 0] == 0).all()
    assert (reference[1, 6:] == 0).all()
    found = correlation(model, inputs, 0, "input_x_gradient", "leave_one_out")
    scores = lrptrain.attribute(model, inputs, 0, "input_x_gradient").scores.abs()
    expected = kendalltau(scores[0, 1:9], reference[0, 1:9])
    assert found["tau"][0] == pytest.approx(expected.statistic, abs=1e-6)
    assert found["p_value"][0] == pytest.approx(expected.pvalue, abs=1e-6)


def test_ties_and_undefined_samples():
    first = torch.tensor([[1.0, 2, 2, 3], [1, 1, 1, 1], [1, 2, 3, 4], [4, 3, 2, 1]])
    second = torch.tensor([[1.0, 2, 3, 3], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 9]])
    usable = torch.ones(4, 4, dtype=torch.bool)
    usable[2, 1:] = False
    tau, p_value = rank_association(first, second, usable)
    # Of 6 pairs 4 agree; one is tied in each: tau-b = 4 / sqrt(5 * 5).
    torch.testing.assert_close(tau, torch.tensor([0.8, torch.nan, torch.nan, -1]).double(), equal_nan=True)
    assert p_value[3].item() == pytest.approx(2 / 24)  # one of the 24 orders on either side
    assert p_value[1:3].isnan().all()


@pytest.mark.parametrize("name", ["vit", "bert"])
@pytest.mark.parametrize("reference", ["leave_one_out", "gradient"])
def test_a_unit_is_the_correlation_of_all_batches(reference, name):
    audit = context(name)
    values = registered(reference).run(audit, "input_x_gradient")
    alone = [
        correlation(audit.model, each.inputs, each.target, "input_x_gradient", reference) for each in audit.batches
    ]
    for key in ("tau", "p_value"):
        assert values[key] == pytest.approx([x for each in alone for x in each[key]], abs=1e-5, nan_ok=True)


def test_a_tau_above_zero_passes_and_no_tau_decides():
    test = registered("leave_one_out")
    passed, failed = test.check(summarize([0.2, 0.3, 0.4])), test.check(summarize([-0.2, 0.3]))
    assert (passed.passed, failed.passed) == (True, False)
    assert not failed.decisive
    assert failed.reason.startswith("it does not agree with leave-one-out: tau 0.05 [")
