"""What cues of texts share: their words, and texts that are made of pieces of two."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F

from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.call import ARGUMENT
from lrptrain.batch.chunks import chunk_width
from lrptrain.batch.content import attended_tokens, special_tokens
from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.cues.text_form import Padding, TextForm, padding_of
from lrptrain.cues.text_words import NameTokens, Span, TextWord, words_among

TextPart = Literal["text", "outside"]
"""All of a text, or what lies outside of what people marked."""


def _numbers(ids: list[int]) -> list[str]:
    return [f" {number}" for number in ids]


@dataclass(frozen=True)
class Language:
    """How texts are made up.

    Attributes:
        name_tokens: Brings token ids to token strings; by default to their numbers, each a word.
        form: Their padding, the special tokens at their ends, and how long they may be.
        is_named: Whether tokens have names; else families of words are not known.
    """

    name_tokens: NameTokens = _numbers
    form: TextForm = field(default_factory=TextForm)
    is_named: bool = True


UNNAMED = partial(Language, is_named=False)
"""Makes the language of texts that nobody says anything of."""


class Part(NamedTuple):
    """A text of a sample: its only one, or one of a pair."""

    tokens: list[int]
    words: list[TextWord]


def parts_of(batch: Batch, language: Language) -> list[list[Part]]:
    """Return the texts of every sample: what special tokens, or other token types, tell apart."""
    ids = batch["input_ids"]
    attended = attended_tokens(batch)
    special = special_tokens(batch, language.form.ends, language.form.padding.token)
    # No text continues from one chunk to the next.
    types = torch.stack([batch.get("token_type_ids", ids * 0), _chunk_of_places(batch).expand_as(ids)], -1)
    rows = zip(ids.tolist(), (attended & ~special).tolist(), types.tolist(), strict=True)
    return [[_part(tokens, places, language) for places in _runs(content, types)] for tokens, content, types in rows]


def _chunk_of_places(batch: Batch) -> Int[Tensor, " tokens"]:
    """Return the number of the chunk that each place lies in; 0 of texts in one piece."""
    width = batch["input_ids"].shape[1]
    return torch.arange(width, device=batch["input_ids"].device) // (chunk_width(batch) or max(width, 1))


def _runs(content: list[bool], types: list[list[int]]) -> list[list[int]]:
    """Return the places of content that stand side by side and have the same type, in the same chunk."""
    runs: list[list[int]] = []
    for place, is_content in enumerate(content):
        if is_content:
            if not (place and content[place - 1] and types[place - 1] == types[place]):
                runs.append([])
            runs[-1].append(place)
    return runs


def _part(tokens: list[int], places: list[int], language: Language) -> Part:
    start = places[0]
    words = _words(tuple(tokens[start : places[-1] + 1]), language.name_tokens)
    return Part(places, [word._replace(span=(start + word.span[0], start + word.span[1])) for word in words])


@lru_cache(maxsize=4096)
def _words(tokens: tuple[int, ...], name_tokens: NameTokens) -> list[TextWord]:
    """Return the words of a text; a search reads the same ones again for every cue."""
    return words_among(np.array(tokens), name_tokens)


def evidence_in(batch: Batch) -> Bool[Tensor, "batch tokens"]:
    """Return which tokens people marked; none without annotation."""
    rationale = batch.get("rationale")
    if not isinstance(rationale, Tensor):
        return torch.zeros_like(batch["input_ids"], dtype=torch.bool)
    return rationale == 1


def is_annotated(batch: Batch) -> Bool[Tensor, " batch"]:
    """Return which texts have an annotation: one that names some evidence."""
    return evidence_in(batch).any(1)


def kept_in(batch: Batch, parts: list[list[Part]]) -> Bool[np.ndarray, "batch tokens"]:
    """Return which tokens are of words that are not known to be outside: marked ones, and unjudged ones.

    A word is judged by any of its pieces: labels often stand at the first one alone. Of a text without a mark, nothing.
    """
    kept = evidence_in(batch).cpu().numpy()
    for row, texts in enumerate(parts):
        if not kept[row].any():
            continue
        judged = (batch["rationale"][row] != IGNORED).cpu().numpy()
        for word in (word for part in texts for word in part.words):
            place = slice(*word.span)
            kept[row, place] |= kept[row, place].any() or not judged[place].any()
    return kept


Token = tuple[int, int]
"""0 for a token of the text itself and 1 for one of its source, and the token's place there."""


