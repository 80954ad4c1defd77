"""Pages, messages, docstrings and comments have the field's words, and not the project's own."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IDIOMS = {
    r"\bmend(s|ed|ing)?\b": "fix, fixed",
    r"\btold by\b": "predictable from",
    r"\bgravest\b": "most severe",
    r"\bthe shelf\b": "tested models",
    r"\bkept weights\b": "the kept checkpoint",
    r"\bsurely\b": "by the lower bound of the interval, or nothing",
    r"\bfaulty\b": "flagged",
    r"\b(goes|went|go) on\b": "resumes, continues",
    r"\bat chance\b": "no better than guessing",
    r"\bnot sure\b": "inconclusive",
    r"\b(the|a) model reads\b": "relies on, uses, takes",
    r"\bdonors?\b": "source",
    r"\brightly\b": "correctly",
    r"\bnamed first\b": "ranked first",
    r"\btells nothing\b": "says nothing about",
    r"\bpoints of effect\b": "percentage points of predicted probability",
    r"\b(map of maps|atlas)\b": "embedding of the maps",
    r"\bstrangers?\b": "the user",
}
"""What is not written, and what is written instead."""


def pages() -> Iterator[tuple[str, str]]:
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        # Paths of links and code are names, not words.
        yield (
            str(path.relative_to(ROOT)),
            re.sub(r"\]\([^)]*\)|`[^`]*`", "", re.sub(r"```.*?```", "", text, flags=re.S)),
        )


def scripts() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "lrptrain" / "dashboard").rglob("*.js")):
        text = path.read_text(encoding="utf-8")
        yield str(path.relative_to(ROOT)), "\n".join(re.findall(r"\"[^\"\n]*\"|`[^`\n]*`|//[^\n]*", text))


def code() -> Iterator[tuple[str, str]]:
    """Messages, docstrings and comments; names of code have underscores where these have spaces."""
    for path in sorted([*(ROOT / "lrptrain").rglob("*.py"), *(ROOT / "callbacks").rglob("*.py")]):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_pages_and_code_have_the_words_of_the_field():
    found = {
        (name, match[0], instead)
        for name, text in (*pages(), *scripts(), *code())
        for idiom, instead in IDIOMS.items()
        for match in re.finditer(idiom.replace(" ", r"[\s#]+"), text, re.IGNORECASE)
    }
    assert found == set()


MOST_WORDS = 28
"""More words in a sentence are read twice."""


def sentences(text: str) -> Iterator[str]:
    """Sentences of a page, cell by cell of its tables."""
    for line in re.sub(r"<!--.*?-->", "", text, flags=re.S).splitlines():
        for cell in line.strip(" |").split(" | "):
            yield from re.split(r"(?<=[.!?:])[*_)]*\s+", cell)


def test_sentences_of_pages_are_short():
    learned = {name: text for name, text in pages() if not name.startswith("docs/reference/api")}
    # What a generated page counts is one sentence.
    learned.pop("docs/reference/tested-models.md")
    found = {
        (name, sentence)
        for name, text in learned.items()
        for sentence in sentences(text)
        if len(re.findall(r"[\w'%-]+", sentence)) > MOST_WORDS
    }
    assert found == set()
