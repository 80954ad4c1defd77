"""All labels of a model of several in one pass of the samples: what is read for each, and at what cost."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from own_trainers import answered, in_lightning, rows
from test_full_texts import Numbered
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lrptrain
from lrptrain.loggers import read_class_maps, read_samples
from lrptrain.loggers.record import Picture
from lrptrain.monitor.judging import FindingError

LABELS, N, SIDE, PATCH = 10, 80, 32, 4
MAP = 3
"""A map costs about as much as so many forward passes: it is recorded, and walked back."""
PLACES = {0: "the top left corner", 7: "the top right corner", 9: "the bottom left corner"}


class Patches(nn.Module):
    """Each label by the brightness of a patch of its own."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear((SIDE // PATCH) ** 2, LABELS)
        with torch.no_grad():
            self.head.weight.zero_(), self.head.bias.fill_(-6.0)
            for label in range(LABELS):
                self.head.weight[label, place_of(label)] = 12.0

    @staticmethod
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, labels.float())

    def forward(self, image: Tensor, labels: Tensor | None = None) -> Any:
        return answered(self.head(F.avg_pool2d(image.mean(1, keepdim=True), PATCH).flatten(1)), labels, self.loss)


def place_of(label):
    return {0: 0, 7: 7, 9: 56}.get(label, 9 + 2 * label)


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
    return {each.name.partition(", for the label")[0] for each in report.to_review if f"'label {label}'" in each.name}


def test_findings_say_of_which_label_and_are_those_of_one_label_alone(report):
    assert report.accuracy == 1
    passes = []
    for label in sorted({*PLACES, *range(0, LABELS, 4)}):
        one = lrptrain.inspect(Patches(), [images()], task=lrptrain.OneLabel(label))
        passes.append(one.passes)
        # One label alone proposes marks, too, which may be named in place of a place.
        named = {each.name for each in one.to_review if each.cue.kind != "mark"}
        if label in PLACES:
            assert of_label(report, label) == named == {PLACES[label]}
        assert of_label(report, label) <= named or any(each.cue.kind == "mark" for each in one.to_review)
    # 3.1 times: of 10 labels that read patches of their own, few share what they ask.
    assert report.passes + 1 + MAP <= 3.2 * (sum(passes) / len(passes) + MAP)


class Pictures(nn.Module):
    """Each of three labels by a small picture of its own, wherever it lies."""

    def __init__(self):
        super().__init__()
        self.of_label = nn.Conv2d(3, 3, PATCH, PATCH, bias=False)
        with torch.no_grad():
            self.of_label.weight.copy_(pictures() / pictures().square().sum((1, 2, 3), keepdim=True))

    def forward(self, image: Tensor) -> Tensor:
        return 12 * (F.relu(self.of_label(image) - 0.5).flatten(2).sum(2) * 2 - 0.5)


def pictures():
    return 2.5 * torch.randn(3, 3, PATCH, PATCH, generator=torch.Generator().manual_seed(1)).sign()


