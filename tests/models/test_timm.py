from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from lrptrain.models.timm import timm_classifier

NAME = "vit_tiny_patch16_224"
TINY: dict[str, Any] = {"img_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 1, "num_heads": 2}


def differing(first, second):
    """Names in the first state dict whose values differ in the second."""
    return {key for key in first if not torch.equal(first[key], second[key])}


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_weights_from_a_file_include_a_head_of_the_same_size(tmp_path, ending):
    source, path = timm_classifier(NAME, 3, **TINY).state_dict(), str(tmp_path / f"weights.{ending}")
    (torch.save if ending == "pt" else save_file)(source, path)
    assert not differing(source, timm_classifier(NAME, 3, path, **TINY).state_dict())


@pytest.mark.parametrize("source_classes", [0, 7])
def test_a_missing_or_different_head_is_replaced_and_the_rest_kept(tmp_path, source_classes):
    source, path = timm_classifier(NAME, source_classes, **TINY).state_dict(), str(tmp_path / "weights.pt")
    torch.save(source, path)
    model = timm_classifier(NAME, 3, path, **TINY)
    assert model(torch.zeros(2, 3, 16, 16)).shape == (2, 3)
    trunk = {key: value for key, value in source.items() if not key.startswith("head")}
    assert not differing(trunk, model.state_dict())


def test_the_position_embedding_is_resampled_for_another_image_size(tmp_path):
    path = str(tmp_path / "weights.pt")
    torch.save(timm_classifier(NAME, 3, **TINY).state_dict(), path)
    model = timm_classifier(NAME, 3, path, **{**TINY, "img_size": 32})
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 3)


def test_weights_that_do_not_fit_or_are_absent_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.pt"):
        timm_classifier(NAME, 3, str(tmp_path / "absent.pt"), **TINY)
    path = str(tmp_path / "weights.pt")
    torch.save(timm_classifier(NAME, 3, **{**TINY, "embed_dim": 16}).state_dict(), path)
    with pytest.raises(RuntimeError, match="size mismatch"):
        timm_classifier(NAME, 3, path, **TINY)
    torch.save({"head.weight": torch.zeros(3, 24)}, path)
    with pytest.raises(RuntimeError, match="Missing key"):
        timm_classifier(NAME, 3, path, **TINY)


def test_an_unreachable_hub_says_what_to_do(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    with pytest.raises(OSError, match="Offline\\? Download them") as caught:
        timm_classifier(NAME, 3, pretrained=True)
    assert caught.value.__cause__ is not None
