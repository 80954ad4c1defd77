import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrptrain.render import join_words, scored_tokens, token_ansi, token_html, token_markdown

BERT = ["[CLS]", "the", "act", "##ing", "was", "bad", "!", "[SEP]"]
PIECES = "The colour of a word is the sum over its pieces."
SCORES = np.array([0.0, 0.1, 1.0, 0.5, -0.5, 2.0, np.nan, 0.0])


class Page(HTMLParser):
    """Collects the tags, the text, and the style of each piece of text."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[str] = []
        self.styles: dict[str, str] = {}
        self.text, self.style = "", ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.style = dict(attrs).get("style", "")

    def handle_data(self, data):
        self.text += data
        self.styles.setdefault(data, self.style)


def alpha(style):
    return float(re.findall(r"rgba\(\d+,\d+,\d+,([\d.]+)\)", style)[0])


def plain(ansi):
    return re.sub(r"\x1b\[[\d;]*m", "", ansi)


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (BERT, "[CLS] the acting was bad! [SEP]"),
        (["<s>", "The", "Ġun", "watch", "able", "Ġfilm", ".", "</s>"], "<s> The unwatchable film. </s>"),
        (["▁The", "▁un", "watch", "able", "▁film", ".", "</s>"], "The unwatchable film. </s>"),
        (["one", "Ċ", "Ġtwo"], "one↵ two"),
        (["##"], "##"),
        (["C", "##"], "C##"),
        (["don", "'", "t", "stop", "##ping", ",", "50", "%"], "don ' t stopping, 50%"),
        (["Ġdon", "'t", "Ġstop", "ping", ",", "Ġ50", "%"], "don't stopping, 50%"),
        # Bytes, as GPT-2 and RoBERTa have them, are the characters they stand for.
        (["ĠcafÃ©", "âĢĻ", "s", "ĠØ§ÙĦ", "Ø¹", "Ø±Ø¨ÙĬØ©"], "café\N{RIGHT SINGLE QUOTATION MARK}s العربية"),
        (["Ġgood", "ĠðŁ", "ĺ", "Ģ"], "good 😀"),
        (["Ġbroken", "ĠðŁ"], "broken ðŁ"),
        (["▁这", "部", "电影"], "这部电影"),
        ([], ""),
    ],
)
def test_word_pieces_are_joined(tokens, text):
    scores = scored_tokens(tokens).astype(float)
    assert plain(token_ansi(tokens, scores)).removesuffix(f"\n{PIECES}") == text
    assert Page(token_html(tokens, scores)).text.removesuffix(PIECES) == text


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["[CLS]", "play", "##ing", "##s", ".", "a", "##b"], ["[CLS]", "playings", ".", "ab"]),
        (
            ["<s>", "Ġun", "watch", "able", ".", "Ġ(", "so", ")", "</s>"],
            ["<s>", "unwatchable", ".", "(", "so", ")", "</s>"],
        ),
        (["Ġdon", "'t", "!", "!", "Ġ3", ".", "5"], ["don't", "!", "!", "3", ".", "5"]),
        # A sentence without spaces is not one word.
        (["▁这", "部", "电影"], ["这", "部", "电影"]),
        (["▁ภาพ", "ยนตร์"], ["ภาพ", "ยนตร์"]),
        (["a", None, "##b"], ["a", "b"]),
    ],
)
def test_a_word_is_one_piece_and_punctuation_is_its_own(tokens, words):
    joined = join_words(tokens, scored_tokens(tokens).tolist(), [False] * len(tokens))
    assert [word.text for word in joined] == words
    assert sorted(place for word in joined for place in word.places) == [
        i for i, token in enumerate(tokens) if token is not None
    ]


def test_a_word_has_the_sum_of_its_pieces():
    styles = Page(token_html(["the", "act", "##ing", "was", "bad"], np.array([-1.0, 3.0, -1.0, 0.5, -4.0]))).styles
    assert {word: alpha(style) for word, style in styles.items() if word.strip() and "colour" not in word} == {
        "the": pytest.approx(0.75 / 4, abs=0.01),
        "acting": pytest.approx(0.75 / 2, abs=0.01),
        "was": pytest.approx(0.75 / 8, abs=0.01),
        "bad": 0.75,
    }
    assert "rgba(225,29,29" in styles["acting"]
    assert styles[PIECES]
    assert PIECES not in Page(token_html(["bad"], np.ones(1))).text


def test_pieces_of_which_one_is_ignored_keep_their_own_colour():
    joined = join_words(["a", "##b", "##c"], [True, True, False], [False, True, False])
    assert [(word.text, word.space, word.scored, word.evidence) for word in joined] == [
        ("a", False, True, False),
        ("b", False, True, True),
        ("c", False, False, False),
    ]
    assert len(join_words(["a", "##b"], [True, False], [False, False])) == 2
    assert len(join_words(["a", "##b"], [True, True], [False, False])) == 1


def test_a_text_may_run_from_right_to_left():
    page = token_html(["[CLS]", "שלום"], np.ones(2))
    # A span with a direction of its own does not count for that of the text (HTML, "the auto state").
    assert '<div dir="auto"><span dir="auto"' in page
    assert page.count("dir=") == 2


def test_colour_follows_sign_and_size():
    styles = Page(token_html(BERT, SCORES)).styles
    assert alpha(styles["bad"]) == 0.75
    assert alpha(styles["acting"]) == pytest.approx(0.75 * 1.5 / 2, abs=0.01)
    assert alpha(styles["!"]) == 0
    assert styles["[CLS]"] == styles["[SEP]"] == "color:#767676;font-size:80%"
    assert "rgba(225,29,29" in styles["acting"]
    assert "rgba(37,99,235" in styles["was"]


def test_the_rationale_is_underlined():
    rationale = [0, 0, 0, 0, 0, 1, 255, 0]
    styles = Page(token_html(BERT, SCORES, rationale)).styles
    assert [word for word, style in styles.items() if "border-bottom" in style] == ["bad"]
    assert re.findall(r"\x1b\[[\d;]*;4m(.*?)\x1b", token_ansi(BERT, SCORES, rationale)) == ["bad"]
    text = r"\[CLS\] the **acting** was 「**bad\!**」 \[SEP\]"
    assert token_markdown(BERT, SCORES, rationale).split("\n") == [text, "", PIECES.replace(".", r"\.")]


@given(st.lists(st.text(max_size=8), max_size=6), st.text(max_size=20))
def test_no_text_becomes_markup(tokens, title):
    scored = [True] * len(tokens)
    page = Page(token_html(tokens, np.ones(len(tokens)), title=title, scored=scored))
    spans = page.tags.count("span")
    assert page.tags[: 3 + spans] == ["div"] * 3 + ["span"] * spans
    assert set(page.tags[3 + spans :]) <= {"div"}  # notes
    assert spans <= len(tokens)


def test_a_script_stays_text():
    page = token_html(["<script>alert(1)</script>", '"><img>'], np.ones(2), title="<b>")
    assert "<script" not in page
    assert "<img" not in page
    assert "<b>" not in page
    assert "<script>alert(1)</script>" in Page(page).text


def test_tokens_that_are_not_scored_set_no_scale_and_their_share_is_said():
    scores = np.array([60.0, 0.1, 1.0, 0.5, -0.5, 2.0, 30.0, 6.0])
    rationale = [255, 0, 0, 0, 0, 1, 255, 255]  # "!" is ignored, too
    page = Page(token_html(BERT, scores, rationale))
    assert alpha(page.styles["bad"]) == 0.75
    assert "background" not in page.styles["[CLS]"] + page.styles["!"]
    note = "Not scored (grey): [CLS], !, [SEP], with 95.9 % of the relevance"
    assert note in page.text
    assert note in plain(token_ansi(BERT, scores, rationale))
    markdown = token_markdown(BERT, scores, rationale)
    assert "Not scored: \\[CLS\\], \\!, \\[SEP\\], with 95\\.9 % of the relevance" in markdown.split("\n")
    assert "「**bad\\!**」" in markdown
    # Whoever knows better says which are scored: here the "!" is, and "the" is not.
    chosen = [False, False, True, True, True, True, True, False]
    page = Page(token_html(BERT, scores, rationale, scored=chosen))
    assert alpha(page.styles["!"]) == 0.75
    assert "Not scored (grey): [CLS], the, [SEP], with" in page.text


def test_an_annotation_that_ignores_every_token_is_none():
    styles = Page(token_html(BERT, SCORES, [255] * 8)).styles
    assert alpha(styles["bad"]) == 0.75


@pytest.mark.parametrize(
    ("special", "said"), [(1e-6, "less than 0.1 %"), (1e6, "more than 99.9 %"), (1.0, "50.0 %"), (np.inf, None)]
)
def test_a_share_that_is_nearly_all_or_nothing_says_so(special, said):
    page = token_html(["[CLS]", "word"], np.array([special, 1.0]))
    assert (f"[CLS], with {said} of the relevance" in page) if said else "of the relevance" not in Page(page).text


@given(st.lists(st.text(max_size=8), max_size=6))
def test_a_token_cannot_steer_the_terminal(tokens):
    rest = plain(token_ansi(tokens, np.ones(len(tokens)), scored=[True] * len(tokens)))
    text = rest.removesuffix("\nThe colour of a word is the sum over its pieces.")  # where tokens are joined to words
    assert all(character.isprintable() for character in text)


def test_escape_codes_in_tokens_are_defused():
    assert plain(token_ansi(["a\x1b[2Jb"], np.ones(1))) == "aU+001B[2Jb"


def test_without_any_relevance_nothing_is_coloured():
    styles = Page(token_html(BERT, np.zeros(8))).styles
    assert {alpha(style) for word, style in styles.items() if "background" in style} == {0.0}
    assert "**" not in token_markdown(BERT, np.zeros(8))


def test_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match="8 tokens have 7 scores"):
        token_html(BERT, SCORES[:7])
    with pytest.raises(ValueError, match="a rationale of 3"):
        token_ansi(BERT, SCORES, [0, 1, 0])
    with pytest.raises(ValueError, match="scored must say of 8 tokens"):
        token_markdown(BERT, SCORES, scored=[True])
