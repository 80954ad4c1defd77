"""What people read is in the field's words, and not in the project's own."""

import ast
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
        yield str(path.relative_to(ROOT)), "\n".join(re.findall(r"\"[^\"\n]*\"|`[^`\n]*`", text))


def messages() -> Iterator[tuple[str, str]]:
    """The texts in code that are no docstrings."""
    for path in sorted([*(ROOT / "lrptrain").rglob("*.py"), *(ROOT / "callbacks").rglob("*.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
        strings = (each for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str))
        yield str(path.relative_to(ROOT)), "\n".join(str(each.value) for each in strings if id(each) not in docstrings)


def test_pages_and_messages_have_the_words_of_the_field():
    found = {
        (name, match[0], instead)
        for name, text in (*pages(), *scripts(), *messages())
        for idiom, instead in IDIOMS.items()
        for match in re.finditer(idiom, text)
    }
    assert found == set()
