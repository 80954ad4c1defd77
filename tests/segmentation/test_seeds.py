import pytest
import torch
import torch.nn.functional as F
from model_zoo import KINDS, timm_vit

import lrptrain
from lrptrain.segmentation.seeds import seed_maps

PRESENT = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]).bool()


def setting(name="vit", samples=3):
    kind = KINDS[name]
    return kind.build(True), kind.inputs(samples)


def test_one_scale_without_flip_is_the_positive_relevance_over_its_maximum():
    model, images = setting()
    maps = seed_maps(model, images, PRESENT, "attnlrp", scales=(1,), flip=False)
    for row, target in ((0, 0), (0, 3), (2, 1)):
        alone = lrptrain.attribute(model, images[row : row + 1], target, "attnlrp")
        patches = alone.scores.clamp(min=0).view(1, 1, 4, 4)
        seen = F.interpolate(patches, (32, 32), mode="bilinear", align_corners=False)[0, 0]
        torch.testing.assert_close(maps[row, target], seen / seen.max(), rtol=1e-9, atol=1e-9)
    assert not maps[~PRESENT].any()


@pytest.mark.parametrize("name", ["vit", "vit_registers", "vit_wide", "hf_vit", "dinov2", "clip"])
def test_a_batch_equals_singles_and_chunks(name):
    model, images = setting(name)
    maps = seed_maps(model, images, PRESENT)
    singles = [seed_maps(model, images[i : i + 1], PRESENT[i : i + 1], chunk=1) for i in range(3)]
    torch.testing.assert_close(maps, torch.cat(singles), rtol=1e-9, atol=1e-9)
    assert maps.shape == (3, 5, *images.shape[-2:])
    assert torch.equal(maps.amax((2, 3)), PRESENT.double())
    assert maps.min() >= 0


def test_scales_and_mirror_images_are_averaged():
    model, images = setting()
    big = F.interpolate(images, (48, 48), mode="bilinear", align_corners=False)
    dynamic = timm_vit(True, dynamic_img_size=True)
    views = []
    for view in (images, images.flip(-1), big, big.flip(-1)):
        relevance = lrptrain.attribute(dynamic, view, 2, "generic_attention")  # not negative
        views.append(relevance.to_image((32, 32)) / relevance.scores.amax(1)[:, None, None])
    mean = views[0] + views[1].flip(-1) + views[2] + views[3].flip(-1)
    expected = mean / mean.amax((1, 2), keepdim=True)
    every, only = torch.ones(3, 1, dtype=torch.bool), torch.tensor([2])
    maps = seed_maps(model, images, every, "generic_attention", scales=(1, 1.5), classes=only)[:, 0]
    torch.testing.assert_close(maps, expected, rtol=1e-6, atol=1e-9)


def test_a_mirror_image_has_the_mirrored_map():
    model, images = setting("hf_vit")
    one, other = (seed_maps(model, x, PRESENT, scales=(1, 0.5)) for x in (images, images.flip(-1)))
    torch.testing.assert_close(one, other.flip(-1), rtol=1e-9, atol=1e-9)


def test_every_method_of_the_registry_that_is_quick():
    model, images = setting()
    for method in ("attnlrp", "lrp", "rollout", "gradcam", "input_x_gradient", "random", "attention_norm"):
        maps = seed_maps(model, images, PRESENT, method, scales=(1, 0.5), flip=False)
        assert torch.equal(maps.amax((2, 3)) > 0, PRESENT) or method == "gradcam", method  # it may be 0 throughout
    maps = seed_maps(model, images, PRESENT, "smoothgrad", {"samples": 2}, scales=(1,))
    assert maps.isfinite().all()


def test_inside_a_classifier_and_in_inference_mode():
    from lrptrain.models import ImageClassifier

    options = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 1, "num_heads": 2}
    module = ImageClassifier(num_classes=5, model_kwargs=options).eval()
    images = torch.randn(3, 3, 32, 32)
    expected, before = seed_maps(module, images, PRESENT), torch.get_rng_state()
    with torch.inference_mode():
        torch.testing.assert_close(seed_maps(module, images.clone(), PRESENT), expected, rtol=1e-4, atol=1e-4)
    assert all(parameter.grad is None for parameter in module.parameters())
    assert torch.equal(torch.get_rng_state(), before)


def test_no_class_present_gives_no_map():
    model, images = setting()
    assert not seed_maps(model, images, torch.zeros(3, 5, dtype=torch.bool)).any()


@pytest.mark.parametrize("name", ["torchvision_vit", "beit"])
def test_a_model_of_one_size_says_so(name):
    model, images = setting(name)
    with pytest.raises(lrptrain.UnsupportedModelError, match=r"16 x 16 pixels: .* scales=\(1,\)"):
        seed_maps(model, images, PRESENT, scales=(1, 0.5))
    assert seed_maps(model, images, PRESENT, scales=(1,)).any()


@pytest.mark.parametrize("name", ["vit", "hf_vit"])
@pytest.mark.parametrize("size", [(50, 37), (33, 61), (20, 41)])
def test_images_whose_sides_are_no_multiple_of_the_patch_have_maps_of_their_size(name, size):
    """They are brought to whole patches, as at every other scale."""
    model, _ = setting(name)
    images = torch.randn(3, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    maps = seed_maps(model, images, PRESENT, scales=(1,), flip=False)
    assert maps.shape == (3, 5, *size)
    assert torch.equal(maps.amax((2, 3)) > 0, PRESENT)
    whole = [max(round(side / 8), 1) * 8 for side in size]
    resized = F.interpolate(images, whole, mode="bilinear", align_corners=False)
    small = seed_maps(model, resized, PRESENT, scales=(1,), flip=False)
    agreement = F.cosine_similarity(F.interpolate(maps, whole, mode="bilinear").flatten(1), small.flatten(1))
    assert agreement[PRESENT.any(1)].min() > 0.95


def test_a_model_of_an_odd_size_is_given_its_own(monkeypatch):
    """Its patches leave out the last pixels, which is how it was trained."""
    seen = []
    model = timm_vit(True, img_size=30)
    model.register_forward_pre_hook(lambda _, args: seen.append(tuple(args[0].shape[-2:])))
    seed_maps(model, torch.randn(1, 3, 30, 30).double(), torch.ones(1, 1).bool(), scales=(1,), flip=False)
    assert set(seen) == {(30, 30)}


def test_bad_arguments():
    model, images = setting()
    for wrong in (PRESENT.long(), PRESENT[:2], PRESENT[0]):
        with pytest.raises(ValueError, match="present must be bool of shape"):
            seed_maps(model, images, wrong)
    for options in ({"scales": ()}, {"scales": (1, 0)}, {"chunk": 0}):
        with pytest.raises(ValueError, match="scales must be positive"):
            seed_maps(model, images, PRESENT, **options)
    with pytest.raises(lrptrain.UnsupportedMethodError, match="did you mean attnlrp"):
        seed_maps(model, images, PRESENT, "atnlrp")
    with pytest.raises(ValueError, match="out of range"):
        seed_maps(model, images, torch.ones(3, 10, dtype=torch.bool))
