"""Tweets with a property of their mood, the arms that are trained on them, and the table of made-up runs."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from experiments.detection import texts as planted_texts
from experiments.guidance import text_properties, texts, tweets
from experiments.guidance.arms import PLAIN, UPPER, Task
from experiments.guidance.confirmed import GROUP_DRO
from experiments.guidance.text_properties import BY_NAME, INFORMED, OF_FINDING, PLANTS, columns, judged, table
from experiments.parallel import load
from lrptrain.batch.parts import InputPart
from lrptrain.data.texts import Example
from lrptrain.findings import OVERALL, Evidence, Finding

MOODS = ("a sad day", "a fine day")
TWEETS = [Example(MOODS[number % 2], number % 2, ((2, 5 + number % 2),)) for number in range(40)]
NEUTRAL = "we go home now"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "sad", "fine", "day", "we", "go", "home", "now", ";", "~"]
WORDS += map(str, range(11, 2020))


def tokenizer():
    """Of whole words."""
    words = Tokenizer(models.WordLevel({each: place for place, each in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def network(seed):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertForSequenceClassification(config)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Forty tweets of two moods, and three steps."""
    reader = tokenizer()
    monkeypatch.setattr(tweets, "pools", lambda: dict.fromkeys(("train", "val", "test"), TWEETS))
    monkeypatch.setattr(tweets, "BUDGET", 3)
    monkeypatch.setattr(planted_texts, "neutral_tweets", lambda: (NEUTRAL,))
    monkeypatch.setattr(texts, "tokenizer", lambda: reader)
    monkeypatch.setattr(text_properties, "tokenizer", lambda: reader)
    monkeypatch.setattr(text_properties, "network", network)


def written(kind, agreeing, seed=0):
    data = columns(kind, "train", agreeing, seed)
    ids = [row[mask != 0][1:-1].tolist() for row, mask in zip(data["input_ids"], data["attention_mask"], strict=True)]
    return data, [[WORDS[each] for each in row] for row in ids]


def finding(kind, state="confirmed"):
    evidence = Evidence(0.5, (0.4, 0.6), 0.1, 0.001, 40)
    named = InputPart(kind, f"the {kind} of texts")
    return Finding(
        f"reliance_on_{kind}",
        OVERALL,
        "predicted",
        None,
        0.95,
        epoch=0,
        step=0,
        first_epoch=0,
        where=named.name,
        state=state,
        intervention=evidence,
        part=named,
    )


def form_of(kind, words):
    """Which form of a property a text has; the tweet itself is as it was."""
    mood, rest = words[:3], words[3:]
    if kind == "length":
        assert " ".join(mood) in MOODS
        assert " ".join(rest) in ("", NEUTRAL)
        return int(bool(rest))
    if kind == "punctuation":
        assert " ".join(mood) in MOODS
        return [[";"], ["~"]].index(rest)
    (number,) = [int(each) for each in words if each.isdecimal()]
    assert " ".join(each for each in words if not each.isdecimal()) in MOODS
    assert 11 <= number < 99 or 1900 <= number < 2020
    return int(number >= 1900)


@pytest.mark.parametrize("kind", PLANTS)
def test_texts_have_the_property_in_the_form_that_their_group_says(kind):
    for agreeing in (1.0, 0.0, 0.7):
        data, every = written(kind, agreeing)
        forms = torch.tensor([form_of(kind, words) for words in every])
        assert torch.equal((forms == data["label"]).long(), data["group"])
        # 40 draws of 0.7 lie within 0.3, by more than four standard deviations.
        assert abs(data["group"].double().mean().item() - agreeing) < (0.3 if agreeing == 0.7 else 1e-9)
        assert "rationale" not in data
    _, again = written(kind, 0.7)
    _, other = written(kind, 0.7, seed=1)
    assert again == every
    assert other != every