def with_pictures():
    """Images with the picture of each of their labels, anywhere."""
    generator = torch.Generator().manual_seed(0)
    label = (torch.rand(N, 3, generator=generator) < 0.4).long()
    image = 0.5 * torch.randn(N, 3, SIDE, SIDE, generator=generator)
    for row, column in (label == 1).nonzero().tolist():
        place = torch.randperm((SIDE // PATCH) ** 2, generator=torch.Generator().manual_seed(row))[column]
        top, left = (PATCH * each for each in divmod(int(place), SIDE // PATCH))
        image[row, :, top : top + PATCH, left : left + PATCH] = pictures()[column]
    return {"image": image, "label": label}


def test_marks_outside_of_its_own_mask_are_proposed_to_each_label():
    """All of the image but a corner is evidence of label 0, and that corner is that of label 2."""
    columns = with_pictures()
    mask = torch.full((N, 3, SIDE, SIDE), 255, dtype=torch.uint8)
    mask[:, 0], mask[:, 2] = 1, 0
    mask[:, 0, :PATCH, :PATCH], mask[:, 2, :PATCH, :PATCH] = 0, 1
    report = lrptrain.inspect(Pictures(), [{**columns, "mask": mask}], task=lrptrain.EachLabel(("a", "b", "c")))
    assert [(each.cue.kind, each.name[-3:]) for each in report.faults] == [("mark", "'c'")]


def test_marks_are_proposed_to_each_label_and_looked_for_once():
    columns = with_pictures()
    report = lrptrain.inspect(Pictures(), [columns], task=lrptrain.EachLabel(("a", "b", "c")))
    # Pictures that are all grain may be called that, too.
    marks = [each for each in report.to_review if each.cue.kind != "grain"]
    assert {(each.cue.kind, each.name[-3:]) for each in marks} == {("mark", f"'{each}'") for each in "abc"}
    for each, picture in ((each, pictures()["abc".index(each.name[-2])]) for each in marks):
        plain = torch.zeros(1, 3, SIDE, SIDE)
        assert not each.cue.locate({"image": plain}).any()
        plain[0, :, 8 : 8 + PATCH, 8 : 8 + PATCH] = picture
        assert each.cue.locate({"image": plain}).any(), "it is the picture of its label"
    one = lrptrain.inspect(Pictures(), [columns], task=lrptrain.OneLabel(0))
    assert report.passes <= 3.2 * one.passes


def test_what_lies_outside_of_masks_is_a_fault_of_its_label_alone():
    columns = images()
    mask = torch.ones(N, SIDE, SIDE, dtype=torch.uint8)
    mask[:, :PATCH, :PATCH] = 0
    task = lrptrain.EachLabel(tuple(f"finding {number}" for number in range(LABELS)))
    report = lrptrain.inspect(Patches(), [{**columns, "mask": mask}], task=task)
    assert report.faults
    assert {each.name.partition(", for the label ")[2] for each in report.faults} == {"'finding 0'"}
    # What is printed can be pasted: guidance takes the label.
    assert 'Guidance("swap", optimizer=optimizer, task=lrptrain.EachLabel())' in str(report).replace("\n ", "")
    guidance = lrptrain.Guidance("swap", swap=report.faults, task=lrptrain.EachLabel())
    assert report.faults[0].cue.name in guidance.state.objective.swap.title


def test_each_label_has_its_own_mask():
    """Labels 0 and 7 have marks of people in the corners that they are read in, and label 9 in that of label 7."""
    columns = images()
    mask = torch.full((N, LABELS, SIDE, SIDE), 255, dtype=torch.uint8)
    for label, corner in ((0, 0), (7, 7), (9, 7)):
        row, column = (PATCH * each for each in divmod(place_of(corner), SIDE // PATCH))
        mask[:, label] = 0
        mask[:, label, row : row + PATCH, column : column + PATCH] = 1
    report = lrptrain.inspect(Patches(), [{**columns, "mask": mask}], task=lrptrain.EachLabel())
    assert [each.name for each in report.faults] == ["the bottom left corner, for the label 'label 9'"]
    alone = [lrptrain.inspect(Patches(), [{**columns, "mask": mask}], task=lrptrain.OneLabel(i)) for i in (7, 9)]
    assert [[each.name for each in one.faults] for one in alone] == [[], ["the bottom left corner"]]


def test_guidance_keeps_what_marks_any_label_of_a_sample():
    columns, net, seen = images(), Patches(), []
    mask = torch.zeros(N, LABELS, SIDE, SIDE, dtype=torch.uint8)
    for label in range(LABELS):
        row, column = (PATCH * each for each in divmod(place_of(label), SIDE // PATCH))
        mask[:, label, row : row + PATCH, column : column + PATCH] = 1
    mask[0] = 255  # a label that nobody has marked may lie anywhere
    net.head.register_forward_pre_hook(lambda module, args: seen.extend(args))
    guidance = lrptrain.Guidance("swap", task=lrptrain.EachLabel(), on_error="raise", compare_every_n_batches=0)
    with guidance.step(net, {**columns, "mask": mask}) as step:
        step.guided(F.binary_cross_entropy_with_logits(net(columns["image"]), columns["label"].float())).backward()
    of_patches = F.avg_pool2d(columns["image"].mean(1, keepdim=True), PATCH).flatten(1)
    marked = F.max_pool2d(((mask == 1) & (columns["label"] == 1)[..., None, None]).any(1).float(), PATCH).flatten(1)
    moved = seen[0] != of_patches
    assert not moved[0].any()
    assert torch.equal(moved[1:], (marked[1:] == 0) & marked[1:].any(1, keepdim=True))


def test_masks_of_named_regions_are_none_of_labels():
    columns = images()
    mask = torch.zeros(N, LABELS, SIDE, SIDE, dtype=torch.uint8)
    mask[:, 0, PATCH:, PATCH:] = 1
    mask[:, 1, :PATCH, :PATCH] = 1
    names = ["the thing", "the seal", *(f"part {number}" for number in range(2, LABELS))]
    batch = {**columns, "mask": mask}
    show = lrptrain.Show(region_names=names)
    report = lrptrain.inspect(Patches(), [batch], task=lrptrain.OneLabel(0), show=show)
    assert [each.name for each in report.faults] == ["the seal"]


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
    named = {each.name for each in report.to_review}
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
    assert "label 5: the model answers nearly all samples alike" in report.untested
    assert not of_label(report, 5)


@pytest.mark.parametrize("of", [lambda label: label.bool(), lambda label: 0.9 * label + 0.05])
def test_labels_come_as_booleans_or_smoothed(of):
    columns = images()
    given = {**columns, "label": of(columns["label"])}
    assert lrptrain.inspect(Patches(), [given], task=lrptrain.EachLabel()).accuracy == 1
    one = lrptrain.inspect(Patches(), [given], task=lrptrain.OneLabel(7))
    assert one.accuracy == 1
    with pytest.raises(ValueError, match=r"lie in 0\.\.1"):
        lrptrain.inspect(Patches(), [{**columns, "label": 3 * columns["label"]}], task=lrptrain.EachLabel())


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.findings = Patches()

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        return {"age": image.mean((1, 2, 3))[:, None], "findings": self.findings(image)}


def test_a_head_of_several_labels_is_told_label_by_label():
    columns = images()
    batch = {"image": columns["image"], "findings": columns["label"], "age": torch.zeros(N)}
    task = lrptrain.Head("findings", task=lrptrain.EachLabel(), label="findings")
    report = lrptrain.inspect(TwoHeads(), [batch], task=task)
    assert report.accuracy == 1
    assert of_label(report, 7) == {PLACES[7]}


def test_what_it_does_not_serve_says_so():
    columns = images()
    for attempt in (
        lambda task: lrptrain.audit(Patches(), [columns], task=task),
        lambda task: lrptrain.repair(Patches(), [columns], task=task),
    ):
        with pytest.raises(ValueError, match=r"is for monitors and guidance: here say lrptrain.OneLabel\(column\)"):
            attempt(lrptrain.EachLabel())
    with pytest.raises(ValueError, match="names 2 labels, and the model has 10 logits"):
        lrptrain.inspect(Patches(), [columns], task=lrptrain.EachLabel(("a", "b")))
    with pytest.raises(ValueError, match="'label' has 9 columns, and the model 10 logits"):
        lrptrain.inspect(Patches(), [{**columns, "label": columns["label"][:, 1:]}], task=lrptrain.EachLabel())
    with pytest.raises(ValueError, match=r"'label' \[80\] must be \[batch, labels\] of 0 and 1"):
        lrptrain.inspect(Patches(), [{**columns, "label": columns["label"][:, 0]}], task=lrptrain.EachLabel())


TITLES = [f"finding {number}" for number in range(LABELS)]


def test_a_run_is_monitored_for_all_labels(tmp_path):
    monitor = in_lightning(tmp_path, Patches(), images(), {"class_names": TITLES, "task": lrptrain.EachLabel()})
    named = {each.name for each in monitor.findings if each.relies}
    assert named >= {f"{place}, for the label 'finding {label}'" for label, place in PLACES.items()}
    assert monitor.scalars["relevance/accuracy"] == 1
    assert 0.9 < monitor.scalars["relevance/any_reliance"] <= 1
    of_places = {each.label: each.name for each in monitor.findings if each.name in named}
    assert all(f"'finding {label}'" in name for label, name in of_places.items())
    proven = [each for each in monitor.findings if each.proof is not None]
    assert proven
    for each in proven:
        title = each.name.split("'")[1]
        assert {sample.answer for sample in each.proof.samples} <= {title, f"no {title}"}
    columns = images()
    table = read_samples(monitor.folder)
    for sample, label, predicted in zip(table["sample_id"], table["label"], table["predicted"], strict=True):
        has = [TITLES[number] for number in columns["label"][int(sample)].nonzero().flatten().tolist()]
        assert label == predicted == (", ".join(has) or "none")
    # The map of all answers, and of the most probable labels one each.
    picture = next(each for each in monitor.core.recorder.drawn if isinstance(each, Picture))
    assert "predicted as" in picture.caption
    assert {*read_class_maps(monitor.folder)["class"]} <= {*TITLES}
    assert not monitor.failures


def test_all_labels_are_guided_at_once():
    """Label 0 lies outside of the masks: of all labels, it alone changes with what is swapped."""
    mask = torch.ones(N, SIDE, SIDE, dtype=torch.uint8)
    mask[:, :PATCH, :PATCH] = 0
    net, task = Patches(), lrptrain.EachLabel()
    before = net.head.weight[0, 0].item()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    guidance = lrptrain.Guidance("consistency", 100.0, optimizer=optimizer, task=task, on_error="raise")
    for batch in DataLoader(rows({**images(), "mask": mask}), 32):
        with guidance.step(net, batch) as step:
            step.guided(F.binary_cross_entropy_with_logits(net(batch["image"]), batch["label"].float())).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert guidance.values["guidance/consistency"] > 0.01
    assert net.head.weight[0, 0].item() < before - 0.01, "the corner counts for less"
    untouched = Patches().head.weight[7, place_of(7)].item()
    assert net.head.weight[7, place_of(7)].item() == pytest.approx(untouched, abs=1e-3), "what is annotated does not"


def test_a_model_that_guesses_every_label_is_told_nothing_of(tmp_path):
    columns = images()
    columns["label"] = columns["label"][torch.randperm(N, generator=torch.Generator().manual_seed(0))]
    monitor = lrptrain.Monitor(Patches(), [columns], tmp_path, max_samples=N, task=lrptrain.EachLabel())
    monitor.evaluate(0)
    assert monitor.core.judging.power(monitor.scored)["tells"] is False
    for gate in ("inconclusive", "relies"):
        monitor.core.config = replace(monitor.core.config, judge=lrptrain.Judge(fail_on=gate))
        with pytest.raises(FindingError, match="no better than guessing"):
            monitor.close()


def test_a_check_is_not_sure_while_a_label_is_not_tested(tmp_path):
    model: Any = Patches()
    with torch.no_grad():
        model.head.weight[2], model.head.bias[2] = 0, -9
    reasons: list[str] = []
    for net in (Patches(), model):
        folder = tmp_path / str(len(reasons))
        monitor = lrptrain.Monitor(net, [images()], folder, max_samples=N, task=lrptrain.EachLabel())
        monitor.evaluate(0)
        assert monitor.folder is not None
        reasons.append(lrptrain.check(monitor.folder).reason)
        gated = lrptrain.Judge(fail_on="relies", fail_after=1)
        gate = lrptrain.Monitor(net, [images()], folder / "gate", max_samples=N, task=lrptrain.EachLabel(), judge=gated)
        gate.evaluate(0)
        with pytest.raises(FindingError, match=r"evaluation\. 1 of the labels") if len(reasons) == 2 else nullcontext():
            gate.close()
    assert "could not be tested" not in reasons[0]
    assert reasons[1] == "1 of the labels could not be tested."
