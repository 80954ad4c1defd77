"""Training on swaps of what an inspection names, in every loop: a step is that of the exchanged batch, and it mends."""

from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from guided import RATE, annotated_data, explicit
from guided_loops import LOOPS
from inspected import images
from setting import vit
from test_guidance_gradients import EXACT, assert_close
from test_guidance_text_swaps import LOOPS as TEXT_LOOPS
from test_guidance_text_swaps import SEED, TOKENIZER, bert, texts
from torch import nn

import lrptrain
from lrptrain.callbacks import RelevanceGuidance
from lrptrain.cues.another_input import AnotherInput
from lrptrain.cues.colour import Colour
from lrptrain.cues.donors import random_donors
from lrptrain.cues.family import Family
from lrptrain.cues.length import Length
from lrptrain.cues.measure import Effect
from lrptrain.cues.placement import Placement
from lrptrain.cues.places import places
from lrptrain.cues.search import Judged
from lrptrain.cues.segment import ends_of
from lrptrain.cues.surroundings import Surroundings
from lrptrain.cues.text_form import text_form
from lrptrain.cues.texts import Language

BORDER = places("open")[0]
COLOURS = Colour.of("image", "open")


def judged(cue):
    return Judged(cue, "relies", Effect(0.5, 0.4, 0.6, 32), torch.ones(2).numpy(), torch.arange(2).numpy())


def step_by_hand(cues, columns):
    """The weights after one step of plain PyTorch on images that were given each cue of a random other one."""
    generator = torch.Generator().manual_seed(SEED)
    batch = {"image": columns["image"], "mask": columns["mask"]}
    changed: dict[str, Any] = dict(batch)
    for cue in cues:
        donors = random_donors(torch.ones(len(columns["label"]), dtype=torch.bool), generator)
        changed = cue.exchange(changed, {name: x[donors] for name, x in batch.items()})
    net = explicit(vit().double())
    F.cross_entropy(net(changed["image"]), columns["label"]).backward()
    return {name: x.detach() - RATE * (0 if x.grad is None else x.grad) for name, x in net.named_parameters()}


@pytest.mark.parametrize("loop", [name for name in LOOPS if name != "a line"])
@pytest.mark.parametrize("cues", [[BORDER], [COLOURS, BORDER], [Surroundings()]], ids=["a place", "two", "outside"])
def test_a_step_is_that_of_the_exchanged_batch(loop, cues, tmp_path):
    columns = annotated_data()
    options = {"loss": "swap", "swap": [judged(cue) for cue in cues], "on_error": "raise"}
    trained, guided = LOOPS[loop](vit().double(), columns, options, 6, 1, tmp_path)
    assert_close(trained, step_by_hand(cues, columns), EXACT)
    values = getattr(guided, "values", None) or guided.guidance.values
    assert values["guidance/swapped"] == values["guidance/samples"] == 6


LANGUAGE = Language(TOKENIZER.convert_ids_to_tokens, text_form(TOKENIZER, bert()))
OF_TEXTS = [
    [Family.of("punctuation", "open", LANGUAGE)],
    [Length("the length", "open", LANGUAGE)],
    [*ends_of("open", LANGUAGE), Family.of("links, mentions, tags and dates", "open", LANGUAGE)],
]


@pytest.mark.parametrize("loop", TEXT_LOOPS)
@pytest.mark.parametrize("cues", OF_TEXTS, ids=["punctuation", "the length", "three"])
def test_a_step_on_texts_is_that_of_the_rewritten_ones(loop, cues, tmp_path):
    net = bert()
    TEXT_LOOPS[loop](net, {"loss": "swap", "swap": cues, "on_error": "raise"}, tmp_path)
    batch, generator = texts(), torch.Generator().manual_seed(SEED)
    labels = batch.pop("labels")
    changed: dict[str, Any] = dict(batch)
    for cue in cues:
        order = random_donors(torch.ones(6, dtype=torch.bool), generator)
        donors = {name: x[order] for name, x in batch.items()}
        more = changed["input_ids"].shape[1] - batch["input_ids"].shape[1]
        changed = cue.exchange(changed, {name: F.pad(x, (0, more)) for name, x in donors.items()})
    assert changed["input_ids"].tolist() != batch["input_ids"].tolist()
    other = bert()
    F.cross_entropy(other(**changed).logits, labels).backward()
    wanted = {name: x.detach() - RATE * (0 if x.grad is None else x.grad) for name, x in other.named_parameters()}
    assert_close(dict(net.named_parameters()), wanted, EXACT)


@pytest.mark.parametrize("annotated", [True, False])
def test_what_an_inspection_names_is_mended_by_what_it_names(annotated):
    """Whether the class is told by a corner alone, or by the square, too."""
    learned = images("both", 1, 256)
    columns = learned if annotated else {name: x for name, x in learned.items() if name != "mask"}
    shown = [{name: x for name, x in images("both").items() if annotated or name != "mask"}]
    without = images("object", 2, 128)

    def trained(swap):
        net = vit(num_classes=3)
        optimizer = torch.optim.AdamW(net.parameters(), 3e-3)
        guidance = None if swap is None else lrptrain.Guidance("swap", swap=swap, optimizer=optimizer)
        for step in range(150):
            rows = torch.arange(32) + 32 * (step % 8)
            batch = {name: x[rows] for name, x in columns.items()}
            if guidance is None:
                loss = F.cross_entropy(net(batch["image"]), batch["label"])
            else:
                with guidance.step(net, batch) as guided:
                    loss = guided.guided(F.cross_entropy(net(batch["image"]), batch["label"]))
            loss.backward()
            optimizer.step(), optimizer.zero_grad()
        return net.eval()

    def accuracy(net):
        return float((net(without["image"]).argmax(1) == without["label"]).float().mean())

    plain = trained(None)
    report = lrptrain.inspect(plain, shown)
    named = report.faults if annotated else [each for each in report.reads if each.cue.kind == "place"]
    assert named[0].cue.name == "the top left corner"
    mended = trained(named[:1])
    assert accuracy(mended) > accuracy(plain) + 0.3
    again = {each.cue.name: each for each in lrptrain.inspect(mended, shown).judged}
    assert all("corner" not in name or each.verdict != "relies" for name, each in again.items())


def test_what_cannot_be_swapped_is_refused_at_once():
    with pytest.raises(ValueError, match="names nothing"):
        RelevanceGuidance("swap", swap=[])
    with pytest.raises(ValueError, match="mixes cues"):
        RelevanceGuidance("swap", swap=cast(Any, [BORDER, "outside"]))
    with pytest.raises(ValueError, match="another input"):
        RelevanceGuidance("swap", swap=AnotherInput.of("age"))
    with pytest.raises(ValueError, match="of images and of texts"):
        RelevanceGuidance("swap", swap=[BORDER, Family.of("numbers", "open", LANGUAGE)])


@pytest.mark.parametrize(
    "by_annotation", [Surroundings(), Placement.of("location"), Colour.of("evidence", "open")], ids=lambda cue: cue.name
)
def test_what_goes_by_annotations_needs_them_and_what_is_open_none(by_annotation):
    fault, is_open = (lrptrain.Guidance("swap", swap=cue, on_error="raise") for cue in (by_annotation, BORDER))
    batch = {name: x for name, x in annotated_data().items() if name != "mask"}
    net: nn.Module = vit().double()
    with is_open.step(net, batch) as step:
        step.guided(F.cross_entropy(net(batch["image"]), batch["label"]))
    with pytest.raises(ValueError, match="annotation"), fault.step(net, batch) as step:
        step.guided(F.cross_entropy(net(batch["image"]), batch["label"]))
