"""Which class a target names: what is taken, and what is refused in one line."""

from typing import Any

import numpy as np
import pytest
import torch
from small_models import patches, tiny_vit
from torch import nn

import lrptrain
from lrptrain.relevance.model.classes import class_names, explained_class, output_meaning

LOGITS = torch.tensor([[1.0, 3.0, 2.0], [4.0, 0.0, 1.0]])
NAMES = {"cat": 0, "dog": 1, "bird": 2}


@pytest.mark.parametrize(
    ("target", "classes"),
    [
        (None, [1, 0]),
        (2, [2, 2]),
        (np.int64(2), [2, 2]),
        (np.array(2), [2, 2]),
        (np.array([2, 1], dtype=np.uint8), [2, 1]),
        (torch.tensor(1), [1, 1]),
        (torch.tensor([2, 0], dtype=torch.int16), [2, 0]),
        ([torch.tensor(2), torch.tensor(0)], [2, 0]),
        ([np.int32(2), 0], [2, 0]),
        ((2, 0), [2, 0]),
        (range(1, 3), [1, 2]),
        ("dog", [1, 1]),
        (["bird", "cat"], [2, 0]),
        (["bird", 1], [2, 1]),
        (np.array(["bird", "cat"]), [2, 0]),
    ],
)
def test_targets_that_are_taken(target: Any, classes: list[int]):
    chosen = explained_class(target, LOGITS, NAMES)
    assert chosen.tolist() == classes
    assert chosen.dtype == torch.long


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("dgo", r"unknown class 'dgo'; did you mean dog\? known are cat, dog, bird"),
        (["cat", "cow"], "unknown class 'cow'"),
        (1.0, "must be an integer.*float32"),
        (1j, "must be an integer.*complex"),
        (np.float64(1), "must be an integer.*float64"),
        (True, "must be an integer.*bool"),
        ([True, 0], "holds True or False"),
        ([None, 1], "holds None beside classes"),
        ([], "target is empty"),
        (np.array([]), r"shape \[0\]"),
        ([[0], [1]], r"shape \[2, 1\]"),
        ([[0], [1, 2]], "must be an integer.*not list"),
        ({"class": 1}, "must be an integer.*not dict"),
        ({1}, "must be an integer.*not set"),
        (object(), "must be an integer.*not object"),
        (3, "out of range for 3 classes"),
        (-1, "out of range for 3 classes"),
        (10**30, "must be an integer.*not int"),
        ([0, 1, 2], r"one integer per sample \(shape \[2\]\).*shape \[3\]"),
    ],
)
def test_targets_that_are_refused(target: Any, message: str):
    with pytest.raises(ValueError, match=message) as raised:
        explained_class(target, LOGITS, NAMES)
    assert "\n" not in str(raised.value)


def test_a_model_without_names_of_classes_says_so():
    with pytest.raises(ValueError, match=r"no config.label2id.*the class's number \(0 to 2\)"):
        lrptrain.attribute(tiny_vit().eval(), patches().float(), "cat")


def test_a_thousand_names_are_not_listed():
    with pytest.raises(ValueError, match=r"class39, \.\.\.$"):
        explained_class("cow", LOGITS, {f"class{i}": i for i in range(1000)})


def test_the_names_of_the_models_configuration_are_taken():
    from transformers import ViTConfig, ViTForImageClassification

    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = ViTConfig(**sizes, image_size=16, patch_size=8, label2id=NAMES, id2label={i: n for n, i in NAMES.items()})
    model: nn.Module = ViTForImageClassification(config).eval()
    assert class_names(model) == NAMES
    by_name, by_number = (lrptrain.attribute(model, patches(2).float(), target, other=0) for target in ("dog", 1))
    assert by_name.target.tolist() == [1, 1]
    assert torch.equal(by_name.scores, by_number.scores)
    with pytest.raises(ValueError, match="same class"):
        lrptrain.attribute(model, patches(2).float(), "dog", other="dog")


def test_a_head_of_transformers_says_what_it_outputs_and_a_head_of_ones_own_does_not():
    import transformers

    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=9, max_position_embeddings=8, **sizes)
    backbone = transformers.BertModel(config)
    assert output_meaning(nn.Sequential(backbone, nn.Linear(8, 3))) is None
    head = transformers.BertForSequenceClassification(config)
    assert output_meaning(nn.Sequential(head)) == "single_label_classification"
    config.problem_type = "multi_label_classification"
    assert output_meaning(head) == "multi_label_classification"
