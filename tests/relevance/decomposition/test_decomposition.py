"""Norm-based decomposition: completeness, textbook formulas from the weights, what does not exist."""

import math

import pytest
import torch
from decomposed import WHOLE, assert_close, constant, contributions, expected_forms, integrated, parts, recorded
from golden_cases import relative_error
from model_zoo import KINDS, hugging_face, select, timm_vit
from torch.nn import functional as F

import lrptrain
from lrptrain.relevance.decomposition.blocks import POST_LN, PRE_LN, transformer_blocks
from lrptrain.relevance.decomposition.contributions import Contributions


def norm(x):
    return torch.linalg.vector_norm(x, dim=-1)


# --- every model ---


@pytest.mark.parametrize("name", WHOLE)
@torch.no_grad()
def test_parts_and_biases_rebuild_every_value_that_is_decomposed(name):
    for one in contributions(name):
        assert sorted(one.block.sites) == sorted(expected_forms(name))
        for site in one.block.sites.values():
            whole = one.batch_first(site, parts(one, site).sum(2)) + constant(one, site)
            assert relative_error(whole, site.tensor).max() < 1e-9


@pytest.mark.parametrize("name", WHOLE)
def test_decompose_gives_all_forms_for_every_block(name):
    found = lrptrain.decompose(KINDS[name].build(True), KINDS[name].inputs())
    assert sorted(found.norms) == sorted(found.mixing_ratios) == sorted(expected_forms(name))
    assert torch.equal(found.logits, recorded(name).logits)
    length = recorded(name).length
    for form, maps in found.norms.items():
        assert maps.shape == (2, 3, length, length)
        assert found.mixing_ratios[form].shape == (2, 3, length)
        assert (maps >= 0).all()
        assert ((found.mixing_ratios[form] >= 0) & (found.mixing_ratios[form] <= 1)).all()


@pytest.mark.parametrize("name", ["vit_mean", "bert", "gpt2", "torchvision_vit"])
def test_a_batch_equals_its_samples_and_padding_changes_nothing(name):
    model, inputs = KINDS[name].build(True), KINDS[name].inputs()
    whole = lrptrain.decompose(model, inputs)
    for row in range(3):
        alone = select(inputs, slice(row, row + 1))
        if not isinstance(alone, torch.Tensor):
            length = int(alone["attention_mask"].sum())
            alone = {key: x[:, :length] for key, x in alone.items()}
        found = lrptrain.decompose(model, alone)
        for form, maps in found.norms.items():
            tokens = maps.shape[-1]
            both = whole.norms[form][:, row : row + 1]
            assert_close(both[..., :tokens, :tokens], maps)
            assert both[..., tokens:, :].sum() == both[..., tokens:].sum() == 0
            ratios = whole.mixing_ratios[form][:, row : row + 1]
            assert_close(ratios[..., :tokens], found.mixing_ratios[form])
            assert ratios[..., tokens:].sum() == 0


# --- textbook formulas, from the weights, one pair of tokens at a time ---


def frozen_norm(z, whole, layer):
    return layer.weight * (z - z.mean()) / torch.sqrt(whole.var(correction=0) + layer.eps)


def heads_of(x, query, key, value):
    """Attention probabilities [4, s, s] and values [4, s, 8] of states [s, 32], of a model with 4 heads."""
    q, k, v = (layer(x).view(-1, 4, 8).transpose(0, 1) for layer in (query, key, value))
    return torch.softmax(q @ k.transpose(1, 2) / math.sqrt(8), -1), v


def attention_parts(alpha, v, out):
    """sum_h alpha_ij f^h(x_j), without the output bias: [s, s, d]."""
    per_head = out.weight.view(32, 4, 8)  # rows: output; columns: head, entry of the head
    return torch.einsum("hij,hjk,dhk->ijd", alpha, v, per_head)


def textbook_bert(layer, x):
    """The forms of one post-LN block, written out: states [s, 32] -> parts [s, s, 32] by form."""
    attention, s = layer.attention, len(x)
    projections = (getattr(attention.self, name) for name in ("query", "key", "value"))
    alpha, v = heads_of(x, *projections)
    parts = {"attention_norm": attention_parts(alpha, v, attention.output.dense)}
    y = parts["attention_norm"].clone()
    y[range(s), range(s)] += x
    before = y.sum(1) + attention.output.dense.bias
    first, last = attention.output.LayerNorm, layer.output.LayerNorm
    n = torch.stack([torch.stack([frozen_norm(y[i, j], before[i], first) for j in range(s)]) for i in range(s)])
    after = first(before)
    u = layer.intermediate.dense(after)
    f = torch.stack([
        torch.stack([
            layer.output.dense.weight @ integrated(layer.intermediate.dense.weight @ n[i, j], u[i], F.gelu)
            for j in range(s)
        ])
        for i in range(s)
    ])  # fmt: skip
    r = f + n
    whole = layer.output.dense(F.gelu(u)) + after
    z = torch.stack([torch.stack([frozen_norm(r[i, j], whole[i], last) for j in range(s)]) for i in range(s)])
    return {**parts, "attn_res_ln_norm": n, "atb_ff_norm": f, "atb_ff_res_norm": r, "atb_ff_res_ln_norm": z}


