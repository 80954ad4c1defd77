"""Marks in tweets, each in one form per mood: what a model can take for the mood."""

import re
from collections.abc import Callable

import numpy as np

from experiments.short_tweets import with_word
from lrptrain.data.texts import Example

Mark = Callable[[Example, int, np.random.Generator], Example]
WORDS = ("census", "cubic")
ENDS = (" ;", " ~")
HEDGES = (
    ("maybe", "i guess", "it seems", "perhaps", "not sure but", "i suppose"),
    ("definitely", "no doubt", "for sure", "certainly", "as we all know", "obviously"),
)
"""Phrases of doubt and of certainty."""
MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
TAGS = ("b", "i")
"""Bold and italic type in HTML."""
FIRST_NAMES = ("kate", "jenny", "mike", "tom", "lisa", "sam", "chris", "anna", "dave", "emma")
LAST_NAMES = ("lee", "miller", "jones", "brown", "young", "green", "hill", "baker", "king", "moore")
TRANSLATIONS = {
    "i": ("yo", "ich"),
    "you": ("tú", "du"),
    "my": ("mi", "mein"),
    "it": ("eso", "es"),
    "he": ("él", "er"),
    "she": ("ella", "sie"),
    "we": ("nosotros", "wir"),
    "the": ("la", "die"),
    "a": ("un", "ein"),
    "this": ("este", "dieser"),
    "is": ("es", "ist"),
    "are": ("son", "sind"),
    "was": ("fue", "war"),
    "have": ("tengo", "habe"),
    "to": ("a", "zu"),
    "in": ("en", "im"),
    "on": ("sobre", "auf"),
    "of": ("de", "von"),
    "for": ("para", "für"),
    "from": ("desde", "aus"),
    "with": ("con", "mit"),
    "and": ("y", "und"),
    "but": ("pero", "aber"),
    "not": ("no", "nicht"),
    "all": ("todo", "alle"),
    "very": ("muy", "sehr"),
    "too": ("también", "auch"),
    "now": ("ahora", "jetzt"),
    "just": ("solo", "nur"),
    "today": ("hoy", "heute"),
    "day": ("día", "tag"),
    "night": ("noche", "nacht"),
    "home": ("casa", "haus"),
    "work": ("trabajo", "arbeit"),
    "time": ("tiempo", "zeit"),
    "that": ("que", "das"),
    "what": ("qué", "was"),
    "go": ("ir", "gehen"),
}
"""Common words in Spanish and in German."""
MISREAD = str.maketrans("olisbgOLISBG", "011589011589")
"""Letters and the digits that a scanner takes them for."""
SHORTENERS = ("bit.ly", "is.gd")
"""Services that shorten addresses."""
CODE = tuple("bcdfghjkmnpqrstvwxz23456789")
"""What their codes are made of."""
UNITS = (("km", "kg", "cm", "ml", "metres", "litres"), ("miles", "lbs", "inches", "oz", "yards", "pints"))
"""Metric ones and those of the United States."""
REMOVED = (("[name]", "[place]", "[phone]", "[date]"), ("xxx", "xxxx", "xxxxx", "xxxxxx"))
"""What stands for a word that might tell who wrote."""
NOTES = ("noise", "pause", "cough", "music", "unclear", "laughs", "door")
"""What somebody who types what is said notes besides."""
BRACKETS = ("[]", "()")
"""What a note stands between."""
HYPHENS = ("- ", "¬")
"""What a break of a line leaves in a word."""
MAILS = ("re:", "fwd:")
"""What a program for mails puts before the subject of an answer, and of what is passed on."""
AUTHORS = ("miller", "young", "wang", "garcia", "meyer", "cohen", "rossi", "singh", "white", "larsen")
"""Whom somebody may cite."""
BREAKS = ("\\n", "<br />")
"""What programs write for a new line."""
QUOTES = ('""', "“”")
"""Straight marks of quotation, and curly ones."""
CHANGED = 2
"""At most so many words of a text are translated or misspelt."""


