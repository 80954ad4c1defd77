import pytest
import torch
from model_zoo import KINDS, timm_vit

from lrptrain.segmentation.sizes import any_size, native_size, patch_size, scaled_size

ADAPTABLE = ("vit", "vit_distilled", "vit_registers", "vit_mean", "vit_wide", "hf_vit", "clip", "siglip", "dinov2")
FIXED = ("vit", "vit_wide", "hf_vit", "clip")


def logits(model, images):
    with torch.no_grad():
        output = model(images)
    return getattr(output, "logits", output)


def settings(model):
    """What could be left behind."""
    return {
        name: ({k: v for k, v in vars(each).items() if not k.startswith("_")}, dict(each._forward_pre_hooks))
        for name, each in model.named_modules()
    }


@pytest.mark.parametrize("name", ADAPTABLE)
def test_a_vit_takes_smaller_and_larger_images(name):
    model = KINDS[name].build(True)
    with any_size(model):
        for size in ((16, 16), (48, 48), (24, 40)):
            found = logits(model, torch.randn(2, 3, *size, dtype=torch.float64))
            assert found.shape == (2, 5)
            assert found.isfinite().all()


@pytest.mark.parametrize("name", ADAPTABLE)
def test_its_own_size_gives_the_same(name):
    model, images = KINDS[name].build(True), KINDS[name].inputs()
    expected = logits(model, images)
    with any_size(model):
        torch.testing.assert_close(logits(model, images), expected, rtol=1e-12, atol=1e-12)


def test_it_is_what_timm_calls_a_dynamic_size():
    plain, dynamic = timm_vit(True), timm_vit(True, dynamic_img_size=True)
    images = torch.randn(2, 3, 48, 24, dtype=torch.float64)
    with any_size(plain):
        torch.testing.assert_close(logits(plain, images), logits(dynamic, images), rtol=0, atol=0)


def test_it_is_what_hugging_face_interpolates():
    model, images = KINDS["hf_vit"].build(True), torch.randn(2, 3, 48, 48, dtype=torch.float64)
    expected = model(pixel_values=images, interpolate_pos_encoding=True).logits
    with any_size(model):
        torch.testing.assert_close(logits(model, images), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", FIXED)
def test_afterwards_the_model_is_as_it_was(name):
    model = KINDS[name].build(True)
    before = settings(model)
    with pytest.raises(KeyError), any_size(model):
        raise KeyError("inside")
    assert settings(model) == before
    with pytest.raises((ValueError, AssertionError)):
        logits(model, torch.randn(2, 3, 48, 80, dtype=torch.float64))


def test_sizes():
    assert native_size(KINDS["vit_wide"].build(True)) == (32, 48)
    assert native_size(KINDS["clip"].build(True)) == (32, 32)
    assert native_size(torch.nn.Linear(2, 2)) is None
    assert patch_size(KINDS["hf_vit"].build(True)) == (8, 8)
    assert patch_size(torch.nn.Linear(2, 2)) == (1, 1)
    assert scaled_size((224, 224), 0.5, (16, 16)) == (112, 112)
    assert scaled_size((32, 48), 1.5, (8, 8)) == (48, 72)
    assert scaled_size((32, 48), 0.01, (8, 8)) == (8, 8)
