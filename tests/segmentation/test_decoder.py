import pytest
import torch
from model_zoo import KINDS
from small_models import tiny_vit
from torch import nn

from lrptrain.relevance.types import UnsupportedModelError
from lrptrain.segmentation.decoder import PatchDecoder, PatchTokens

VITS = [
    "vit", "vit_distilled", "vit_registers", "vit_mean", "vit_wide", "beit", "torchvision_vit", "hf_vit", "dinov2",
    "clip", "siglip",
]  # fmt: skip


@pytest.mark.parametrize("name", VITS)
def test_patch_tokens_depend_on_their_own_patch_before_any_attention(name):
    """With all blocks' branches silenced, a change of one patch moves exactly that cell of the map."""
    kind = KINDS[name]
    assert kind.size is not None
    assert kind.grid is not None
    model, images = kind.build(True), kind.inputs(2)
    tokens = PatchTokens(model, kind.size, 1)
    for parameter_name, parameter in model.named_parameters():
        if any(word in parameter_name for word in ("blocks", "layer.", "layers")) and parameter.ndim > 1:
            parameter.data.zero_()
    changed = images.clone()
    changed[:, :, 8:16, 16:24] += 1
    with torch.no_grad():
        difference = (tokens(images)[0] - tokens(changed)[0]).abs().sum(1)
    expected = torch.zeros(kind.grid, dtype=torch.bool)
    expected[1, 2] = True
    assert tokens(images)[0].shape == (2, tokens.width, *kind.grid)
    assert torch.equal(difference > 1e-6, expected.expand(2, -1, -1))


def test_blocks_are_evenly_spaced_and_end_with_the_last():
    model = tiny_vit(depth=6)
    assert PatchTokens(model, 16, 1).names == ["blocks.5"]
    assert PatchTokens(model, 16, 2).names == ["blocks.2", "blocks.5"]
    assert PatchTokens(model, 16, 6).names == [f"blocks.{i}" for i in range(6)]
    with pytest.raises(ValueError, match="between 1 and the 6"):
        PatchTokens(model, 16, 7)


def test_states_are_those_of_the_library():
    model, images = tiny_vit(depth=4).eval(), torch.randn(2, 3, 16, 16)
    expected = model.forward_intermediates(images, indices=[1, 3], intermediates_only=True)
    for own, theirs in zip(PatchTokens(model, 16, 2)(images), expected, strict=True):
        assert torch.equal(own, theirs)


@pytest.mark.parametrize("name", ["vit_wide", "hf_vit"])
def test_the_decoder_gives_logits_for_every_pixel(name):
    kind = KINDS[name]
    assert kind.size is not None
    net = PatchDecoder(kind.build(True), 3, kind.size, blocks=2, width=32).double()
    logits = net(kind.inputs(3))
    assert logits.shape == (3, 4, *kind.size)
    one_by_one = torch.cat([net(image[None]) for image in kind.inputs(3)])
    assert torch.allclose(logits, one_by_one, atol=1e-12, rtol=0)


@pytest.mark.parametrize("patch", [4, 7, 8])
def test_patches_of_any_size_are_decoded(patch):
    net = PatchDecoder(tiny_vit(img_size=4 * patch, patch_size=patch), 2, 4 * patch)
    assert net(torch.randn(1, 3, 4 * patch, 4 * patch)).shape == (1, 3, 4 * patch, 4 * patch)
    assert len(net.steps) == {4: 2, 7: 2, 8: 3}[patch]


def test_models_without_patch_tokens_are_refused():
    with pytest.raises((UnsupportedModelError, NotImplementedError, ValueError)):
        PatchDecoder(nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten()), 3, 16)