@dataclass(frozen=True)
class Spans(Cue):
    """Certain words of a text: it loses its own, and is given those of its source.

    Words are put where they stand in their source, as a share of the way through all other words, between two words. Of
    pairs, each text takes those of its counterpart. Outside of the annotation, what people marked stays, and is not
    given.
    """

    name: str
    role: Role
    language: Language = field(compare=False, repr=False)
    where: TextPart = "text"

    @abstractmethod
    def spans(self, words: Sequence[TextWord]) -> list[Span]:
        """Return which words of a text are meant, in their order, none in another."""

    def locate(self, batch: Batch) -> Bool[Tensor, "batch tokens"]:
        """Return their tokens."""
        inside = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
        for row, parts in enumerate(self._chosen(batch)):
            for _, spans in parts:
                for span in spans:
                    inside[row, slice(*span)] = True
        return inside

    def exchange(self, batch: Batch, sources: Batch, staying: Sequence["Spans"] = ()) -> dict[str, Any]:
        """See `Cue`."""
        rows, size = [], chunk_width(batch)
        stays, others = (_located(staying, each) for each in (batch, sources))
        chosen = (self._chosen(batch, stays), self._chosen(sources, others))
        for row, (own, theirs) in enumerate(zip(*chosen, strict=True)):
            parts = [part for part, _ in own]
            given = _counterparts(parts, [part for part, _ in theirs], size)
            lent = {part.tokens[0]: spans for part, spans in theirs}
            put = {
                part.tokens[0]: _joined(part, out, each, lent[each.tokens[0]] if each.tokens else [])
                for (part, out), each in zip(own, given, strict=True)
            }
            rows.append(row_of(batch, row, parts, put))
        return composed(batch, sources, rows, self.language, stays)

    def _chosen(
        self, batch: Batch, stays: Bool[Tensor, "batch tokens"] | None = None
    ) -> list[list[tuple[Part, list[Span]]]]:
        """Return the parts of every text, each with the spans that are meant; none outside of no annotation."""
        texts = parts_of(batch, self.language)
        fixed = torch.zeros_like(batch["input_ids"]) if stays is None else stays
        found = []
        for row, parts, others in zip(kept_in(batch, texts), texts, fixed.tolist(), strict=True):
            spans = [(part, [x for x in self.spans(part.words) if not any(others[slice(*x)])]) for part in parts]
            if self.where == "outside":
                beside = row if row.any() else ~row
                spans = [(part, [each for each in out if not beside[slice(*each)].any()]) for part, out in spans]
            found.append(spans)
        return found


def _located(cues: Sequence[Spans], batch: Batch) -> Bool[Tensor, "batch tokens"]:
    """Return the tokens of any of some cues."""
    nowhere = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
    return torch.stack([nowhere, *(each.locate(batch) for each in cues)]).any(0)


@dataclass(frozen=True)
class Rewriting(Cue):
    """What texts have beyond certain words: their own are made anew, with tokens of theirs and of their sources."""

    name: str
    role: Role
    language: Language = field(compare=False, repr=False)

    @abstractmethod
    def rewritten(self, own: Sequence[Part], theirs: Sequence[Part]) -> dict[int, list[Token]]:
        """Return the new tokens of those texts of a sample that change, by their number."""

    def exchange(self, batch: Batch, sources: Batch) -> dict[str, Any]:
        """See `Cue`."""
        rows = []
        pairs = zip(parts_of(batch, self.language), parts_of(sources, self.language), strict=True)
        for row, (own, theirs) in enumerate(pairs):
            changed = self.rewritten(own, _counterparts(own, theirs, chunk_width(batch)))
            kept = ([(0, place) for place in part.tokens] for part in own)
            put = {part.tokens[0]: changed.get(i, same) for i, (part, same) in enumerate(zip(own, kept, strict=True))}
            rows.append(row_of(batch, row, own, put))
        return composed(batch, sources, rows, self.language)


