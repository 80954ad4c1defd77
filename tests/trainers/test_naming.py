"""What classes and tokens are called, by whatever may say it; for callbacks and the command line alike."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, DataCollatorWithPadding, PreTrainedTokenizerFast

from lrptrain.trainers.naming import (
    check_vocabulary,
    class_names_or_numbers,
    find_class,
    find_class_names,
    find_tokenizer,
    find_tokens,
    has_tokenizer,
    name_sources,
)

SIZES: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models

    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="a")


def test_the_tokenizer_is_found_under_any_name(tmp_path):
    data = SimpleNamespace(words=tokenizer())
    assert find_tokenizer(None, [None, data]) is data.words
    named = SimpleNamespace(words=tokenizer(), tokenizer=tokenizer())
    assert find_tokenizer(None, [data, named]) is named.tokenizer
    assert find_tokenizer(data.words, [named]) is data.words
    data.words.save_pretrained(tmp_path)
    assert len(find_tokenizer(str(tmp_path), [named])) == 2
    assert len(find_tokenizer(None, [{"tokenizer_name": str(tmp_path)}])) == 2
    assert len(find_tokenizer(None, [SimpleNamespace(hparams={"tokenizer": str(tmp_path)})])) == 2
    net = nn.Linear(1, 1)
    net.config = BertConfig.from_dict({"name_or_path": str(tmp_path)})  # type: ignore[assignment]
    assert find_tokens(None, [nn.Sequential(net)])([1, 0]) == ["b", "a"]
    assert has_tokenizer(None, [nn.Sequential(net)])
    # Nobody says it: tokens are called by their numbers.
    assert find_tokenizer(None, [nn.Linear(1, 1), {"width": 3}]) is None
    assert not has_tokenizer(None, [None])
    assert find_tokens(None, [None])([1, 0]) == [" 1", " 0"]


def test_class_names():
    named = BertForSequenceClassification(BertConfig(**SIZES, vocab_size=5, id2label={0: "no", 1: "yes"}))
    numbered = BertForSequenceClassification(BertConfig(**SIZES, vocab_size=5))
    assert find_class_names(None, [{}, named], 2) == ["no", "yes"]
    assert find_class_names(None, [numbered], 2) is None
    assert find_class_names(None, [{"class_names": ["a", "b", "c"]}, {"classes": ["a", "b"]}], 2) == ["a", "b"]
    assert find_class_names(None, [{"id2label": {"1": "b", "0": "a"}}], 2) == ["a", "b"]
    column = SimpleNamespace(names=["a", "b"])
    assert find_class_names(None, [SimpleNamespace(features={"label": column})], 2) == ["a", "b"]
    # Neither the labels of two samples nor a text are names of classes.
    assert find_class_names(None, [{"labels": [0, 1]}, {"classes": "ab"}], 2) is None
    assert find_class_names(["x", "y"], [named], 2) == ["x", "y"]
    with pytest.raises(ValueError, match="class_names has 3 names for 2 logits"):
        find_class_names(["x", "y", "z"], [named], 2)
    assert class_names_or_numbers(None, [numbered], 2) == ["0", "1"]
    assert class_names_or_numbers(["a", "b", "a"], [], 3) == ["a (0)", "b", "a (2)"]


def test_a_class_by_its_name():
    assert [find_class(target, ["a", "b"]) for target in (None, 1, "1", "b")] == [None, 1, 1, 1]
    with pytest.raises(ValueError, match="there is no class 'c'; there are a, b"):
        find_class("c", ["a", "b"])


class Folder(TensorDataset):
    """A dataset that names its classes, as torchvision's `ImageFolder` does."""

    classes = ["cat", "dog"]


def test_a_trainer_without_a_datamodule_has_its_loader(tmp_path):
    words = tokenizer()
    dataset = Subset(Folder(torch.zeros(4, 2)), [0, 1])
    loader = DataLoader(dataset, collate_fn=DataCollatorWithPadding(words))
    module = nn.Linear(1, 1)
    for loaders in (loader, [loader], {"first": loader}):
        sources = name_sources(SimpleNamespace(val_dataloaders=loaders), module)  # type: ignore[arg-type]
        assert find_class_names(None, sources, 2) == ["cat", "dog"]
        assert find_tokenizer(None, sources) is words
        assert sources[-1] is module
    # Those of the datamodule come first; before a run there is no loader.
    trainer: Any = SimpleNamespace(val_dataloaders=None, datamodule=SimpleNamespace(class_names=["x", "y"]))
    assert find_class_names(None, name_sources(trainer, module), 2) == ["x", "y"]  # type: ignore[arg-type]


def test_a_vocabulary_that_is_too_small():
    net = BertForSequenceClassification(BertConfig(**SIZES, vocab_size=5))
    check_vocabulary([0, 4], net)
    with pytest.raises(ValueError, match="gives token 5, and the model has 5"):
        check_vocabulary([0, 5], net)


class Fails:
    """Properties that fail, as those that need a call of `setup` first."""

    @property
    def class_names(self):
        raise RuntimeError("call setup first")

    @property
    def tokenizer(self):
        raise KeyError("vocab")


class Wordless:
    def convert_ids_to_tokens(self, ids):
        raise KeyError("vocab")


def test_properties_that_fail_name_nothing_and_others_do():
    names = SimpleNamespace(class_names=["a", "b"], words=tokenizer())
    with pytest.warns(UserWarning, match="class_names of Fails cannot be read .RuntimeError: call setup first."):
        assert find_class_names(None, [Fails(), names], 2) == ["a", "b"]
    with pytest.warns(UserWarning, match="tokenizer of Fails cannot be read .KeyError"):
        assert find_tokenizer(None, [Fails(), names]) is names.words


def test_a_tokenizer_that_fails_is_warned_of_once_and_not_asked_again():
    failing = Wordless()
    assert has_tokenizer(failing, [])
    with pytest.warns(UserWarning, match="the tokenizer Wordless fails .KeyError: 'vocab'.: tokens go by their ids"):
        assert find_tokens(failing, [])([3, 4]) == [" 3", " 4"]
    assert not has_tokenizer(failing, [])
    assert find_tokens(failing, [])([3, 4]) == [" 3", " 4"]
