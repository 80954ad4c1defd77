import pytest
import torch
from audited import context, registered
from model_zoo import KINDS, select
from scipy.stats import kendalltau
from small_models import Small, patches, tiny_vit
from torch import nn

import lrptrain
from lrptrain.auditing.checks.leave_one_out import changes_without, rank_association
from lrptrain.auditing.context import AuditBatch, AuditContext
from lrptrain.auditing.score import summarize


def correlation(model, inputs, target, method):
    """The values of the test on one batch."""
    batch = {"image": inputs} if isinstance(inputs, torch.Tensor) else inputs
    size = len(next(iter(batch.values())))
    label = torch.as_tensor(target).expand(size)
    audited = AuditBatch(batch, inputs, torch.nn.functional.one_hot(label, 100), label)
    return registered("leave_one_out").run(AuditContext(model, [audited], (method,)), method)


def test_leave_one_out_is_the_distance_of_the_outputs():
    model, images = Small(), patches()
    before = model(images).softmax(1)
    found = changes_without(model, images)
    for token in (0, 5, 15):
        row, column = token // 4 * 4, token % 4 * 4
        without = images.clone()
        without[:, :, row : row + 4, column : column + 4] = 0
        expected = (model(without).softmax(1) - before).abs().sum(1) / 2
        torch.testing.assert_close(found[:, token], expected.detach())


def inputs_of(name):
    """Inputs of a kind; texts begin and end alike, as with special tokens."""
    inputs = KINDS[name].inputs()
    if name == "bert":
        inputs = {key: x.clone() for key, x in inputs.items()}
        inputs["input_ids"][:, 0] = 1
        inputs["input_ids"][torch.arange(3), inputs["attention_mask"].sum(1) - 1] = 2
    return inputs


@pytest.mark.parametrize("name", ["torchvision_vit", "hf_vit", "bert"])
def test_a_batch_equals_singles_and_padding_changes_nothing(name):
    model, inputs = KINDS[name].build(True), inputs_of(name)
    together = correlation(model, inputs, 1, "generic_attention")
    for i in range(3):
        alone = select(inputs, slice(i, i + 1))
        if KINDS[name].size is None:
            alone = {key: x[:, : (10, 7, 4)[i]] for key, x in alone.items()}
        one = correlation(model, alone, 1, "generic_attention")
        assert one["tau"] == pytest.approx(together["tau"][i : i + 1], abs=1e-5, nan_ok=True)


def test_special_tokens_and_padding_take_no_part_and_the_size_of_a_signed_map_counts():
    model, inputs = KINDS["bert"].build(True), inputs_of("bert")
    reference = changes_without(model, inputs)
    assert (reference[:, 0] == 0).all()
    assert (reference[1, 6:] == 0).all()
    found = correlation(model, inputs, 0, "input_x_gradient")
    scores = lrptrain.attribute(model, inputs, 0, "input_x_gradient").scores.abs()
    expected = kendalltau(scores[0, 1:9], reference[0, 1:9])
    assert found["tau"][0] == pytest.approx(expected.statistic, abs=1e-6)


def test_ties_and_undefined_samples():
    first = torch.tensor([[1.0, 2, 2, 3], [1, 1, 1, 1], [1, 2, 3, 4], [4, 3, 2, 1]])
    second = torch.tensor([[1.0, 2, 3, 3], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 9]])
    usable = torch.ones(4, 4, dtype=torch.bool)
    usable[2, 1:] = False
    tau = rank_association(first, second, usable)
    # Of 6 pairs 4 agree; one is tied in each: tau-b = 4 / sqrt(5 * 5).
    torch.testing.assert_close(tau, torch.tensor([0.8, torch.nan, torch.nan, -1]).double(), equal_nan=True)


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_a_unit_is_the_correlation_of_all_batches(name):
    audit = context(name)
    values = registered("leave_one_out").run(audit, "input_x_gradient")
    alone = [correlation(audit.model, each.inputs, each.target, "input_x_gradient") for each in audit.batches]
    assert values["tau"] == pytest.approx([x for each in alone for x in each["tau"]], abs=1e-5, nan_ok=True)


def test_a_tau_above_zero_passes_and_no_tau_decides():
    test = registered("leave_one_out")
    passed, failed = test.check(summarize([0.2, 0.3, 0.4])), test.check(summarize([-0.2, 0.3]))
    assert (passed.passed, failed.passed) == (True, False)
    assert not failed.decisive
    assert failed.reason.startswith("it does not agree with leave-one-out: tau 0.05 [")


def test_the_model_is_evaluated_and_left_as_it_was():
    model, images = tiny_vit(), torch.randn(2, 3, 16, 16)
    changes = changes_without(model.eval(), images)
    model.train().norm.eval()
    model.set_grad_checkpointing(True)
    modes = [module.training for module in model.modules()]
    torch.testing.assert_close(changes_without(nn.DataParallel(model), images), changes)
    assert [module.training for module in model.modules()] == modes
    assert model.grad_checkpointing
