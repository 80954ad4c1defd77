"""The norm-based methods: roll-out, projection on the classifier's row."""

import pytest
import torch
from decomposed import WHOLE, affine, assert_close, constant, contributions, expected_forms, parts, recorded
from model_zoo import GATED, KINDS, POST_NORM

import lrptrain
from lrptrain.relevance.decomposition.blocks import PRE_LN
from lrptrain.relevance.decomposition.linearised import chain
from lrptrain.relevance.explanation import Explanation

# --- roll-out ---


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_the_roll_out_multiplies_maps_with_rows_of_sum_1(name):
    recording, forms = recorded(name), expected_forms(name)
    maps = lrptrain.decompose(recording.model, KINDS[name].inputs()).norms
    for form in forms:
        first, last = (one / one.sum(-1, keepdim=True).clamp(min=1e-300) for one in maps[form])
        if form == "attention_norm":
            first, last = ((one + torch.eye(first.shape[-1])) / 2 for one in (first, last))
        row = (last @ first)[:, 0]
        expected = recording.layout.content(row if recording.padding is None else row * recording.padding)
        assert_close(recorded(name).attribute(0, form).scores, expected)
        one = recording.layout.content((maps[form][0] / maps[form][0].sum(-1, keepdim=True).clamp(min=1e-300))[:, 0])
        assert_close(recorded(name).attribute(0, form, block=0).scores, one)


# --- projection on the classifier's row ---


@torch.no_grad()
def textbook_projection(parts, model, target):
    """<c, z_0j> of a ViT: the class token's parts through the final norm, its denominator frozen, and the head."""
    states = []
    hook = model.norm.register_forward_pre_hook(lambda _, args: states.append(args[0][:, 0]))
    model(KINDS["vit"].inputs())
    hook.remove()
    deviation = torch.sqrt(states[0].var(-1, correction=0) + model.norm.eps)[:, None, None]
    row = parts[:, 0]
    return ((row - row.mean(-1, keepdim=True)) / deviation * model.norm.weight) @ model.head.weight[target]


@pytest.mark.parametrize("form", PRE_LN)
def test_the_projection_of_a_vit_is_the_textbook_formula(form):
    one, model = contributions("vit")[-1], recorded("vit").model
    with torch.no_grad():
        z = parts(one, one.block.site(form))
    expected = recorded("vit").layout.content(textbook_projection(z, model, 3))
    found = recorded("vit").attribute(3, form, project=True, start_layer=-1)
    assert_close(found.scores, expected)


@pytest.mark.parametrize("name", sorted(set(WHOLE) - GATED))
@torch.no_grad()
def test_projected_parts_and_biases_sum_to_the_logit(name):
    recording, one = recorded(name), contributions(name)[-1]
    explanation = Explanation(recording, torch.tensor([0, 3, 4]), torch.tensor([1, 1, 1]))
    site = one.block.site("atb_ff_res_norm")
    shares = one.shares(explanation, site, site, residual=True).sum(1)
    rest = chain(recording.tape, [site], [recording.output])
    biases = explanation.explained(affine(rest, {site: constant(one, site)})[recording.output])
    assert_close(shares + biases, explanation.explained(recording.logits))


@pytest.mark.parametrize("name", ["vit", "bert", "torchvision_vit", "gpt2", "vit_mean"])
def test_projections_add_up_along_the_residual_stream(name):
    atb = "attn_res_ln_norm" if name in POST_NORM else "atb_norm"
    found = {form: recorded(name).attribute(2, form, project=True).scores for form in expected_forms(name)}
    last = {form: recorded(name).attribute(2, form, project=True, start_layer=-1).scores for form in found}
    assert_close(last[atb] + last["atb_ff_norm"], last["atb_ff_res_norm"])
    class_token = name in ("vit", "torchvision_vit")  # it alone passes by the attention, and it is no patch
    assert torch.allclose(last["attention_norm"], last[atb]) == class_token
    assert not torch.allclose(found[atb], last[atb])
    assert not torch.allclose(recorded(name).attribute(1, atb, project=True).scores, found[atb])


def test_a_contrastive_projection_is_the_difference():
    maps = [recorded("bert").attribute(t, "atb_ff_res_ln_norm", project=True).scores for t in (1, 4)]
    both = recorded("bert").attribute(1, "atb_ff_res_ln_norm", other=4, project=True).scores
    assert_close(both, maps[0] - maps[1])


# --- options ---


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"block": 2}, "block=2 is out of range for a model of 2 blocks"),
        ({"start_layer": 2}, "start_layer=2 is out of range"),
        ({"block": 0, "project": True}, "leave out start_layer and project"),
    ],
)
def test_options_out_of_range(options, says):
    with pytest.raises(ValueError, match=says):
        recorded("vit").attribute(0, "atb_norm", **options)
