import pytest
import torch
from audited import context, registered
from model_zoo import KINDS, select
from small_models import Small, patches

import lrptrain
from lrptrain.auditing.checks.uniform import uniform_attention_logits


def test_it_is_the_mean_of_the_values():
    model, images = Small(), patches()
    tokens = model.embed(images).flatten(2).transpose(1, 2) + model.position
    value = model.qkv(tokens).chunk(3, -1)[2]
    expected = model.head((tokens + model.out(value.mean(1, keepdim=True))).mean(1))
    torch.testing.assert_close(uniform_attention_logits(model, images), expected.detach())


@pytest.mark.parametrize("name", ["torchvision_vit", "hf_vit", "bert", "modernbert_mean", "llama"])
def test_a_batch_equals_singles_and_padding_changes_nothing(name):
    model, inputs = KINDS[name].build(True), KINDS[name].inputs()
    together = uniform_attention_logits(model, inputs)
    for i, row in enumerate(together):
        alone = select(inputs, slice(i, i + 1))
        if KINDS[name].size is None:
            alone = {key: x[:, : (10, 7, 4)[i]] for key, x in alone.items()}
        torch.testing.assert_close(uniform_attention_logits(model, alone)[0], row, rtol=1e-9, atol=1e-12)


def test_windows_stay_windows_and_the_model_stays_as_it_was():
    kind = KINDS["timm_swin"]
    model, inputs = kind.build(True), kind.inputs()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    assert uniform_attention_logits(model, inputs).isfinite().all()
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_without_attention_is_told():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 4, 4), torch.nn.Flatten(2), torch.nn.Flatten(), torch.nn.Linear(128, 3)
    )
    with pytest.raises(lrptrain.UnsupportedModelError, match="no self-attention"):
        uniform_attention_logits(model, torch.randn(2, 3, 16, 16))


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_a_unit_is_of_all_batches(name):
    audit = context(name)
    values = registered("uniform").run(audit, "")
    logits = torch.cat([uniform_attention_logits(audit.model, batch.inputs) for batch in audit.batches])
    tvd = (audit.logits.softmax(1) - logits.softmax(1)).abs().sum(1) / 2
    torch.testing.assert_close(torch.tensor(values["tvd"]).double(), tvd.double(), atol=1e-5, rtol=0)
    assert values["right_uniform"] == (logits.argmax(1) == audit.label).double().tolist()
    assert values["same"] == (logits.argmax(1) == audit.logits.argmax(1)).double().tolist()
    assert len(values["jsd"]) == 10
    assert max(values["jsd"]) > 0
