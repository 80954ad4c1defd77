"""Punctuation, markers and capitals: when each is tested, in which texts, and what is said."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Effect, Evaluation, ExplainedSample, announce
from lrptrain.findings.detectors.unlocated import judged_rows
from lrptrain.findings.detectors.wordings import RelianceOnCase, RelianceOnMarkers, RelianceOnPunctuation, _cased
from lrptrain.intervention.casing import in_cases
from lrptrain.intervention.words import TextWords
from lrptrain.monitor.record_builder import RecordBuilder
from tests.intervention.test_casing import CASED, ids_of, word_pieces

CONFIG = DetectionConfig(["cat", "dog"], CASED.convert_ids_to_tokens, tokenizer=CASED)
ALL = (RelianceOnPunctuation(), RelianceOnMarkers(), RelianceOnCase())


def evaluation(texts, read="", annotated=""):
    """Texts of two classes in turn; the characters of `read` are relevant, those of `annotated` evidence."""
    samples, inputs = [], []
    for i, text in enumerate(texts):
        ids = ids_of(text)
        letters = [name.removeprefix("##") for name in CASED.convert_ids_to_tokens(ids)]
        explained = ExplainedSample(
            Sample(f"s{i}", i % 2, {}), i % 2, np.array([0.9, 0.1]),
            {"label": torch.tensor([9.0 if letter in read else 1.0 for letter in letters])}, None, 2, np.nan, {},
            annotated=np.array([letter in annotated for letter in letters]) if annotated else None,
            content_ids=np.array([-1, *ids[1:-1], -1]),
        )  # fmt: skip
        samples.append(explained)
        tensors = {"input_ids": torch.tensor(ids), "attention_mask": torch.ones(len(ids), dtype=torch.long)}
        inputs.append(Sample(f"s{i}", i % 2, tensors))
    return Evaluation(samples, inputs, epoch=1, step=5)


def kinds(given, config=CONFIG):
    return [each.finding.kind for detector in ALL for each in detector.detect(given, config)]


def by_class(first, second, count=40):
    return evaluation([second if i % 2 else first for i in range(count)])


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("so it is.", "so it is!", "reliance_on_punctuation"),
        ("so it is", "so, it is,", "reliance_on_punctuation"),
        ("so it is", "so it is at @bob", "reliance_on_markers"),
        ("seen in 1984", "seen in 12", "reliance_on_markers"),
        ("so #it is", "so @it is", "reliance_on_markers"),
        ("So it is", "so it is", "reliance_on_case"),
        ("so IT is", "so it is", "reliance_on_case"),
    ],
)
def test_what_goes_with_the_answers_is_tested_on_half_of_the_texts(first, second, kind):
    given = by_class(first, second)
    assert kinds(given) == [kind]
    (one,) = [each for detector in ALL for each in detector.detect(given, CONFIG)]
    assert one.rows.tolist() == judged_rows(40).tolist()
    assert one.finding.relevance is None
    assert one.region.kind == kind.removeprefix("reliance_on_")
    assert len(one.region.texts) == 40


def test_what_does_not_go_with_the_answers_is_tested_if_it_is_read():
    rng = np.random.default_rng(0)
    same = [f"so it is{'.!'[int(rng.integers(2))]} by {'@#'[int(rng.integers(2))]}bob" for _ in range(40)]
    assert kinds(evaluation(same)) == []
    assert kinds(evaluation(same, read=".!")) == ["reliance_on_punctuation"]
    assert kinds(evaluation(same, read="@#b")) == ["reliance_on_markers"]
    # What people marked is evidence, and seven texts are too few.
    assert kinds(evaluation(same, read=".!", annotated=".!")) == []
    assert kinds(evaluation([*same[:7], *["so it is"] * 33], read=".!")) == []
    assert kinds(evaluation([*same[:8], *["so it is"] * 32], read=".!")) == ["reliance_on_punctuation"]


def test_the_words_are_those_that_are_meant():
    given = by_class("see: 25 % off!", "see: now")
    (marks,) = RelianceOnPunctuation().detect(given, CONFIG)
    first, second = [each for each in marks.region.texts if isinstance(each, TextWords)][:2]
    assert first.chosen == ((4, 5), (11, 12))  # ":" and "!"; "%" belongs to the number
    assert second.chosen == ((4, 5),)
    assert first.starts == (1, 4, 5, 7, 8, 11)
    (markers,) = RelianceOnMarkers().detect(given, CONFIG)
    (first, *_) = [each for each in markers.region.texts if isinstance(each, TextWords)]
    assert first.chosen == ((5, 8),)
    assert markers.finding.where == "numbers"
    (several,) = RelianceOnMarkers().detect(by_class("12 or 13 by @bob on #it", "so"), CONFIG)
    assert several.finding.where == "numbers, mentions and hashtags"


def test_pairs_unknown_tokenizers_and_runs_without_an_intervention_are_not_tested():
    given = by_class("So, @it is!", "so it is")
    assert len(kinds(given)) == 3
    assert kinds(given, replace(CONFIG, tokenizer=None)) == []
    assert kinds(replace(given, inputs=None)) == []
    pair = [
        replace(each, tensors=each.tensors | {"token_type_ids": torch.arange(len(each.tensors["input_ids"])) // 4})
        for each in given.inputs
    ]
    assert kinds(replace(given, inputs=pair)) == []


def test_case_is_tested_where_the_tokenizer_gives_texts_back():
    texts = ["So it is" if i % 2 else "so it is" for i in range(40)]
    (one,) = RelianceOnCase().detect(evaluation(texts), CONFIG)
    # The limit of this tokenizer is none: no text may get longer than the longest.
    assert one.region.texts == tuple(in_cases(ids_of(text), CASED, len(ids_of("So it is")), {0, 1}) for text in texts)
    some = [f"{text} \N{SNOWMAN}" if i in (0, 8) else text for i, text in enumerate(texts)]
    (one,) = RelianceOnCase().detect(evaluation(some), CONFIG)
    assert one.rows.tolist() == [row for row in judged_rows(40).tolist() if row not in (0, 8)]
    # Where the tokenizer gives back another case than most have, the intervention says so of them all.
    most = ["So it is" if i % 4 else "so it is" for i in range(40)]
    (one,) = RelianceOnCase().detect(evaluation(most), replace(CONFIG, tokenizer=word_pieces(lowercase=True)))
    assert one.rows.tolist() == judged_rows(40).tolist()
    assert one.region.texts[1] is None


class Longer:
    """A tokenizer whose capitals take a token more, and which has a limit."""

    def __init__(self, limit):
        self.model_max_length = limit

    def decode(self, ids, **options):
        return CASED.decode(ids, **options)

    def __call__(self, text, **options):
        ids = CASED(text, **options)["input_ids"]
        return {"input_ids": [*ids, ids[-1]] if text.startswith("S") and text.endswith("!") else ids}


@pytest.mark.parametrize(("limit", "fits"), [(8, True), (7, False), (6, False), (0, False), (10**30, False)])
def test_a_text_may_get_as_long_as_the_tokenizer_says_or_else_as_the_longest_is(limit, fits):
    given = evaluation(["So it" if i % 2 else "so it!" for i in range(40)])
    assert max(len(each.tensors["input_ids"]) for each in given.inputs) == 7
    texts = _cased(given, Longer(limit))
    assert texts[1] is not None
    assert (texts[0] is not None) is fits


@pytest.mark.parametrize(
    ("first", "second", "strategy", "least", "lines"),
    [
        ("so it is.", "so it is!", "punctuation", 0.2, ["relies on punctuation.", "Given the punctuation of"]),
        ("so it is", "so it is @bob", "markers", 0.2, ["relies on mentions.", "Given those of another class's"]),
        ("So it is", "so it is", "case", 0.3, ["on how texts are capitalised.", "Capitalised like another class's"]),
    ],
)  # fmt: skip
def test_it_is_for_a_person_to_judge(first, second, strategy, least, lines):
    given = by_class(first, second)
    (one,) = [each for detector in ALL for each in detector.detect(given, CONFIG)]

    def record(fall):
        effect = Effect(np.full(20, fall) + np.linspace(-0.005, 0.005, 20), np.zeros(20), strategy)
        return RecordBuilder(class_names=["cat", "dog"]).build(given, [], [one], [effect])

    assert record(least - 0.01).findings == []
    (fact,) = record(least + 0.01).findings
    assert ("no map can show it" in str(fact)) == (strategy == "case")
    (text,) = announce([fact])
    assert text.startswith("Confirmed, for you to judge, all classes")
    assert all(line in " ".join(text.split()) for line in lines)
    assert record(0.9).scalars["relevance/severity"] == 0.0
