"""The words of a real text model are coloured, whatever share of the relevance `[CLS]` holds."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from hugging_face import small_sizes
from transformers import BertConfig, BertForSequenceClassification

import lrptrain
from lrptrain.render import token_ansi, token_html, token_markdown

WORDS = ["[CLS]", "a", "truly", "love", "##ly", "film", ",", "not", "bad", "[SEP]"]
SCORED = [not word.startswith("[") for word in WORDS]


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    sizes: dict[str, Any] = {**small_sizes(32, layers=3), "num_labels": 3}
    return BertForSequenceClassification(BertConfig(vocab_size=60, **sizes)).eval()


def relevance(bert, method):
    """The map of the first class that has any relevance on words: methods that clip may leave a class none."""
    ids = torch.arange(10, 20)[None]
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    maps = (lrptrain.attribute(bert, inputs, label, method).scores[0].detach().numpy() for label in range(3))
    return next(scores for scores in maps if np.abs(scores[SCORED]).max() > 0)


OF_PRE_LN = "atb_norm"  # what a pre-LN block's norm before its attention does: BERT is post-LN


def test_the_method_of_pre_ln_blocks_is_refused(bert):
    with pytest.raises(lrptrain.UnsupportedMethodError, match="its blocks are post-LN"):
        relevance(bert, OF_PRE_LN)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", [name for name in lrptrain.methods() if name != OF_PRE_LN])
def test_some_word_has_the_full_colour_by_every_method(bert, method):
    scores = relevance(bert, method)
    page = token_html(WORDS, scores)
    spans = re.findall(r'<span(?: dir="auto")? style="([^"]*)" title="([^"]*)">([^<]*)</span>', page)
    assert [text for _, _, text in spans] == ["[CLS]", "a", "truly", "lovely", "film", ",", "not", "bad", "[SEP]"]
    alphas = [float(alpha[0]) if (alpha := re.findall(r",([\d.]+)\)", style)) else None for style, _, _ in spans]
    assert max(alpha for alpha in alphas if alpha is not None) == 0.75
    assert (alphas[0], alphas[-1]) == (None, None)
    sums = np.array([*scores[:3], scores[3] + scores[4], *scores[5:]])  # a word is the sum of its pieces
    sums[[0, -1]] = 0.0
    strongest = int(np.abs(sums).argmax())
    red, green, blue = (225, 29, 29) if sums[strongest] > 0 else (37, 99, 235)
    full = ";".join(str(round(255 + 0.75 * (channel - 255))) for channel in (red, green, blue))
    assert f"48;2;{full}m{spans[strongest][2]}" in token_ansi(WORDS, scores)
    assert ("**" in token_markdown(WORDS, scores)) == (sums.max() >= 0.5 * np.abs(sums).max())


def test_the_default_method_shows_its_words_and_says_what_cls_holds(bert):
    scores = relevance(bert, "transformer_attribution")
    assert np.abs(scores[[0, -1]]).sum() > 0.9999 * np.abs(scores).sum()
    note = "Not scored (grey): [CLS], [SEP], with more than 99.9 % of the relevance"
    assert note in token_html(WORDS, scores)
    assert note in token_ansi(WORDS, scores)
