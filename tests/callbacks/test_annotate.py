"""Annotations that the user's function makes: what they change in findings and guidance, in every loop."""

import re

import pytest
import torch
import torch.nn.functional as F
from guided_loops import LOOPS
from inspected import Tokenizer, images, reads_the_footer, texts
from own_trainers import Named
from setting import vit

import lrptrain
from lrptrain.callbacks import RelevanceGuidance, RelevanceMonitor


def square(image, label):
    """The brightest square of 4 x 4 pixels but for the corner."""
    energy = F.avg_pool2d(image.amax(0)[None], 4, 1)[0, 4:, 4:]
    top, left = divmod(int(energy.argmax()), energy.shape[1])
    return [(left + 4, top + 4, left + 8, top + 8)]


def without_masks(columns):
    return {name: x for name, x in columns.items() if name != "mask"}


@pytest.mark.parametrize("annotate", [["good", "bad"], re.compile("good|bad"), lambda text: ["good", "bad"]])
def test_words_in_place_of_rationales_tell_faults(annotate):
    net, columns = reads_the_footer(), {name: x for name, x in texts(True, count=48).items() if name != "rationale"}
    report = lrptrain.inspect(net, [columns], tokenizer=Tokenizer(), annotate=annotate)
    assert "the phrase 'sent from my phone'" in {each.name for each in report.faults}
    with pytest.raises(ValueError, match=r"annotate= failed .* nothing names their tokens: pass tokenizer="):
        lrptrain.inspect(net, [columns], annotate=annotate)


def test_what_a_function_returns_is_checked_before_the_first_step(tmp_path):
    model, columns = Named(num_classes=3), without_masks(images("corner", 0, 24))
    for annotate, message in ((lambda *_: torch.zeros(3, 5), r"not \[3, 5\]"), (lambda *_: 1 / 0, "ZeroDivisionError")):
        with pytest.raises(ValueError, match=f"annotate= failed for the sample 0.*{message}"):
            lrptrain.Monitor(model, [columns], tmp_path, annotate=annotate)
        guidance = lrptrain.Guidance("energy", annotate=annotate)
        with pytest.raises(ValueError, match=f"annotate= failed for the sample 0.*{message}"):
            guidance.step(model, columns).__enter__()
    with pytest.raises(ValueError, match="batches hold 'mask'"):
        lrptrain.Monitor(model, [images("corner", 0, 24)], tmp_path, annotate=square)
    for callback in (RelevanceMonitor, lambda annotate: RelevanceGuidance("energy", annotate=annotate)):
        with pytest.raises(ValueError, match="annotate= takes a function"):
            callback(annotate="good")


def test_guidance_by_a_function_is_guidance_by_its_masks(tmp_path):
    columns = images("corner", 0, 6)
    weights = []
    for number, given in enumerate((columns, without_masks(columns))):
        torch.manual_seed(0)
        options = {"loss": "energy", "on_error": "raise", **({"annotate": square} if number else {})}
        made = {**columns, "mask": boxes_of(columns)} if not number else given
        net, _ = LOOPS["a step"](vit(num_classes=3).double(), to_double(made), options, 6, 1, tmp_path / str(number))
        weights.append(net)
    for name, x in weights[0].items():
        assert torch.equal(x, weights[1][name])


def boxes_of(columns):
    masks = torch.zeros_like(columns["mask"])
    for row, image in enumerate(columns["image"]):
        ((left, top, right, bottom),) = square(image.double(), 0)
        masks[row, top:bottom, left:right] = 1
    return masks


def to_double(columns):
    return {name: x.double() if x.is_floating_point() else x for name, x in columns.items()}
