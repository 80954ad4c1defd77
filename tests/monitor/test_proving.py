"""What the exchange of a cue did to a text is shown beside what the model answers."""

import numpy as np
import pytest
from plain_texts import BagOfWords, bert

from lrptrain.cues.measure import Effect, Measure
from lrptrain.cues.phrase import Phrase
from lrptrain.cues.search import Judged
from lrptrain.findings import Finding
from lrptrain.monitor.display import DisplayOptions
from lrptrain.monitor.judgement import Judgement
from lrptrain.monitor.proving import examples_of, with_proofs


def proven(words=220, at=100, named=1):
    """The proof of the word "zip", which the texts of one answer have, and "zap" those of the other."""
    writer = bert()
    texts = [["a", "b"] * (words // 2) for _ in range(16)]
    for number, text in enumerate(texts):
        text[at] = "zip" if number % 2 else "zap"
    samples = writer.samples([" ".join(text) for text in texts])
    zip_and_zap = tuple((tuple(writer.ids(word)),) for word in ("zip", "zap"))
    measure = Measure(samples, np.arange(16) % 2, BagOfWords(writer, {"zip": 3, "zap": -3}).probabilities)
    everyone, found = np.arange(16), []
    for number in range(named):
        cue = Phrase(f"words {number}", "unreviewed", writer.language, phrases=zip_and_zap)
        values = measure.effects(cue, everyone, everyone)
        found.append(Judged(cue, "relies", Effect(0.9, 0.8, 1.0, 16), values, everyone, named=True))
    findings = [Finding(each.cue.name, "phrase", "unreviewed", "relies", 0.9, (0.8, 1.0), 16) for each in found]
    options = DisplayOptions(["no", "yes"], writer.language.name_tokens)
    judgement = Judgement(found, measures={None: measure})
    shown = with_proofs(findings, judgement, examples_of(judgement), options, "proofs/0")
    return [each.proof for each in shown]


@pytest.mark.parametrize(("words", "at", "before"), [(220, 100, 12), (30, 3, 3)])
def test_of_a_text_what_lies_about_the_first_change_is_shown_and_what_is_the_same_is_not_marked(words, at, before):
    (proof,) = proven(words, at)
    assert len(proof.samples) == 3
    for sample in proof.samples:
        own, other = ("zip", "zap") if sample.answer == "yes" else ("zap", "zip")
        assert [each for each in sample.words if each[1]] == [(own, "gone")]
        assert [each for each in sample.changed_words if each[1]] == [(other, "new")]
        assert sample.words.index((own, "gone")) == sample.changed_words.index((other, "new")) == before
        assert len(sample.words) == len(sample.changed_words) == min(60, words)
        assert not any(mark for _, mark in sample.control_words)
        assert sample.before == pytest.approx(sample.control)
        assert sample.before > 0.9 > 0.1 > sample.changed
        assert sample.instead != sample.answer
        assert sample.then == pytest.approx(1 - sample.changed)


def test_the_first_four_of_what_is_named_have_a_proof():
    assert [proof is not None for proof in proven(10, 3, named=6)] == [True] * 4 + [False] * 2
