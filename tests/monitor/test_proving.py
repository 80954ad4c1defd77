from dataclasses import replace

import numpy as np
import torch
from examples import finding

from lrptrain.batch import Sample
from lrptrain.findings import OVERALL, Candidate, Evidence, ExplainedSample
from lrptrain.findings.proof import sample_caption
from lrptrain.intervention import Change, Region
from lrptrain.loggers.proofs import words_of
from lrptrain.monitor.drawing import DisplayOptions
from lrptrain.monitor.excerpts import excerpt
from lrptrain.monitor.proving import changes_to_keep, with_proofs

WORDS = ["[CLS]", "the", "act", "##ing", "<b>", "bad", "good", "[SEP]"]
REGION = Region("token", 5)
MOVED = Evidence(0.4, (0.3, 0.5), 0.1, 0.002, 20)
FACT = finding(
    scope=OVERALL, state="confirmed", kind="suspicious_token", where="the token 'bad'", strategy="delete",
    intervention=MOVED, medium="text",
)  # fmt: skip
OPTIONS = DisplayOptions(["no", "yes"], lambda ids: [WORDS[i] for i in ids])


def text(*ids):
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor([int(i >= 0) for i in ids])}


def explained(sample):
    ids = sample.tensors["input_ids"].numpy()
    content = np.where((ids > 0) & (ids < 7), ids, -1)
    maps = {"label": torch.arange(len(ids)).double()}
    return ExplainedSample(sample, 1, np.array([0.1, 0.9]), maps, None, 2, 0.3, {}, content_ids=content)


SAMPLES = [Sample(f"s{i}", 1, text(0, 1, 2, 3, 5, 7)) for i in range(4)]
CHANGES = {
    (REGION, row): Change(
        text(0, 1, 2, 3, 7), text(0, 1, 6, 5, 7), np.array([0.1, 0.9]), np.array([0.7, 0.3]), np.array([0.2, 0.8]), fall
    )
    for row, fall in enumerate([0.1, 0.5, 0.4, 0.3])
}


def proven(fact=FACT, rows=range(4), changes=CHANGES):
    candidate = Candidate(fact, REGION, np.array(rows))
    assert changes_to_keep([candidate]).groups == {REGION: [set(rows)]}
    samples = [explained(each) for each in SAMPLES]
    return with_proofs([fact], lambda _: candidate, changes, SAMPLES, samples, OPTIONS, "proofs/e")[0].proof


def test_a_text_is_shown_with_the_words_that_went_and_came():
    proof = proven()
    assert [each.sample_id for each in proof.samples] == ["s1", "s2", "s3"]  # those that fall furthest
    assert proof.samples[0].changed_words == (("the", ""), ("acting", ""), ("bad", "gone"))
    assert proof.samples[0].control_words == (("the", ""), ("acting", "gone"), ("good", "new"), ("bad", ""))
    assert sample_caption(proof.samples[0], proof) == (
        "#s1, class yes: 90% as it is, 30% deleted, 80% under the control (random words)"
    )
    assert (proof.path, proof.png) == ("proofs/e/0_suspicious_token.html", b"")
    assert "Deleted: the acting ~~bad~~" in words_of(replace(FACT, proof=proof))


def test_only_samples_of_the_finding_prove_it_and_only_what_is_confirmed_is_proven():
    assert [each.sample_id for each in proven(rows=[0, 3]).samples] == ["s3", "s0"]
    assert proven(replace(FACT, state="suspected")) is None
    assert proven(changes={}) is None


def test_sharpened_probabilities_are_said_to_be():
    assert proven().note == ""
    sharp = {key: replace(change, answer=np.array([0.01, 0.99])) for key, change in CHANGES.items()}
    assert "sharpened" in proven(changes=sharp).note


def test_an_excerpt_has_the_words_around_the_most_relevant():
    assert excerpt(explained(SAMPLES[0]), OPTIONS.name_tokens) == '"the acting bad"'
    long = explained(Sample("l", 1, text(0, *[6] * 9, 2, 3, *[1] * 9, 7)))
    long = replace(long, maps={"label": torch.eye(len(long.content_ids))[10].double()})
    assert excerpt(long, OPTIONS.name_tokens) == '"... good good good good good acting the the the the ..."'


def test_what_is_drawn_for_a_class_is_shown_by_the_probability_of_that_class():
    region = Region("common", (0, 2, 2, 1))
    candidate = Candidate(replace(FACT, strategy="common"), region, np.arange(4))
    changes = {(region, row): change for (_, row), change in CHANGES.items()}
    samples = [explained(each) for each in SAMPLES]
    (fact,) = with_proofs([candidate.finding], lambda _: candidate, changes, SAMPLES, samples, OPTIONS, "proofs/e")
    # Read as "yes" with 90 %: the mark is that of "no", whose probability rises from 10 to 70 %, and to 20 otherwise.
    assert sample_caption(fact.proof.samples[0], fact.proof) == (
        "#s1, class no: 10% as it is, 70% drawn on images of other classes, 20% under the control "
        "(what a third class has in common there)"
    )