@pytest.mark.parametrize("kind", PLANTS)
def test_every_arm_is_trained_and_measured(kind, monkeypatch):
    looks = []

    def findings_of(module, validation):
        looks.extend(validation)
        return [finding("case"), finding(kind, "refuted")]

    monkeypatch.setattr(text_properties, "findings_of", findings_of)
    setting = {"property": kind}
    runs = {arm: text_properties.train(Task(arm, 0, setting)) for arm in INFORMED}
    for run in runs.values():
        assert run["swapped"] == []
        assert run["worst group"] == min(run["agreeing"], run["conflicting"])
        assert all(0 <= run[name] <= 1 for name in text_properties.TESTS)
    assert all({*each} == {"input_ids", "attention_mask", "label", "sample_id"} for each in looks)
    assert sum(len(each["label"]) for each in looks) == len(TWEETS)


@pytest.mark.parametrize("kind", PLANTS)
def test_the_finding_judged_a_fault_is_swapped_as_its_property_is_by_name(kind, monkeypatch):
    monkeypatch.setattr(text_properties, "findings_of", lambda module, validation: [finding("case"), finding(kind)])
    swapped, names = text_properties._on_the_finding(kind, 0)
    assert names == [f"the {kind} of texts"]
    by_name = text_properties._trained(kind, BY_NAME, 0).net
    plain = text_properties._trained(kind, PLAIN, 0).net
    pairs = [zip(each.parameters(), swapped.parameters(), strict=True) for each in (by_name, plain)]
    assert [all(torch.equal(*pair) for pair in each) for each in pairs] == [True, False]


def test_a_person_judges_what_is_confirmed_and_of_the_kind():
    assert judged([finding("length", "suspected"), finding("markers")], "length") is None
    fault = judged([finding("markers"), finding("length")], "length")
    assert fault is not None
    assert fault.kind == "reliance_on_length"
    assert fault.judged


def test_the_table_holds_every_arm_against_the_rival_and_the_upper_bound():
    worst = {PLAIN: 0.1, UPPER: 0.9, BY_NAME: 0.85, OF_FINDING: 0.6, GROUP_DRO: 0.8}
    runs = [
        {
            "property": "length",
            "arm": arm,
            "seed": seed,
            "accuracy": 0.88 if arm == BY_NAME else 0.93,
            "shuffled": 0.7,
            "worst group": worst[arm] + 0.01 * seed,
            "swapped": ["the length of texts"] if arm == OF_FINDING and seed else [],
        }
        for arm in INFORMED
        for seed in range(3)
    ]
    head, _, *rows = table(runs).splitlines()
    assert len(rows) == len(INFORMED)
    cells = {row["arm"]: row for row in (dict(zip(_cells(head), _cells(each), strict=True)) for each in rows)}
    assert cells[BY_NAME]["worst group"] == "0.860 ± 0.025"
    assert cells[BY_NAME]["worst group, less plain's"] == "+0.750 ± 0.000"
    assert cells[BY_NAME]["worst group, less the rival's"] == "+0.050 ± 0.000: met"
    assert cells[BY_NAME]["accuracy, less the upper bound's"] == "-0.050 ± 0.000: missed"
    assert cells[OF_FINDING]["confirmed in"] == "2 of 3"
    assert cells[GROUP_DRO]["worst group, less the rival's"] == "the rival"
    assert cells[UPPER]["accuracy, less the upper bound's"] == ""
    assert table([]) == "Nothing is measured yet."


def _cells(line):
    return [each.strip() for each in line.strip("|").split("|")]


def test_results_that_are_saved_are_of_all_arms_alike():
    runs = load(text_properties.RESULTS).values()
    seeds: dict[tuple[str, str], set[int]] = {}
    for run in runs:
        seeds.setdefault((run["property"], run["arm"]), set()).add(run["seed"])
    assert len({frozenset(each) for each in seeds.values()}) <= 1
    assert np.isin([run["arm"] for run in runs], list(INFORMED)).all()