def _counterparts(own: Sequence[Part], theirs: Sequence[Part], size: int | None) -> list[Part]:
    """Return the source's part in the same chunk, and as far along it, for each of a sample's own; or an empty one."""

    def places(parts: Sequence[Part]) -> list[tuple[int, int]]:
        chunks = [part.tokens[0] // size if size else 0 for part in parts]
        return [(chunk, chunks[:number].count(chunk)) for number, chunk in enumerate(chunks)]

    given = dict(zip(places(theirs), theirs, strict=True))
    return [given.get(place, Part([], [])) for place in places(own)]


def _joined(part: Part, out: list[Span], given: Part, spans: list[Span]) -> list[Token]:
    """Return a text's tokens without some spans, and with spans of its source."""
    gone = {place for span in out for place in range(*span)}
    rest = [place for place in part.tokens if place not in gone]
    starts = {word.span[0] for word in part.words}
    allowed = [number for number, place in enumerate(rest) if place in starts or number == 0] + [len(rest)]
    lent = {place for span in spans for place in range(*span)}
    others = [place for place in given.tokens if place not in lent]
    if not others:
        return _filled(part, gone, spans)
    put: dict[int, list[Token]] = {}
    for span in spans:
        share = sum(place < span[0] for place in others) / len(others)
        _, at = min((abs(number - share * len(rest)), number) for number in allowed)
        put.setdefault(at, []).extend((1, place) for place in range(*span))
    tokens: list[Token] = []
    for number in range(len(rest) + 1):
        tokens += put.get(number, [])
        if number < len(rest):
            tokens.append((0, rest[number]))
    return tokens


def _filled(part: Part, gone: set[int], spans: list[Span]) -> list[Token]:
    """Return a text with spans that are all of its source's in the places of its own: what stays does not move."""
    tokens: list[Token] = []
    left, missing = list(spans), 0
    for place in part.tokens:
        if place not in gone:
            tokens.append((0, place))
            continue
        missing += 1
        while left and missing > 0:
            start, stop = left.pop(0)
            tokens += [(1, each) for each in range(start, stop)]
            missing -= stop - start
    return tokens + [(1, place) for span in left for place in range(*span)]


def row_of(batch: Batch, row: int, parts: Sequence[Part], put: dict[int, list[Token]]) -> list[tuple[int, int, int]]:
    """Return all tokens of a sample, its special ones included, with the parts' new tokens in place of theirs.

    The third number is the place of the token whose type each has: all of a part have that of its first one.
    """
    first = {part.tokens[0]: part for part in parts}
    inside = {place for part in parts for place in part.tokens}
    tokens: list[tuple[int, int, int]] = []
    for place in attended_tokens(batch)[row].nonzero().flatten().tolist():
        if place in first:
            tokens += [(*token, place) for token in put[place]]
        if place not in inside:
            tokens.append((0, place, place))
    return tokens


def composed(
    batch: Batch,
    sources: Batch,
    rows: Sequence[Sequence[tuple[int, int, int]]],
    language: Language,
    stays: Bool[Tensor, "batch tokens"] | None = None,
) -> dict[str, Any]:
    """Return samples whose texts are made of tokens of theirs and of their sources.

    What the model is given for each token, and its annotation, go along with it, but for token types, and for numbers
    that count places. Of a text, or a chunk of one, that becomes too long, tokens before its last one are cut: its own
    first, but for special ones and those that stay or that people marked, and then those that it was given.
    """
    ids = batch["input_ids"]
    size = chunk_width(batch)
    most = max(language.form.most, ids.shape[1]) if size is None else size
    # Each token stays in the chunk of the place that its type is from.
    starts = [0] if size is None else [*range(0, ids.shape[1], size)]
    pieces = [
        [row if size is None else [each for each in row if each[2] // size == at // size] for at in starts]
        for row in rows
    ]
    if any(len(piece) > most for row in pieces for piece in row):
        kept = kept_in(batch, parts_of(batch, language))
        if "rationale" in batch:  # one that marks all of a text separates nothing
            kept &= (batch["rationale"] == 0).any(1, keepdim=True).cpu().numpy()
        padding = language.form.padding.token  # what is not masked is special, too, and goes
        kept |= (special_tokens(batch, language.form.ends, padding) & (ids != padding)).cpu().numpy()
        kept |= False if stays is None else stays.cpu().numpy()
        pieces = [[_cut(piece, most, own) for piece in row] for row, own in zip(pieces, kept, strict=True)]
    # Never narrower than before: a model of one's own may take texts of one length alone.
    width = max(ids.shape[1], *(len(row[0]) for row in pieces))
    step = width if size is None else size
    pad, on_the_left = padding_of(batch, language.form.padding)
    side, place, typed = (torch.zeros(len(rows), width, dtype=torch.long) for _ in range(3))
    there = torch.zeros(len(rows), width, dtype=torch.bool)
    for number, row in enumerate(pieces):
        for start, piece in zip(starts, row, strict=True):
            if piece:
                first = start + step - len(piece) if on_the_left else start
                at = slice(first, first + len(piece))
                side[number, at], place[number, at], typed[number, at] = torch.tensor(piece).T
                there[number, at] = True
    side, place, typed, there = (x.to(ids.device) for x in (side, place, typed, there))
    result = dict(batch)
    for name, values in batch.items():
        if not (isinstance(values, Tensor) and values.shape[:2] == ids.shape) or name == "label":
            continue
        if name == "attention_mask":
            result[name] = there.to(values.dtype)
        elif name == "token_type_ids":
            result[name] = _gathered(values, values, side, typed, there, 0)
        elif (counted := _counted(name, values, attended_tokens(batch), there)) is not None:
            result[name] = counted
        else:
            filler = pad if name == "input_ids" else IGNORED if name in ANNOTATIONS else 0
            result[name] = _gathered(values, sources[name], side, place, there, filler)
    return result


def _cut(
    piece: Sequence[tuple[int, int, int]], most: int, kept: Bool[np.ndarray, " tokens"]
) -> list[tuple[int, int, int]]:
    """Return a text without those of its last tokens that need not be kept, its own before those that it was given."""
    free = [number for number, (side, place, _) in enumerate(piece[:-1]) if side or not kept[place]]
    free.sort(key=lambda number: (piece[number][0], -number))
    gone = {*free[: max(0, len(piece) - most)]}
    return [token for number, token in enumerate(piece) if number not in gone]


def _counted(
    name: str, values: Tensor, attended: Bool[Tensor, "batch tokens"], there: Bool[Tensor, "batch width"]
) -> Tensor | None:
    """Return an argument that counts tokens, as position ids do, for other texts; None for one that does not."""
    if not name.startswith(ARGUMENT) or values.ndim != 2:
        return None
    is_next = values.double().diff(dim=1) == 1
    if is_next.all():  # padding is counted, too
        attended, there = torch.ones_like(attended), torch.ones_like(there)
    elif not is_next[attended[:, 1:] & attended[:, :-1]].all():
        return None
    first = values.gather(1, attended.int().argmax(1, keepdim=True))
    return ((first + there.cumsum(1) - 1) * there).to(values.dtype)


def _gathered(own: Tensor, others: Tensor, side: Tensor, place: Tensor, there: Tensor, filler: int) -> Tensor:
    if others.shape[1] != own.shape[1]:
        raise ValueError("texts and sources must be padded to the same length")
    rows = torch.arange(len(own), device=own.device)[:, None]
    extra = [1] * (own.ndim - 2)
    taken = torch.where(side.view(*side.shape, *extra) == 0, own[rows, place], others[rows, place])
    return taken.masked_fill(~there.view(*there.shape, *extra), filler)


def as_wide_as(batch: Batch, others: Batch, padding: Padding | None = None) -> dict[str, Any]:
    """Return texts with as many tokens as others that may have become longer; images as they are."""
    more = batch["input_ids"].shape[1] - others["input_ids"].shape[1] if "input_ids" in batch else 0
    if more <= 0:
        return dict(others)
    known = padding_of(others) if padding is None else padding
    filling = {"input_ids": known.token, "rationale": IGNORED}
    shape = others["input_ids"].shape

    def filled(name: str, values: Any) -> Any:
        if not isinstance(values, Tensor) or values.shape[:2] != shape:
            return values
        sides = (more, 0) if known.on_the_left else (0, more)
        # The last axes come first: [batch, tokens, *more] is filled along its tokens.
        return F.pad(values, [*[0] * (2 * (values.ndim - 2)), *sides], value=filling.get(name, 0))

    return {name: filled(name, values) for name, values in others.items()}
