"""Reliance on the length of texts: where it is tested, and what is said."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.findings import OVERALL, DetectionConfig, Effect, Evaluation, ExplainedSample, announce
from lrptrain.findings.detectors.lengths import RelianceOnLength, has_single_segments, lengths
from lrptrain.findings.detectors.unlocated import goes_with_the_answer, judged_rows
from lrptrain.intervention import Region
from lrptrain.monitor.record_builder import RecordBuilder

CONFIG = DetectionConfig(["cat", "dog"], lambda ids: [str(i) for i in ids])


def sample(i, length, label, **more):
    tensors = {"input_ids": torch.tensor([101, *range(length), 102])}
    tensors["attention_mask"] = torch.ones_like(tensors["input_ids"])
    return Sample(f"s{i}", label, tensors | more)


def evaluation(inputs):
    explained = [
        ExplainedSample(
            replace(each, tensors={}), each.label, np.array([0.9, 0.1]), {"label": torch.ones(4)}, None, 2, np.nan, {},
            content_ids=np.arange(4),
        )
        for each in inputs
    ]  # fmt: skip
    return Evaluation(explained, inputs, epoch=3, step=30)


def texts(by_class=True, count=24):
    return [sample(i, 5 + i % 3 + (4 * (i % 2) if by_class else 0), i % 2) for i in range(count)]


def candidates(given):
    return list(RelianceOnLength().detect(given, CONFIG))


def test_it_is_tested_on_half_of_the_texts_where_lengths_go_with_the_answers():
    (one,) = candidates(evaluation(texts()))
    assert one.region == Region("length")
    assert one.rows.tolist() == judged_rows(24).tolist()
    assert one.finding.relevance is None
    assert one.finding.scope == OVERALL
    assert candidates(evaluation(texts(by_class=False))) == []
    assert lengths(texts())[:4].tolist() == [5, 10, 7, 9]


def test_images_pairs_and_runs_without_an_intervention_are_not_tested():
    given = evaluation(texts())
    assert candidates(replace(given, inputs=None)) == []
    assert candidates(replace(given, samples=[replace(each, content_ids=None) for each in given.samples])) == []
    types = [
        replace(each, tensors=each.tensors | {"token_type_ids": torch.arange(len(each.tensors["input_ids"])) // 4})
        for each in texts()
    ]
    assert candidates(evaluation(types)) == []


def test_a_separator_within_makes_a_pair_and_a_full_stop_that_ends_some_texts_does_not():
    def ending(ids):
        return Sample(
            "s", 0, {"input_ids": torch.tensor(ids), "attention_mask": torch.ones(len(ids), dtype=torch.long)}
        )

    assert not has_single_segments([ending([1, 7, 2, 8, 2]), ending([1, 7, 8, 2])])
    assert has_single_segments([ending([1, 7, 8, 2]), ending([1, 7, 2])])
    assert has_single_segments([ending([1, 7, 2, 8, 2]), ending([1, 7, 8, 9])])  # no text has a separator
    padded = {"input_ids": torch.tensor([1, 7, 2, 2, 2]), "attention_mask": torch.tensor([1, 1, 1, 0, 0])}
    assert has_single_segments([Sample("s", 0, padded)])


def test_what_goes_with_the_answer_is_told_by_ranks():
    predicted = np.arange(40) % 4
    noise = np.random.default_rng(0).normal(size=40)
    assert not goes_with_the_answer(noise, predicted, 0.95)
    assert goes_with_the_answer(noise + 2 * (predicted == 2), predicted, 0.95)
    assert goes_with_the_answer(np.exp(20 * (noise + 2 * (predicted == 2))), predicted, 0.95)  # ranks are the same
    assert not goes_with_the_answer(np.ones(40), predicted, 0.95)
    assert not goes_with_the_answer(noise, np.zeros(40, int), 0.95)


@pytest.mark.parametrize(("change", "confirmed"), [(0.6, True), (0.25, False)])
def test_a_large_effect_is_confirmed_for_a_person_to_judge(change, confirmed):
    given = evaluation(texts())
    tested = candidates(given)
    falls = change + 0.001 * np.arange(12)
    record = RecordBuilder(class_names=["cat", "dog"], tokenizer=None)
    built = record.build(given, [], tested, [Effect(falls, np.zeros(12), "length")])
    assert len(built.findings) == confirmed
    if not confirmed:
        return
    (fact,) = built.findings
    assert (fact.kind, fact.state, fact.is_fault, fact.severity) == ("reliance_on_length", "confirmed", False, 0.0)
    words = " ".join(announce([fact])[0].split())
    assert words.startswith(
        "Confirmed, for you to judge, all classes: the model relies on the length of texts. Made as"
    )
    assert (
        "Made as long as another class's text, the answer's probability falls by 61 points (the same class's: 0)"
        in words
    )
    assert "no map can show it" in str(fact)
