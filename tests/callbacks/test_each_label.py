"""All labels of a model of several in one pass of the samples: what is read for each, and at what cost."""

import pytest
import torch
import torch.nn.functional as F
from test_full_texts import Numbered
from torch import Tensor, nn

import lrptrain
from lrptrain.callbacks import RelevanceGuidance, RelevanceMonitor

LABELS, N, SIDE, PATCH = 20, 128, 32, 4
MAP = 3
"""A map costs about as much as so many forward passes: it is recorded, and walked back."""
PLACES = {0: "the top left corner", 7: "the top right corner", 16: "the bottom left corner"}


class Patches(nn.Module):
    """Each label by the brightness of a patch of its own."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear((SIDE // PATCH) ** 2, LABELS)
        with torch.no_grad():
            self.head.weight.zero_(), self.head.bias.fill_(-6.0)
            for label in range(LABELS):
                self.head.weight[label, place_of(label)] = 12.0

    def forward(self, image: Tensor) -> Tensor:
        return self.head(F.avg_pool2d(image.mean(1, keepdim=True), PATCH).flatten(1))


def place_of(label):
    return {0: 0, 7: 7, 16: 56}.get(label, 9 + 2 * label)


def images():
    generator = torch.Generator().manual_seed(0)
    label = (torch.rand(N, LABELS, generator=generator) < torch.linspace(0.2, 0.5, LABELS)).long()
    image = 0.1 * torch.randn(N, 3, SIDE, SIDE, generator=generator)
    for number in range(LABELS):
        row, column = (PATCH * each for each in divmod(place_of(number), SIDE // PATCH))
        image[:, :, row : row + PATCH, column : column + PATCH] += label[:, number, None, None, None]
    return {"image": image, "label": label}


@pytest.fixture(scope="module")
def report():
    return lrptrain.inspect(Patches(), [images()], task=lrptrain.EachLabel())


def of_label(report, label):
    return {each.name.partition(", for the label")[0] for each in report.reads if f"'label {label}'" in each.name}


def test_findings_say_of_which_label_and_are_those_of_one_label_alone(report):
    assert report.accuracy == 1
    passes = []
    for label in sorted({*PLACES, *range(0, LABELS, 4)}):
        one = lrptrain.inspect(Patches(), [images()], task=lrptrain.OneLabel(label))
        passes.append(one.passes)
        # One label alone proposes marks, too, which may be named in place of a place.
        named = {each.name for each in one.reads if each.cue.kind != "mark"}
        if label in PLACES:
            assert of_label(report, label) == named == {PLACES[label]}
        assert of_label(report, label) <= named or any(each.cue.kind == "mark" for each in one.reads)
    # 3.1 times: of 20 labels that read patches of their own, few share what they ask.
    assert report.passes + 1 + MAP <= 3.2 * (sum(passes) / len(passes) + MAP)


def test_effects_are_those_of_each_label(report):
    shown = [each for each in report.reads if each.cue.kind == "place"]
    assert {each.cue.name for each in shown} >= {*PLACES.values()}
    assert all(each.interval[0] > 0.8 for each in shown if each.cue.name in PLACES.values())
    told = str(report).replace("\n ", "")
    assert "The model reads the top left corner, for the label 'label 0'." in told
    assert "Not tested: marks, which one label proposes: task=lrptrain.OneLabel(column)." in told


def test_what_lies_outside_of_masks_is_a_fault_of_its_label_alone():
    columns = images()
    mask = torch.ones(N, SIDE, SIDE, dtype=torch.uint8)
    mask[:, :PATCH, :PATCH] = 0
    task = lrptrain.EachLabel(tuple(f"finding {number}" for number in range(LABELS)))
    report = lrptrain.inspect(Patches(), [{**columns, "mask": mask}], task=task)
    assert report.faults
    assert {each.name.partition(", for the label ")[2] for each in report.faults} == {"'finding 0'"}
    guidance = lrptrain.Guidance("swap", swap=report.faults)
    assert report.faults[0].cue.name in guidance.objective.swap.title


class Words(nn.Module):
    """Each of three labels by a word of its own."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(60, 3)
        with torch.no_grad():
            self.embeddings.weight.zero_()
            self.embeddings.weight[5:8] = 12 * torch.eye(3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return (self.embeddings(input_ids) * attention_mask[..., None]).sum(1) - 6


def test_of_texts_each_label_has_its_words():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, 60, (N, 9), generator=generator)
    label = (torch.rand(N, 3, generator=generator) < 0.4).long()
    for number in range(3):
        ids[:, 1 + 2 * number] = torch.where(label[:, number] == 1, 5 + number, ids[:, 1 + 2 * number])
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "label": label}
    report = lrptrain.inspect(Words(), [batch], task=lrptrain.EachLabel(("a", "b", "c")), tokenizer=Numbered())
    named = {each.name for each in report.reads}
    for number, title in enumerate("abc"):
        assert f"the word 'wa{chr(97 + 5 + number)}', for the label {title!r}" in named


def test_labels_that_are_not_known_or_all_alike_are_left_out():
    columns = images()
    columns["label"] = columns["label"].float()
    columns["label"][::2, 3] = float("nan")
    columns["label"][1::2, 3] = 1 - columns["label"][1::2, 3]
    model = Patches()
    with torch.no_grad():
        model.head.bias[5] = -100
    report = lrptrain.inspect(model, [columns], task=lrptrain.EachLabel())
    wrong = N // 2 + int(columns["label"][:, 5].sum())
    assert report.accuracy == pytest.approx(1 - wrong / (N * LABELS - N // 2))
    assert any(line.startswith("the labels label 5: the model answers") for line in report.untested)
    assert not of_label(report, 5)


def test_what_it_does_not_serve_says_so():
    columns = images()
    for attempt in (
        lambda task: RelevanceMonitor(task=task),
        lambda task: RelevanceGuidance("swap", task=task),
        lambda task: lrptrain.compare(Patches(), [columns], ["attnlrp"], task=task),
        lambda task: lrptrain.repair(Patches(), [columns], task=task),
    ):
        with pytest.raises(ValueError, match=r"is for lrptrain.inspect: here lrptrain.OneLabel\(column\) takes one"):
            attempt(lrptrain.EachLabel())
    with pytest.raises(ValueError, match="names 2 labels, and the model has 20 logits"):
        lrptrain.inspect(Patches(), [columns], task=lrptrain.EachLabel(("a", "b")))
    with pytest.raises(ValueError, match=r"'label' \[128\] must be \[batch, labels\] of 0 and 1"):
        lrptrain.inspect(Patches(), [{**columns, "label": columns["label"][:, 0]}], task=lrptrain.EachLabel())
