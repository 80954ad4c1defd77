"""The swap: the samples of a training batch take cues from each other.

It is the exchange by which cues are tested: whatever a test names can be fixed by what it names.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lrptrain.batch import IMAGES
from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.call import ARGUMENT, CHUNK, ROWS, TEXTS, samples_of
from lrptrain.batch.chunks import flattened
from lrptrain.batch.content import SPECIAL, special_tokens
from lrptrain.batch.rows import has_rows
from lrptrain.batch.sizes import marks_time
from lrptrain.cues.cue import Cue
from lrptrain.cues.family import FAMILIES
from lrptrain.cues.images import image_of
from lrptrain.cues.look import Look
from lrptrain.cues.placement import Placement
from lrptrain.cues.series import SeriesSurroundings
from lrptrain.cues.sources import random_sources
from lrptrain.cues.text_form import Padding, padding_of
from lrptrain.cues.texts import UNNAMED, Language, as_wide_as
from lrptrain.cues.visual import registered_looks
from lrptrain.cues.visual.colour import Colour
from lrptrain.cues.whole_input import WholeInput
from lrptrain.guidance.followed_cues import FollowedCues, names_of
from lrptrain.guidance.swap_names import FINDINGS, OF_IMAGES, OF_ROWS, OF_TEXTS, OUTSIDE, Medium, medium_of

LABELS = ("label", "labels")
_EXPLAINED, _ANNOTATION = "explained:", "annotation:"


class Swapped(NamedTuple):
    """What a swap makes of a batch.

    Attributes:
        explained: The input of all samples; of texts perhaps with more tokens than before.
        which: The samples that were swapped; the others are as before.
        annotation: The annotation of all samples, which moves with the tokens of texts.
        arguments: The other arguments of the model that change with it, by name, such as an `attention_mask`.
    """

    explained: Tensor
    which: Bool[Tensor, " batch"]
    annotation: Shaped[Tensor, " batch *area"]
    arguments: Mapping[str, Tensor] = MappingProxyType({})

    def arguments_of(self, chosen: Int[Tensor, " chosen"]) -> dict[str, Tensor]:
        """Return those of some samples."""
        return {name: values[chosen.to(values.device)] for name, values in self.arguments.items()}


class Swap:
    """The exchange of cues between the samples of a batch.

    Args:
        several: Names, as in `lrptrain.guidance.swap_names`, and cues.
        inputs: The inputs of the model in which findings among them lie, as far as they say.

    Attributes:
        followed: What the monitor of the same run finds; None where that is not asked for.
        language: How texts are made up, for names; set before the first batch of texts.
        takes_mask: Whether the model takes an attention mask, also where the step gives it none.
    """

    def __init__(self, several: Sequence[str | Cue] = (OUTSIDE,), inputs: frozenset[str] = frozenset()) -> None:
        self._inputs = inputs
        self._asked = tuple(each for each in several if each != FINDINGS)
        self.followed = FollowedCues() if FINDINGS in several else None
        self.language: Language | None = None
        self.takes_mask = False
        self._of_rows = self._of_time = False
        self._now: Mapping[str, Tensor] = {}
        self._before: Mapping[str, Tensor] = {}

    @property
    def is_default(self) -> bool:
        """Whether it is that of a user who names nothing."""
        return self.followed is None and self._asked == (OUTSIDE,)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to swap, as before a monitor's first finding."""
        return not self._every

    @property
    def needs_annotation(self) -> bool:
        """Whether it goes by where the evidence is."""
        return any(each == OUTSIDE if isinstance(each, str) else each.needs_annotation for each in self._every)

    @property
    def moves_evidence(self) -> bool:
        """Whether annotations of images do not fit the swapped ones."""
        return any(isinstance(each, Placement) for each in self._every)

    @property
    def keeps_places(self) -> bool:
        """Whether each pixel shows what it did, in another look: then labels of single pixels hold."""
        kinds = {each if isinstance(each, str) else each.kind for each in self._every}
        return self.followed is None and kinds <= {look.kind for look in registered_looks() if look.keeps_places}

    @property
    def title(self) -> str:
        """What is swapped, in words."""
        names = [repr(each) if isinstance(each, str) else names_of([each]) for each in self._asked]
        return ", ".join(dict.fromkeys([*names, *([FINDINGS] if self.followed else [])]))

    @property
    def _every(self) -> tuple[str | Cue, ...]:
        return (*self._asked, *(self.followed.cues if self.followed else ()))

    def check_medium(self, batch: Mapping[str, Any]) -> None:
        """Reject a batch of images for cues of texts, or any other pair of what there is."""
        has_texts = "input_ids" in batch and not any(name in batch for name in IMAGES)
        brought: Medium = "texts" if has_texts else "rows" if has_rows(batch) else "images"
        self._of_rows, self._of_time = brought == "rows", marks_time(batch)
        for each in self._every:
            medium = None if isinstance(each, Colour) and self._of_rows else medium_of(each)  # series have levels, too
            if medium not in (None, brought):
                name = f"swap={each!r}" if isinstance(each, str) else each.name
                raise ValueError(f"{name} is one of {medium}, and the batch has {sorted(batch)}")

    def _check_input(self, explained: Tensor, arguments: Mapping[str, Any]) -> None:
        """Reject an input beside that in which findings lie: the same corner of another image is another cue."""
        inputs = self._inputs | (self.followed.inputs if self.followed else frozenset())
        # A part of the model may call the same input otherwise.
        found = sorted(inputs & arguments.keys())
        name = next((name for name, x in arguments.items() if x is explained), "")
        if found and name not in inputs:
            raise ValueError(
                f"what was found lies in the input {found[0]!r}, and {name!r} is swapped: pass explain={found[0]!r}"
            )

    def cues(self, medium: Medium) -> list[Cue]:
        """Return the cues, looks first: a place comes as it was, and with it no look of the sample's own."""
        cues = [each if isinstance(each, Cue) else self._named(each, medium) for each in self._every]
        return sorted(cues, key=lambda cue: not isinstance(cue, Look))

    def _named(self, name: str, medium: Medium) -> Cue:
        if medium == "texts":
            language = self.language or UNNAMED()
            if name in FAMILIES and not language.is_named:
                raise ValueError(f"swap={name!r} reads the texts: pass tokenizer=, that of the model")
            return OF_TEXTS[name](language)
        if name == OUTSIDE and self._of_time:
            return SeriesSurroundings()
        return (OF_ROWS if medium == "rows" else OF_IMAGES)[name]()

    def __call__(
        self,
        explained: Tensor,
        annotation: Shaped[Tensor, " batch *area"],
        generator: torch.Generator | None = None,
        arguments: Mapping[str, Any] = MappingProxyType({}),
        chosen: Bool[Tensor, " batch"] | None = None,
    ) -> Swapped:
        """Give every sample each cue of a random source of its own; a batch of one takes from the sample before it.

        Args:
            explained: What the step gives the model: images or token ids.
            annotation: 1 evidence, 0 not, 255 ignored; a sample that is all 255 takes no part.
            generator: The random numbers.
            arguments: All arguments that the step gives the model, by name.
            chosen: The samples that may change; None for all. All give.
        """
        self._check_input(explained, arguments)
        if len(explained) == 1:
            return self._of_one(explained, annotation, generator, arguments, chosen)
        if explained.ndim == 3 and not explained.is_floating_point():
            return self._of_chunks(explained, annotation, generator, arguments, chosen)
        annotation = annotation.to(explained.device)
        medium: Medium = "rows" if self._of_rows else "texts" if annotation.ndim == 2 else "images"
        cues = self.cues(medium)
        batch = self._as_batch(medium, cues, explained, annotation, arguments)
        padding = padding_of(batch, self._padding(cues)) if "input_ids" in batch else None
        usable = (annotation != IGNORED).flatten(1).any(1)
        # Of an image without any evidence nothing would be left; of a bag that has none all lies outside, as its label
        # says, and what tells the others must come to it, too.
        marked = usable if medium == "rows" else (annotation == 1).flatten(1).any(1)
        which, changed = torch.zeros_like(usable), dict(batch)
        for cue in cues:
            takes = (marked if cue.needs_annotation else usable) & (usable.sum() > 1)
            sources = random_sources(usable, generator)
            sources = torch.where(takes, sources, torch.arange(len(sources), device=sources.device))
            # Each cue is taken of samples as they were, and given to samples as the cues before it have left them.
            changed = cue.exchange(changed, as_wide_as(changed, samples_of(batch, sources), padding))
            which |= takes
        if chosen is not None:
            which &= chosen.to(which.device)
        before = as_wide_as(changed, batch, padding)
        after = {
            name: torch.where(which.view(-1, *[1] * (values.ndim - 1)), values, before[name])
            for name, values in changed.items()
        }
        return _swapped(after, which, annotation, explained, arguments)

    def _as_batch(
        self,
        medium: Medium,
        cues: Sequence[Cue],
        explained: Tensor,
        annotation: Shaped[Tensor, " batch *area"],
        arguments: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return what a step gives the model as a batch in the contract's form: what cues exchange, and go by."""
        batch = _others(cues, arguments, explained)
        if all(isinstance(each, WholeInput) for each in cues):
            return batch | {"image": explained}  # whatever it is, it stays
        if medium == "rows":
            return batch | _rows(explained, annotation, arguments)
        if medium == "images":
            return batch | _images(explained, annotation)
        full = self.takes_mask and not bool((explained == self._padding(cues).token).any())
        batch |= _texts(explained, annotation, arguments, full)
        form = (self.language or UNNAMED()).form
        return batch | {SPECIAL: special_tokens(batch, form.ends, form.padding.token)}

    def _of_one(
        self,
        explained: Tensor,
        annotation: Shaped[Tensor, " batch *area"],
        generator: torch.Generator | None,
        arguments: Mapping[str, Any],
        chosen: Bool[Tensor, " batch"] | None,
    ) -> Swapped:
        """Return the swap of one sample, as of a bag of any size, with the one of the step before."""
        unchanged = Swapped(explained, torch.zeros(1, dtype=torch.bool, device=explained.device), annotation)
        if not bool((annotation != IGNORED).any()):
            return unchanged
        given = {name: x for name, x in arguments.items() if isinstance(x, Tensor) and x.shape[:1] == (1,)}
        own = {**given, _EXPLAINED: explained, _ANNOTATION: annotation}
        if self._now.get(_EXPLAINED) is not explained:  # a step may swap twice
            self._now, self._before = own, self._now
        if not self._before:
            return unchanged
        two = _as_two(own, self._before)
        pair, marked = two.pop(_EXPLAINED), two.pop(_ANNOTATION)
        both = two | {name: pair for name, x in given.items() if x is explained}
        takes = torch.tensor([chosen is None or bool(chosen[0]), False])
        found = self(pair, marked, generator, both, takes)
        others = dict(found.arguments)
        there = others.pop(ROWS, two.get(ROWS))
        count = None if there is None else int(there[0].sum())
        explained, annotation, *rest = (
            x[:1, :count] if x.ndim > 1 else x[:1] for x in (found.explained, found.annotation, *others.values())
        )
        return Swapped(explained, found.which[:1], annotation, dict(zip(others, rest, strict=True)))

    def _of_chunks(
        self,
        explained: Tensor,
        annotation: Shaped[Tensor, " batch *area"],
        generator: torch.Generator | None,
        arguments: Mapping[str, Any],
        chosen: Bool[Tensor, " batch"] | None,
    ) -> Swapped:
        """Return what a swap makes of texts in chunks: of one text each, in chunks again."""
        flat = flattened({"input_ids": explained, **arguments})
        given = {name: flat["input_ids"] if x is explained else flat[name] for name, x in arguments.items()}
        swapped = self(flat["input_ids"], annotation, generator, {**given, CHUNK: flat[CHUNK]}, chosen)
        width = explained.shape[2]
        arguments = {name: x.unflatten(1, (-1, width)) for name, x in swapped.arguments.items() if name != CHUNK}
        return swapped._replace(explained=swapped.explained.unflatten(1, (-1, width)), arguments=arguments)

    def _padding(self, cues: Sequence[Cue]) -> Padding:
        """Return what fills up texts of which all are equally long."""
        languages = [self.language, *(getattr(cue, "language", None) for cue in cues)]
        return next((each.form.padding for each in languages if each is not None), Padding())


def _swapped(
    after: dict[str, Tensor], which: Tensor, annotation: Tensor, explained: Tensor, arguments: Mapping[str, Any]
) -> Swapped:
    """Return a swapped batch by the names of the step: the explained input may be one of its arguments."""
    moved = after.pop("rationale", annotation)
    for name in ("mask", SPECIAL):
        after.pop(name, None)
    entries = [f"{ARGUMENT}{name}" for name, x in arguments.items() if x is explained]
    now = after.pop("input_ids" if "input_ids" in after else "image")
    now = next((after.pop(entry) for entry in entries if entry in after), now)
    return Swapped(now, which, moved, {name.removeprefix(ARGUMENT): x for name, x in after.items()})


def _as_two(own: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return two samples as a batch: rows are padded to the same number, and an entry says which are theirs."""
    two: dict[str, Tensor] = {}
    for name, x in own.items():
        given = other.get(name, x.new_zeros(0)).to(x.device)
        if given.ndim != x.ndim or given.shape[2:] != x.shape[2:]:
            raise ValueError(
                f"a swap is between samples of one size, and of {name.rstrip(':')!r} they are "
                f"{list(x.shape[1:])} and {list(given.shape[1:])}"
            )
        fill = IGNORED if name == _ANNOTATION else 0
        two[name] = torch.cat([x, given]) if x.ndim == 1 else pad_sequence([x[0], given[0]], True, fill)
    counts = [each[_EXPLAINED].shape[1] for each in (own, other)]
    if counts[0] != counts[1] and own[_EXPLAINED].is_floating_point():
        rows = torch.arange(max(counts), device=own[_EXPLAINED].device)
        two[ROWS] = rows < rows.new_tensor(counts)[:, None]
    return two


def _others(cues: Sequence[Cue], arguments: Mapping[str, Any], explained: Tensor) -> dict[str, Any]:
    """Return the entries of other inputs that are swapped."""
    entries = [name for cue in cues if isinstance(cue, WholeInput) for name in cue.entries]
    given = {f"{ARGUMENT}{name}": x for name, x in arguments.items() if isinstance(x, Tensor) and x.ndim}
    missing = [name.removeprefix(ARGUMENT) for name in entries if name not in given]
    if missing:
        raise ValueError(
            f"swap= names the input {missing[0]!r}, and beside the explained one the step gives the model "
            f"{sorted(name.removeprefix(ARGUMENT) for name, x in given.items() if x is not explained)}"
        )
    return {name: given[name] for name in entries}


def _images(explained: Tensor, mask: Shaped[Tensor, " batch *places"]) -> dict[str, Any]:
    """Return the images, or the volumes, of a step as a batch."""
    if explained.ndim not in (4, 5) or not explained.is_floating_point():
        raise ValueError(
            "a swap takes images [batch, channels, height, width], and the model is given "
            f"{tuple(explained.shape)} of {explained.dtype}"
        )
    if mask.shape != image_of({"image": explained})[1][:, 0].shape:
        raise ValueError(
            f"mask {tuple(mask.shape)} must be [batch, {'slices, ' * (explained.ndim - 4)}height, width] of the "
            f"images, which are {tuple(explained.shape)}"
        )
    return {"image": explained, "mask": mask}


def _rows(explained: Tensor, annotation: Shaped[Tensor, "batch rows"], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows of a step as a batch: what the model is given for each row, and the annotation."""
    beside = {
        f"{ARGUMENT}{name}": x
        for name, x in arguments.items()
        if isinstance(x, Tensor) and x is not explained and x.shape[:2] == explained.shape[:2] and name not in LABELS
    }
    own = {ROWS: beside.pop(f"{ARGUMENT}{ROWS}")} if ROWS in arguments else {}
    return {"image": explained, **beside, "rationale": annotation, **own}


def _texts(
    explained: Tensor, annotation: Shaped[Tensor, "batch tokens"], arguments: Mapping[str, Any], full: bool
) -> dict[str, Any]:
    """Return the texts of a step as a batch: what the model is given for each token, and the annotation."""
    if full and arguments.get("attention_mask") is None:
        arguments = {**arguments, "attention_mask": torch.ones_like(explained)}
    mask = arguments.get("attention_mask")
    if explained.shape != annotation.shape or explained.is_floating_point() or not isinstance(mask, Tensor):
        raise ValueError(
            "a swap rewrites texts by their token ids: the step has to give the model input_ids and an attention_mask "
            f"{tuple(annotation.shape)}, not {tuple(explained.shape)} of {explained.dtype}"
        )
    others = {
        name: x
        for name, x in arguments.items()
        if isinstance(x, Tensor) and x is not explained and name not in LABELS and x.ndim
    }
    of_tokens = {name: x for name, x in others.items() if x.shape[:2] == explained.shape}
    lengths = (mask != 0).flatten(1).sum(1)
    fixed = [
        name
        for name, x in others.items()
        if name not in of_tokens
        and (x.shape[1:2] == explained.shape[1:] or (x.shape == lengths.shape and torch.equal(x, lengths.to(x))))
    ]
    if fixed or "attention_mask" not in of_tokens:
        raise ValueError(
            f"a swap moves the tokens of texts, and {', '.join(fixed) or 'attention_mask'} goes by their places: leave "
            "it out, or give it as [batch, tokens]"
        )
    return {
        "input_ids": explained,
        **{name if name in TEXTS else f"{ARGUMENT}{name}": x for name, x in of_tokens.items()},
        **({CHUNK: others[CHUNK]} if CHUNK in others else {}),
        "rationale": annotation,
    }