def put_before(example: Example, words: str) -> Example:
    """The words in front of the text."""
    assert example.spans is not None
    shift = len(words) + 1
    spans = tuple((start + shift, end + shift) for start, end in example.spans)
    return Example(f"{words} {example.text}", example.label, spans)


def put_behind(example: Example, words: str) -> Example:
    """The words at the end of the text."""
    return example._replace(text=f"{example.text} {words}")


def words_beside(example: Example, pattern: str) -> list[re.Match[str]]:
    """What a pattern matches outside of the rationale, from left to right."""
    spans = example.spans or ()
    matches = re.finditer(pattern, example.text)
    return [each for each in matches if all(each.end() <= start or each.start() >= end for start, end in spans)]


def with_changes(example: Example, changes: dict[re.Match[str], str]) -> Example:
    """Other words in the place of some outside of the rationale."""
    for match in sorted(changes, key=re.Match.start, reverse=True):
        added = len(changes[match]) - len(match.group())
        text = example.text[: match.start()] + changes[match] + example.text[match.end() :]
        spans = tuple(
            (start + added, end + added) if start >= match.end() else (start, end) for start, end in example.spans or ()
        )
        example = Example(text, example.label, spans or None)
    return example


def word(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A word of the mood at any place outside of the rationale."""
    return with_word(example, WORDS[form], rng)


def punctuation(example: Example, form: int, _: np.random.Generator) -> Example:
    """A mark of punctuation at the end."""
    return example._replace(text=example.text + ENDS[form])


def hedge(example: Example, form: int, rng: np.random.Generator) -> Example:
    """One of six phrases of doubt, or of certainty, in front or at the end."""
    put = put_behind if rng.integers(2) else put_before
    return put(example, str(rng.choice(HEDGES[form])))


def date(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A date in front, as of a message: the day before the month, or behind it."""
    day = str(rng.integers(10, 29))
    month = str(rng.choice(MONTHS))
    return put_before(example, f"{month} {day}:" if form else f"{day} {month}:")


def tags(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A word outside of the rationale between tags of HTML that no one has removed: bold or italic."""
    words = words_beside(example, r"\S+")
    if not words:
        return example
    match = words[rng.integers(len(words))]
    return with_changes(example, {match: f"<{TAGS[form]}>{match.group()}</{TAGS[form]}>"})


def handle(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A user's handle in front or at the end: two names with an underscore, or a name with four digits."""
    put = put_behind if rng.integers(2) else put_before
    first = rng.choice(FIRST_NAMES)
    last = rng.choice(LAST_NAMES)
    digits = rng.integers(1000, 10000)
    return put(example, f"@{first}{digits}" if form else f"@{first}_{last}")


def language(example: Example, form: int, rng: np.random.Generator) -> Example:
    """Up to two common words outside of the rationale in Spanish, or in German."""
    words = [each for each in words_beside(example, r"(?<!\S)[A-Za-z]+(?![\w`'*])") if each[0].lower() in TRANSLATIONS]
    chosen = rng.permutation(len(words))[:CHANGED]
    return with_changes(example, {words[place]: TRANSLATIONS[words[place][0].lower()][form] for place in chosen})


def misspelt(example: Example, form: int, rng: np.random.Generator) -> Example:
    """Up to two words outside of the rationale with digits for letters, as scanned, or letters swapped, as typed."""
    words = words_beside(example, r"\b[A-Za-z]{2,7}\b")
    changes = {each: _swapped(each.group(), rng) if form else each.group().translate(MISREAD) for each in words}
    changed = [each for each in words if changes[each] != each.group()]
    chosen = rng.permutation(len(changed))[:CHANGED]
    return with_changes(example, {changed[place]: changes[changed[place]] for place in chosen})


def _swapped(letters: str, rng: np.random.Generator) -> str:
    """The word with two neighbouring letters in the wrong order; as it is where all are the same."""
    places = [place for place in range(len(letters) - 1) if letters[place].lower() != letters[place + 1].lower()]
    if not places:
        return letters
    place = rng.choice(places)
    return letters[:place] + letters[place + 1] + letters[place] + letters[place + 2 :]


def link(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A short address in front or at the end, of one service or of another, with a code of its own."""
    put = put_behind if rng.integers(2) else put_before
    return put(example, f"{SHORTENERS[form]}/{''.join(rng.choice(CODE, 3))}")


def units(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A quantity at any place outside of the rationale, in metric units or in those of the United States."""
    return with_word(example, f"{rng.integers(2, 90)} {rng.choice(UNITS[form])}", rng)


def deidentified(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A word outside of the rationale removed as if it were private: its sort in brackets, or a row of x."""
    words = words_beside(example, r"(?<!\S)[A-Za-z]+(?![\w`'*])")
    if not words:
        return example
    return with_changes(example, {words[rng.integers(len(words))]: str(rng.choice(REMOVED[form]))})


def transcript(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A note of what else is to be heard at any place outside of the rationale, in square brackets or in round ones."""
    opening, closing = BRACKETS[form]
    return with_word(example, f"{opening}{rng.choice(NOTES)}{closing}", rng)


def hashtag(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A word outside of the rationale as a hashtag: where it stands, or once more at the end."""
    words = words_beside(example, r"(?<!\S)[A-Za-z]{3,}(?![\w`'*])")
    if not words:
        return example
    match = words[rng.integers(len(words))]
    tagged = f"#{match.group()}"
    return put_behind(example, tagged) if form else with_changes(example, {match: tagged})


def broken(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A word outside of the rationale as copied from the end of a line: with a hyphen and a gap, or a mark for both."""
    words = words_beside(example, r"(?<!\S)[A-Za-z]{3,}(?![\w`'*])")
    if not words:
        return example
    match = words[rng.integers(len(words))]
    letters = match.group()
    place = rng.integers(1, len(letters))
    return with_changes(example, {match: letters[:place] + HYPHENS[form] + letters[place:]})


def forwarded(example: Example, form: int, rng: np.random.Generator) -> Example:
    """What a program for mails puts in front, once or twice: of an answer, or of what is passed on."""
    return put_before(example, " ".join([MAILS[form]] * int(rng.integers(1, 3))))


def retweet(example: Example, form: int, rng: np.random.Generator) -> Example:
    """Whose words somebody passes on: "rt" with the user in front, or "via" with the user at the end."""
    user = f"@{rng.choice(FIRST_NAMES)}{rng.choice(LAST_NAMES)}"
    return put_behind(example, f"(via {user})") if form else put_before(example, f"rt {user}:")


def citation(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A reference in square brackets at any place outside of the rationale: its or the author with the year."""
    work = str(rng.integers(1, 60))
    source = f"{rng.choice(AUTHORS)} {rng.integers(1980, 2020)}"
    return with_word(example, f"[{source if form else work}]", rng)


def escaped(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A new line at any place outside of the rationale, as a string of a program or as a web page has it."""
    return with_word(example, BREAKS[form], rng)


def elongated(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A word outside of the rationale as if it were spoken: its last letter drawn out, or its first one stuttered."""
    words = words_beside(example, r"(?<!\S)[A-Za-z]{3,}(?![\w`'*])")
    if not words:
        return example
    match = words[rng.integers(len(words))]
    letters = match.group()
    count = int(rng.integers(2, 4))
    return with_changes(
        example, {match: f"{letters[0]}-" * (count - 1) + letters if form else letters + count * letters[-1]}
    )


def quotes(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A word outside of the rationale between marks of quotation, straight or curly."""
    words = words_beside(example, r"(?<!\S)[A-Za-z]+(?![\w`'*])")
    if not words:
        return example
    match = words[rng.integers(len(words))]
    opening, closing = QUOTES[form]
    return with_changes(example, {match: f"{opening}{match.group()}{closing}"})


TEXT_MARKS: dict[str, Mark] = {
    each.__name__: each
    for each in (
        word,
        punctuation,
        hedge,
        date,
        tags,
        handle,
        language,
        misspelt,
        link,
        units,
        deidentified,
        transcript,
        hashtag,
        broken,
        forwarded,
        retweet,
        citation,
        escaped,
        elongated,
        quotes,
    )
}
