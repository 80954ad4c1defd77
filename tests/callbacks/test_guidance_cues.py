"""Training on swaps of what an inspection names, in every loop: a step is that of the exchanged batch, and it mends."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from guided import annotated_data, descended, plain_step
from guided_loops import LOOPS
from inspected import images
from setting import vit
from test_guidance_gradients import EXACT, assert_close
from test_guidance_text_swaps import LANGUAGE, SEED, TOKENIZER, bert, texts
from test_guidance_text_swaps import LOOPS as TEXT_LOOPS
from torch import nn

import lrptrain
from lrptrain.callbacks import RelevanceGuidance
from lrptrain.cues.cue import Cue
from lrptrain.cues.family import Family
from lrptrain.cues.length import Length
from lrptrain.cues.measure import Effect
from lrptrain.cues.placement import Placement
from lrptrain.cues.places import background, places
from lrptrain.cues.search import Judged
from lrptrain.cues.segment import ends_of
from lrptrain.cues.sources import random_sources
from lrptrain.cues.surroundings import Surroundings
from lrptrain.cues.texts import Language
from lrptrain.cues.visual.colour import Colour
from lrptrain.cues.visual.light import Light
from lrptrain.cues.visual.spectrum import Spectrum
from lrptrain.cues.whole_input import WholeInput
from lrptrain.guidance.swap import Swap
from lrptrain.guidance.swap_names import NAMES, OF_IMAGES, OF_TEXTS, Medium

BORDER = places("unreviewed")[0]
COLOURS = Colour.of("image", "unreviewed")
LIGHT = Light.of("image", "unreviewed")
SPECTRUM = Spectrum.of("image", "unreviewed")


def judged(cue, verdict="relies"):
    return Judged(cue, verdict, Effect(0.5, 0.4, 0.6, 32), torch.ones(2).numpy(), torch.arange(2).numpy())


def step_by_hand(cues, columns):
    """The weights after one step of plain PyTorch on images that were given each cue of a random other one."""
    generator = torch.Generator().manual_seed(SEED)
    torch.rand(len(columns["label"]), generator=generator)
    batch = {"image": columns["image"], "mask": columns["mask"]}
    changed: dict[str, Any] = dict(batch)
    for cue in cues:
        sources = random_sources(torch.ones(len(columns["label"]), dtype=torch.bool), generator)
        changed = cue.exchange(changed, {name: x[sources] for name, x in batch.items()})
    return plain_step({**columns, **changed})


@dataclass(frozen=True)
class Finding:
    """What a monitor says of a cue; read from a record, without the cue."""

    name: str
    cue: Cue | None
    verdict: str = "relies"
    role: str = "shortcut"

    @property
    def is_fault(self) -> bool:
        return self.role == "shortcut"


FAULT = Surroundings()
SWAPS: dict[str, tuple[Any, list[Cue]]] = {
    "a place": (BORDER, [BORDER]),
    "a name": ("border", [BORDER]),
    "what needs no annotation": ("background", [background()]),
    "outside by default": ("outside", [FAULT]),
    "an inspection's fault": (judged(FAULT), [FAULT]),
    "its faults": ([judged(FAULT), judged(BORDER), judged(COLOURS, "inconclusive")], [FAULT]),
    "a monitor's finding": ([Finding("all outside", FAULT), Finding("colour", COLOURS, role="unreviewed")], [FAULT]),
    "a person's judgement": (Finding("the border", BORDER), [BORDER]),
    "two": ([COLOURS, "border"], [COLOURS, BORDER]),
    "beside a fault": (["outside", "spectrum", Finding("light", LIGHT)], [SPECTRUM, LIGHT, FAULT]),
}


@pytest.mark.parametrize("swap", SWAPS)
def test_a_step_is_that_of_the_exchanged_batch(swap, tmp_path):
    columns = annotated_data()
    given, cues = SWAPS[swap]
    options = {"loss": "swap", "swap": given, "on_error": "raise"}
    trained, guided = LOOPS["a step"](vit().double(), columns, options, 6, 1, tmp_path)
    # Looks come first: what is pasted afterwards has none of the sample's own.
    assert_close(trained, step_by_hand(cues, columns), EXACT)
    assert guided.values["guidance/swapped"] == guided.values["guidance/samples"] == 6


def test_a_single_finding_that_is_no_fault_is_swapped_and_warned_of():
    with pytest.warns(UserWarning, match="takes away the colours of the image"):
        guidance = lrptrain.Guidance("swap", swap=[judged(COLOURS)])
    assert guidance.state.objective.swap.cues("images") == [COLOURS]


def test_what_is_swapped_is_said_once():
    said: list[str] = []
    guidance = lrptrain.Guidance("swap", swap=["outside", COLOURS])
    guidance.state.messages.send = said.append
    net: nn.Module = vit().double()
    for _ in range(2):
        with guidance.step(net, annotated_data()) as step:
            step.guided(F.cross_entropy(net(annotated_data()["image"]), annotated_data()["label"]))
    assert said == ["Guidance: samples swap 'outside', the colours of the image"]


def test_a_step_on_texts_is_that_of_those_rewritten_by_several_cues(tmp_path):
    cues = [*ends_of("unreviewed", LANGUAGE), Family.of("links, mentions, tags and dates", "unreviewed", LANGUAGE)]
    net = bert()
    TEXT_LOOPS["a step"](net, {"loss": "swap", "swap": cues, "on_error": "raise"}, tmp_path)
    batch, generator = texts(), torch.Generator().manual_seed(SEED)
    torch.rand(6, generator=generator)
    labels = batch.pop("labels")
    changed: dict[str, Any] = dict(batch)
    for cue in cues:
        order = random_sources(torch.ones(6, dtype=torch.bool), generator)
        sources = {name: x[order] for name, x in batch.items()}
        more = changed["input_ids"].shape[1] - batch["input_ids"].shape[1]
        changed = cue.exchange(changed, {name: F.pad(x, (0, more)) for name, x in sources.items()})
    assert changed["input_ids"].tolist() != batch["input_ids"].tolist()
    other = bert()
    wanted = descended(other, F.cross_entropy(other(**changed).logits, labels))
    assert_close(dict(net.named_parameters()), wanted, EXACT)


def trained(swap):
    """A model of images whose class is told by a corner, and by the square, too."""
    columns = images("both", 1, 256)
    net = vit(num_classes=3)
    optimizer = torch.optim.AdamW(net.parameters(), 3e-3)
    guidance = None if swap is None else lrptrain.Guidance("swap", swap=swap, optimizer=optimizer)
    for step in range(150):
        rows = torch.arange(32) + 32 * (step % 8)
        batch = {name: x[rows] for name, x in columns.items()}
        with nullcontext() if guidance is None else guidance.step(net, batch) as guided:
            loss = F.cross_entropy(net(batch["image"]), batch["label"])
            loss = loss if guided is None else guided.guided(loss)
        loss.backward()
        optimizer.step(), optimizer.zero_grad()
    return net.eval()


def test_what_an_inspection_names_is_mended_by_what_it_names():
    plain, shown, without = trained(None), [images("both")], images("object", 2, 128)

    def accuracy(net):
        return float((net(without["image"]).argmax(1) == without["label"]).float().mean())

    faults = lrptrain.inspect(plain, shown).faults
    assert faults[0].cue.name == "the top left corner"
    mended = trained(faults[:1])
    assert accuracy(mended) > accuracy(plain) + 0.3
    again = {each.cue.name: each for each in lrptrain.inspect(mended, shown).judged}
    assert all("corner" not in name or each.verdict != "relies" for name, each in again.items())


REFUSED: list[tuple[Any, str]] = [
    ([], "names nothing"),
    (
        "colours",
        "unknown swap .colours.; known are outside, colour, spectrum, light, grain, framing, border, background, len",
    ),
    ("surroundings", "is now swap='outside'"),
    (3, "swap takes names .*, cues and findings such as report.faults, not int"),
    ([BORDER, "numbers"], "of images and of texts"),
    ([judged(COLOURS), judged(BORDER)], "none of these 2 findings is a fault: pass one"),
    ([judged(FAULT, "inconclusive")], r"relies on none of these 1 findings: .* swap=findings\[0\].cue"),
    ([Finding("all outside", None)], "hold no cue: take them from an inspection"),
]


@pytest.mark.parametrize(("swap", "message"), REFUSED)
def test_what_cannot_be_swapped_is_refused_at_once(swap, message):
    with pytest.raises(ValueError, match=message):
        RelevanceGuidance("swap", swap=swap)


def test_what_is_swapped_means_nothing_to_a_loss_on_maps():
    with pytest.raises(ValueError, match="energy swaps nothing: leave it out"):
        RelevanceGuidance("energy", swap=COLOURS)
    with pytest.raises(ValueError, match="moves what is annotated, so that no mask fits"):
        RelevanceGuidance({"swap": 1.0, "energy": 1.0}, swap=Placement.of("location"))


def test_every_family_of_words_and_every_name_is_a_cue():
    language = Language(TOKENIZER.convert_ids_to_tokens)
    for name in NAMES:
        medium: Medium = "texts" if name in OF_TEXTS and name not in OF_IMAGES else "images"
        swap = Swap([name])
        swap.language = language
        assert len(swap.cues(medium)) == (name != "findings")


@pytest.mark.parametrize(
    ("name", "values"), [("positions", torch.arange(7)[None]), ("lengths", (texts()["attention_mask"]).sum(1))]
)
def test_what_counts_the_tokens_of_texts_is_refused(name, values):
    batch = texts()
    batch["attention_mask"] = batch["attention_mask"][:, :7]
    arguments = {"attention_mask": batch["attention_mask"], name: values.clamp(max=7) if values.ndim == 1 else values}
    with pytest.raises(ValueError, match=f"moves the tokens of texts, and {name} goes by their places"):
        Swap(["length"])(batch["input_ids"][:, :7], torch.ones(6, 7), arguments=arguments)


@pytest.mark.parametrize(
    "by_annotation",
    [Surroundings(), Placement.of("location"), Colour.of("evidence", "unreviewed")],
    ids=lambda cue: cue.name,
)
def test_what_goes_by_annotations_needs_them_and_what_is_open_none(by_annotation):
    fault, is_open = (lrptrain.Guidance("swap", swap=cue, on_error="raise") for cue in (by_annotation, BORDER))
    batch = {name: x for name, x in annotated_data().items() if name != "mask"}
    net: nn.Module = vit().double()
    with is_open.step(net, batch) as step:
        step.guided(F.cross_entropy(net(batch["image"]), batch["label"]))
    with pytest.raises(ValueError, match="annotation"), fault.step(net, batch) as step:
        step.guided(F.cross_entropy(net(batch["image"]), batch["label"]))


def test_numbers_beside_texts_are_swapped_alone_and_together_with_the_texts():
    batch = texts()
    numbers = torch.arange(6.0)[:, None]
    arguments = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "numbers": numbers}
    annotation = torch.where(batch["attention_mask"] == 1, 0, 255)
    alone, both = (
        Swap(cues)(batch["input_ids"], annotation, torch.Generator().manual_seed(0), arguments)
        for cues in (
            [WholeInput.of("numbers")],
            [WholeInput.of("numbers"), Length("the length", "unreviewed", LANGUAGE)],
        )
    )
    for swapped in (alone, both):
        assert sorted(swapped.arguments["numbers"].flatten().tolist()) == [*range(6)]
        assert not (swapped.arguments["numbers"] == numbers).any(), "each has those of another one"
    assert torch.equal(alone.explained, batch["input_ids"])
    assert alone.arguments.keys() == {"numbers"}
    assert not torch.equal(both.explained, batch["input_ids"])
    assert both.arguments.keys() == {"numbers", "attention_mask"}