def test_every_form_of_a_post_ln_block_is_the_textbook_formula():
    model = hugging_face("BertForSequenceClassification", True)
    ids = KINDS["bert"].inputs()["input_ids"][:1]
    with torch.no_grad():
        states = model(ids, output_hidden_states=True).hidden_states
    found = lrptrain.decompose(model, {"input_ids": ids})
    assert tuple(found.norms) == POST_LN
    for block, layer in enumerate(model.bert.encoder.layer):
        parts = {form: z.detach() for form, z in textbook_bert(layer, states[block][0]).items()}
        for form, z in parts.items():
            assert_close(found.norms[form][block, 0], norm(z))
            own = z[range(len(z)), range(len(z))]
            others = norm(z.sum(1) - own)
            ratio = others / (others + norm(own))
            assert_close(found.mixing_ratios[form][block, 0], ratio)


def textbook_vit(block, x):
    """The forms of one pre-LN block with layer scales, written out."""
    qkv, s = block.attn.qkv, len(x)
    layers = [torch.nn.Linear(32, 32).double() for _ in range(3)]
    for layer, weight, bias in zip(layers, qkv.weight.chunk(3), qkv.bias.chunk(3), strict=True):
        layer.weight.data, layer.bias.data = weight.data, bias.data
    alpha, v = heads_of(block.norm1(x), *layers)
    scale_1, scale_2 = block.ls1.gamma, block.ls2.gamma
    attention = attention_parts(alpha, v, block.attn.proj) * scale_1
    y = attention.clone()
    y[range(s), range(s)] += x
    before = y.sum(1) + block.attn.proj.bias * scale_1
    u = block.mlp.fc1(block.norm2(before))
    n = torch.stack([torch.stack([frozen_norm(y[i, j], before[i], block.norm2) for j in range(s)]) for i in range(s)])
    f = integrated(n @ block.mlp.fc1.weight.T, u[:, None], F.gelu) @ block.mlp.fc2.weight.T * scale_2
    return {"attention_norm": attention, "atb_norm": y, "atb_ff_norm": f, "atb_ff_res_norm": y + f}


def test_every_form_of_a_pre_ln_block_is_the_textbook_formula():
    model, image = timm_vit(True, init_values=0.3), KINDS["vit"].inputs()[:1]
    states = []
    hooks = [block.register_forward_pre_hook(lambda _, args: states.append(args[0][0])) for block in model.blocks]
    with torch.no_grad():
        model(image)
    for hook in hooks:
        hook.remove()
    found = lrptrain.decompose(model, image)
    assert tuple(found.norms) == PRE_LN
    for number, (block, x) in enumerate(zip(model.blocks, states, strict=True)):
        for form, z in textbook_vit(block, x).items():
            assert_close(found.norms[form][number, 0], norm(z.detach()))


# --- other ways to run a model ---


@torch.no_grad()
def test_dropout_of_a_training_model_belongs_to_the_weights_and_slopes():
    model = hugging_face("BertForSequenceClassification", True).train()
    torch.manual_seed(0)
    recording = lrptrain.record(model, KINDS["bert"].inputs())
    for block in transformer_blocks(recording):
        one = Contributions(recording, block)
        for site in block.sites.values():
            whole = parts(one, site).sum(2) + constant(one, site)
            assert relative_error(whole, site.tensor).max() < 1e-9


def test_memory_is_bounded_by_pushing_some_parts_at_a_time(monkeypatch):
    whole = lrptrain.decompose(KINDS["bert"].build(True), KINDS["bert"].inputs())
    monkeypatch.setattr("lrptrain.relevance.decomposition.contributions._BYTES", 1)
    found = lrptrain.decompose(KINDS["bert"].build(True), KINDS["bert"].inputs())
    for form in POST_LN:
        assert_close(found.norms[form], whole.norms[form])


# --- what does not exist ---


@pytest.mark.parametrize(
    ("name", "form", "says"),
    [
        ("bert", "atb_norm", r"its blocks are post-LN.*These exist: attention_norm, attn_res_ln_norm, atb_ff_norm"),
        ("vit", "attn_res_ln_norm", r"its blocks are pre-LN.*These exist: attention_norm, atb_norm, atb_ff_norm"),
        ("vit", "atb_ff_res_ln_norm", r"pre-LN"),
        ("llama", "atb_ff_norm", r"mlp' multiplies two values.*a gate.*These exist: attention_norm, atb_norm$"),
        ("timm_swin", "attention_norm", r"windows"),
        ("bert", "atb_nrom", r"did you mean atb_norm"),
    ],
)
def test_a_form_that_does_not_exist_says_which_do(name, form, says):
    with pytest.raises(lrptrain.UnsupportedMethodError, match=f"(?s){says}"):
        lrptrain.decompose(KINDS[name].build(True), KINDS[name].inputs(), form)
    with pytest.raises(lrptrain.UnsupportedMethodError, match=f"(?s){says}"):
        recorded(name).attribute(0, form)


def test_attention_without_a_residual_connection():
    class Bare(torch.nn.Module):
        def forward(self, x):
            return (torch.softmax(x @ x.transpose(1, 2), -1) @ x).mean(1)

    with pytest.raises(lrptrain.UnsupportedMethodError, match="no residual connection"):
        lrptrain.decompose(Bare(), torch.randn(2, 5, 4))
