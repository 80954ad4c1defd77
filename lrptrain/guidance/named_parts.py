"""Swaps of what a monitor has confirmed: a place, words, a property; no annotation says what is evidence.

All that no finding names counts as evidence then. So a batch that nobody has annotated can be guided as an annotated
one is: what the findings name is what lies outside. Where images are annotated, what lies outside of the annotation can
be swapped beside: a mark that is drawn on the object lies inside.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from lrptrain.batch import IMAGES
from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.content import content_tokens
from lrptrain.batch.parts import PROPERTIES, TEXT_PROPERTIES, InputPart
from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.guidance.swaps import FINDINGS, OUTSIDE, SWAPS, Swap, Swapped, lay_around
from lrptrain.guidance.text_swaps import TextReader
from lrptrain.intervention.parts import Confirmed, check_medium, where_it_lies
from lrptrain.intervention.swap import places_in_order, random_donors, random_places, swap_places

PATIENCE = 3
"""Evaluations. A model that has lost a shortcut may be at chance for one or two, before it learns what is harder."""


class NamesPart(Protocol):
    """A finding, as far as guidance goes by it; see `lrptrain.findings.Finding`."""

    @property
    def state(self) -> str:
        """What an intervention says of it, such as "confirmed"."""
        ...

    @property
    def is_fault(self) -> bool:
        """Whether it is a fault for sure, and not for a person to judge."""
        ...

    @property
    def judged(self) -> bool:
        """Whether a person has judged that it is one."""
        ...

    @property
    def title(self) -> str:
        """What it says, in a few words."""
        ...

    @property
    def part(self) -> InputPart | None:
        """What it names; None if that is nothing that all samples have."""
        ...

    @property
    def also(self) -> tuple[Any, ...]:
        """The further findings that are folded into it."""
        ...


class NamedParts:
    """What findings name, which may become more while a model is trained.

    Args:
        parts: What is named from the beginning.
        outside: Whether what lies outside of the annotations of images is swapped, too.

    Attributes:
        parts: What is named by now, none within another.
        outside: Whether what lies outside of the annotations of images is swapped, too.
        reader: What reads texts that are rewritten.
    """

    def __init__(self, parts: Iterable[InputPart] = (), outside: bool = False) -> None:
        self.parts: tuple[InputPart, ...] = ()
        self.outside = outside
        self.reader = TextReader()
        self.add(parts)

    def add(self, parts: Iterable[InputPart]) -> list[InputPart]:
        """Add what is not among the parts yet, and return that: what was swapped once is swapped to the end.

        A model that is no longer trained on swaps would take up again what it has just lost.
        """
        before = len(self.parts)
        for part in parts:
            if not any(part.lies_within(each) for each in self.parts):
                self.parts = (*self.parts, part)
        return list(self.parts[before:])

    @property
    def rewrites(self) -> bool:
        """Whether texts are rewritten, so that their tokens move."""
        return any(part.kind in TEXT_PROPERTIES for part in self.parts)

    def annotated(self, batch: Mapping[str, Any], rehearses: bool = False) -> dict[str, Any]:
        """Return a batch with an annotation by which all is evidence but what is named; without parts, with none.

        Where what lies outside of the annotations is swapped, too, the batch keeps its own.

        Args:
            batch: A batch in the contract's form.
            rehearses: Whether a batch without parts is annotated, too, as evidence throughout: a step that could not be
                guided once there are parts is refused before the first one then.

        Raises:
            ValueError: If a part is one of texts and the batch has images, or the other way round; or if the batch has
                texts, and what lies outside of the annotations is swapped.
        """
        if self.outside:
            check_medium(self.parts, batch)
            if not any(name in batch for name in IMAGES):
                raise ValueError(
                    f"swap={OUTSIDE!r} takes all words of texts that are not marked, those that findings name among "
                    "them: leave the findings out"
                )
            return dict(batch)
        batch = {name: values for name, values in batch.items() if name not in ANNOTATIONS}
        if not self.parts and not rehearses:
            return batch
        check_medium(self.parts, batch)
        named = [where_it_lies(part, batch) for part in self.parts if not part.is_property]
        image = next((batch[name] for name in IMAGES if name in batch), None)
        if image is not None:
            mask = torch.ones((len(image), *image.shape[-2:]), dtype=torch.uint8, device=image.device)
            return {**batch, "mask": _without(mask, named)}
        # Special tokens and padding are no evidence, and nothing that could be swapped.
        rationale = torch.where(content_tokens(batch), 1, IGNORED).to(torch.uint8)
        return {**batch, "rationale": _without(rationale, named)}

    def swap(
        self,
        explained: Tensor,
        annotation: Shaped[Tensor, " batch *area"],
        margin: int | None,
        generator: torch.Generator | None,
        without_evidence: bool,
        donors: Int[Tensor, " batch"] | None,
        itself: bool = True,
        arguments: Mapping[str, Any] = MappingProxyType({}),
    ) -> Swapped:
        """Give every sample what another one has of all that is named; see `Swap`.

        A sample without takes it from one with it, too: what stands in one class alone would tell it by its absence.
        """
        if explained.ndim != 4:
            return self._swap_in_texts(explained, annotation, generator, donors, arguments)
        named = self._named_in_annotated(explained, annotation) if self.outside else annotation
        changed, rows = self._swap_properties(explained, named, generator, without_evidence, donors)
        if self.outside:
            surrounded = SWAPS[OUTSIDE](explained, annotation, margin, generator, without_evidence, donors, itself)
            elsewhere = surrounded.rows.to(rows.device)
            changed = lay_around(changed, surrounded.explained, elsewhere, annotation, margin)
            rows = rows | elsewhere
        if all(part.is_property for part in self.parts):
            return Swapped(changed, rows)
        # Places come from samples as they were: one in other colours could bring an image its own tint back.
        moved, has_moved = _swap_pixels(changed, explained, named, generator, donors)
        return Swapped(moved, rows | has_moved)

    def _swap_properties(
        self,
        images: Tensor,
        mask: Shaped[Tensor, "batch height width"],
        generator: torch.Generator | None,
        without_evidence: bool,
        donors: Int[Tensor, " batch"] | None,
    ) -> tuple[Tensor, Bool[Tensor, " batch"]]:
        """Give every image the properties of others that are named; also return which have any."""
        changed = images
        rows = torch.zeros(len(images), dtype=torch.bool, device=images.device)
        for kind in dict.fromkeys(part.kind for part in self.parts if part.kind in PROPERTIES):
            swapped = SWAPS[kind](changed, mask, None, generator, without_evidence, donors, itself=True)
            changed = swapped.explained
            rows |= swapped.rows.to(rows.device)
        return changed, rows

    def share_of_evidence(self, images: Tensor, annotation: Shaped[Tensor, "batch height width"]) -> float:
        """Return how much of what is annotated as evidence is named, in [0, 1]; 0 without any evidence."""
        evidence = annotation == 1
        named = self._named_in_annotated(images, annotation).to(annotation.device) == 0
        return float((named & evidence).sum() / evidence.sum().clamp(min=1))

    def _named_in_annotated(
        self, images: Tensor, annotation: Shaped[Tensor, "batch height width"]
    ) -> Shaped[Tensor, "batch height width"]:
        """Return the annotation by which all is evidence but what is named, of the images that are annotated."""
        batch = {"image": images}
        mask = torch.ones(annotation.shape, dtype=torch.uint8, device=images.device)
        named = [where_it_lies(part, batch) for part in self.parts if not part.is_property]
        unusable = (annotation == IGNORED).flatten(1).all(1).to(images.device)
        return _without(mask, named).masked_fill(unusable[:, None, None], IGNORED)

    def _swap_in_texts(
        self,
        texts: Tensor,
        rationale: Shaped[Tensor, "batch tokens"],
        generator: torch.Generator | None,
        donors: Int[Tensor, " batch"] | None,
        arguments: Mapping[str, Any],
    ) -> Swapped:
        properties = [kind for kind in TEXT_PROPERTIES if any(part.kind == kind for part in self.parts)]
        changed = texts
        rows = torch.zeros(len(texts), dtype=torch.bool, device=texts.device)
        if any(not part.is_property for part in self.parts):
            changed, rows = _swap_words(texts, rationale, generator, donors)
        if not properties:
            return Swapped(changed, rows)
        # Words first: the rationale says where they stand as long as the texts are not rewritten.
        usable = (rationale != IGNORED).any(1)
        # Without the ids as they were, which go by the places of their tokens as these do.
        others = {name: values for name, values in arguments.items() if values is not texts}
        rewritten = self.reader.rewritten(properties, changed, others, usable, generator, donors)
        return rewritten._replace(rows=rewritten.rows | rows)


class FollowedParts(NamedParts):
    """What the monitor of the same run confirms, from then on: but for what the model cannot do without.

    A monitor can be wrong: a sign that looks the same wherever it stands may be what the images are about. A model that
    is trained on swaps of that learns nothing more. So where its answers are no better than chance for `PATIENCE`
    evaluations, what came to be swapped last is swapped no more.

    Attributes:
        dropped: What is swapped no more.
    """

    dropped: tuple[InputPart, ...]
    _additions: list[list[InputPart]]
    _evaluations: int
    _at_chance: int

    def __init__(self) -> None:
        super().__init__()
        self.start_over()

    def start_over(self) -> None:
        """Forget an earlier training."""
        self.parts = ()
        self.dropped = ()
        self._additions = []
        self._evaluations = 0
        self._at_chance = 0

    def follow(self, confirmed: Confirmed) -> str:
        """Take what a monitor has confirmed by now into account, and return what is to be said of it; "" if nothing is.

        Args:
            confirmed: What it noted after its last evaluation.
        """
        if confirmed.evaluations == self._evaluations:
            return ""
        self._evaluations = confirmed.evaluations
        self._at_chance = self._at_chance + 1 if confirmed.is_at_chance else 0
        if self._additions and self._at_chance >= PATIENCE:
            self._at_chance = 0
            last = self._additions.pop()
            self.dropped = (*self.dropped, *last)
            self.parts = tuple(part for part in self.parts if part not in last)
            return (
                f"without {names_of(last)} the answers were no better than chance in {PATIENCE} evaluations: it may be "
                "what the samples are about, and is swapped no more. If it is a shortcut, train anew with "
                "swap=monitor.findings"
            )
        new = self.add(part for part in confirmed.parts if not self._is_dropped(part))
        if not new:
            return ""
        self._additions.append(new)
        self._at_chance = 0  # what came before says nothing of these
        return f"from here on, samples swap what the monitor has confirmed: {names_of(new)}"

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues."""
        return {
            "parts": [part.to_dict() for part in self.parts],
            "dropped": [part.to_dict() for part in self.dropped],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.dropped = tuple(InputPart.from_dict(values) for values in state["dropped"])
        restored = self.add(InputPart.from_dict(values) for values in state["parts"])
        self._additions = [restored] if restored else []

    def _is_dropped(self, part: InputPart) -> bool:
        """Return whether a part is one of those that were dropped; of marks each picture is another one."""
        return any(part.kind == each.kind and (part.kind == "mark" or part.lies_within(each)) for each in self.dropped)


def swap_of(parts: NamedParts) -> Swap:
    """Return the swap of what findings name."""
    return Swap(FINDINGS, parts.swap, needs_annotation=True, rewrites=parts.rewrites)


def names_of(parts: Iterable[InputPart]) -> str:
    """Return what people call some parts, in one line."""
    return ", ".join(dict.fromkeys(part.name for part in parts))


def parts_of(findings: NamesPart | Iterable[NamesPart]) -> list[InputPart]:
    """Return what confirmed findings name.

    Args:
        findings: Findings of a monitor, of which those count that are faults for sure or were judged to be; or a single
            one in no list, which a person has judged.

    Raises:
        ValueError: If these are none, or if nothing that they have confirmed can be swapped.
    """
    is_judged = not isinstance(findings, Iterable)
    several = list(findings) if isinstance(findings, Iterable) else [findings]
    strangers = [each for each in several if not all(hasattr(each, name) for name in ("state", "part", "also"))]
    if strangers:
        raise ValueError(
            f"swap takes one of {', '.join((*SWAPS, *TEXT_PROPERTIES))}, {FINDINGS!r}, or findings such as "
            f"monitor.findings, not {type(strangers[0]).__name__}"
        )
    every: list[NamesPart] = [each for finding in several for each in (finding, *finding.also)]
    confirmed = [each for each in every if each.state == "confirmed"]
    if not confirmed:
        raise ValueError(f"none of these {len(several)} findings is confirmed: there is nothing to swap")
    chosen = confirmed if is_judged else [each for each in confirmed if _is_sure(each)]
    parts = [each.part for each in chosen if each.part is not None]
    if parts:
        return parts
    titles = "; ".join(dict.fromkeys(each.title for each in confirmed))
    if chosen:
        raise ValueError(f"no swap takes away what was confirmed ({titles}): each finding says what mends it")
    raise ValueError(
        f"what was confirmed is for a person to judge ({titles}): to swap it, hand in that finding as a fault, as in "
        "swap=[monitor.findings[0].as_fault()]"
    )


def _is_sure(finding: NamesPart) -> bool:
    """Return whether nobody has to judge first whether what a finding names is what the samples are about."""
    may_be_the_object = finding.part is not None and finding.part.may_be_the_object
    return finding.judged or (finding.is_fault and not may_be_the_object)


def _without(annotation: Tensor, named: Sequence[Bool[Tensor, " batch *area"]]) -> Tensor:
    """Return an annotation by which nothing that is named is evidence."""
    for inside in named:
        annotation = annotation.masked_fill(inside, 0)
    return annotation


def _swap_pixels(
    images: Tensor,
    originals: Tensor,
    mask: Shaped[Tensor, "batch height width"],
    generator: torch.Generator | None,
    donors: Int[Tensor, " batch"] | None,
) -> tuple[Tensor, Bool[Tensor, " batch"]]:
    """Replace what is named, in an image or in its donor, by what the donor has there.

    Raises:
        ValueError: If the sizes differ.
    """
    if mask.shape != (images.shape[0], *images.shape[2:]):
        raise ValueError(
            f"mask {tuple(mask.shape)} must be [batch, height, width] of the images, which are {tuple(images.shape)}"
        )
    mask = mask.to(images.device)
    usable = (mask != IGNORED).flatten(1).any(1)
    donor = random_donors(usable, generator) if donors is None else donors.to(images.device)
    named = mask == 0
    region = (named | named[donor]) & (usable & (usable.sum() > 1))[:, None, None]
    return torch.where(region[:, None], originals[donor], images), region.flatten(1).any(1)


def _swap_words(
    texts: Tensor,
    rationale: Shaped[Tensor, "batch tokens"],
    generator: torch.Generator | None,
    donors: Int[Tensor, " batch"] | None,
) -> tuple[Tensor, Bool[Tensor, " batch"]]:
    """Replace the named tokens of a text by those of its donor; lengths stay.

    A donor without any gives other tokens in their place. A text without any takes those of its donor where they stand
    there, or, if it has no such place, at a random one.

    Raises:
        ValueError: If the shapes differ.
    """
    if rationale.shape != texts.shape[:2]:
        raise ValueError(f"rationale {tuple(rationale.shape)} must be [batch, tokens] of {tuple(texts.shape)}")
    rationale = rationale.to(texts.device)
    usable = rationale != IGNORED
    has_text = usable.any(1)
    donor = random_donors(has_text, generator) if donors is None else donors.to(texts.device)
    named = rationale == 0
    gives = named[donor]
    has_named = named.any(1, keepdim=True)
    available = torch.where(gives.any(1, keepdim=True), gives, usable[donor])
    there = gives & usable
    anywhere = _one_of(usable, generator) & gives.any(1, keepdim=True)
    taken_up = torch.where(there.any(1, keepdim=True), there, anywhere)
    takes = (has_text & (has_text.sum() > 1))[:, None]
    region = torch.where(has_named, named, taken_up) & takes
    keys = torch.arange(texts.shape[1], device=texts.device).expand(usable.shape).float()
    # In their order, as the tokens of a word belong together; of a donor without any, random ones.
    named_places = places_in_order(region, gives, keys)
    others = random_places(torch.where(takes, available, True), generator).to(texts.device)
    places = torch.where(gives.any(1, keepdim=True), named_places, others)
    return swap_places(texts, region, texts[donor], places), region.any(1)


def _one_of(usable: Bool[Tensor, "batch tokens"], generator: torch.Generator | None) -> Bool[Tensor, "batch tokens"]:
    """Return a random usable token of every text; none of a text without any."""
    keys = torch.rand(usable.shape, generator=generator).to(usable.device)
    first = torch.where(usable, keys, -1.0).argmax(1, keepdim=True)
    return torch.zeros_like(usable).scatter(1, first, True) & usable
