"""What a trained model relies on, in one call, of images, texts, numbers and two inputs."""

import json
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from inspected import SIDE, Tokenizer, images, reads_the_footer, texts, trained
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.utils.data import DataLoader, StackDataset

import lrptrain


def vit():
    torch.manual_seed(0)
    return VisionTransformer(img_size=SIDE, patch_size=4, embed_dim=32, depth=2, num_heads=2, num_classes=3)


def batches(columns, drop=()):
    return DataLoader(StackDataset(**{name: x for name, x in columns.items() if name not in drop}), 32)


@pytest.fixture(scope="module")
def reads_the_corner():
    return trained(vit(), images("corner", 1, 256), ["image"])


@pytest.fixture(scope="module")
def reads_the_object():
    return trained(vit(), images("object", 1, 256), ["image"], 150)


@pytest.fixture(scope="module")
def report(reads_the_corner):
    show = lrptrain.Show(class_names=["a", "b", "<c>"])
    return lrptrain.inspect(reads_the_corner, batches(images("corner")), show=show)


@pytest.mark.trained
def test_a_shortcut_is_named_with_its_effect(report):
    assert report.accuracy > 0.9
    assert report.faults[0].cue.name == "the top left corner"
    assert report.faults[0].interval[0] > 0.5
    text = str(report)
    assert "SHORTCUT: the model relies on the top left corner" in text
    assert max(map(len, text.splitlines())) <= 80
    right = f"{report.accuracy:.0%}".replace("%", " %")
    assert text.startswith(f"96 samples, accuracy {right}, guessing {round(100 * report.guessing)} %. 1 shortcut")
    assert report.guessing == pytest.approx(1 / 3, abs=0.01)
    assert "It does not rely on these alone: " in text


def test_of_a_model_that_guesses_there_is_one_line_and_no_verdict(tmp_path):
    report = lrptrain.inspect(vit().eval(), batches(images("corner")))
    assert report.judged
    assert not report.findings
    assert str(report).count("\n  ") == str(report).count("\n") == 1  # one line, that is broken
    assert ", guessing" in " ".join(str(report).split())
    assert " ".join(str(report).split()).endswith("The model is no better than guessing. Train longer.")
    assert report.to_dict()["says_nothing"]
    assert str(report).split()[-1] in report.save(tmp_path / "report.html").read_text()


@pytest.mark.parametrize(("drop", "most"), [((), 19), (("mask",), 12)])
def test_an_inspection_takes_few_passes(reads_the_corner, drop, most):
    """What may be named is measured on 64 samples, twice, and on twelve beside each cue that is named before it.

    Here each of three classes has its own corner: its mark alone, and all marks together, are among that.
    """
    report = lrptrain.inspect(reads_the_corner, batches(images("corner", count=128), drop))
    assert report.passes <= most, "or an inspection has become dearer"


def test_a_lightning_module_without_a_forward_is_inspected_by_the_network_that_it_calls(reads_the_corner, report):
    columns = images("corner")

    class Mine(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.accuracy, self.backbone = nn.Identity(), reads_the_corner

        def validation_step(self, batch, _):
            return reads_the_corner(batch["image"])

    def step(model: Any, batch):
        return model.validation_step(batch, 0)

    module = Mine()
    for found in (lrptrain.inspect(module, batches(columns), step=each) for each in (None, step)):
        assert [each.effect for each in found.findings] == [each.effect for each in report.findings]
        assert "RelevanceGuidance(" in str(found)  # as a LightningModule takes it
    module.head = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"could be any of \['backbone', 'head'\]: pass .* such as module.backbone"):
        lrptrain.inspect(module, batches(columns))


@pytest.mark.trained
def test_without_annotation_it_is_what_the_model_reads(reads_the_corner):
    report = lrptrain.inspect(reads_the_corner, batches(images("corner"), drop=["mask"]))
    assert not report.faults
    assert report.to_review[0].cue.name == "the top left corner"
    assert "SHORTCUT" not in str(report)
    assert "NEEDS REVIEW: the model relies on the top left corner" in str(report)
    head = " ".join(str(report).split())
    assert "No annotations, so that nothing can be flagged as a shortcut; 1 needs review: the top left corner." in head
    assert report["the top left corner"] is report.to_review[0]


@pytest.mark.trained
def test_a_clean_model_has_no_fault(reads_the_object):
    report = lrptrain.inspect(reads_the_object, batches(images("object")))
    assert report.accuracy > 0.9
    assert not report.faults
    # What else of the object or the image it uses beside the colours differs between processors.
    assert any("the colours of the" in each.cue.name for each in report.to_review)
    surroundings = next(each for each in report.judged if each.cue.kind == "surroundings")
    assert surroundings.verdict != "relies"
    assert abs(surroundings.effect.mean) < 0.05


def test_the_model_and_the_random_state_stay_as_they_were(reads_the_corner):
    net = reads_the_corner.train()
    before = {name: x.clone() for name, x in net.state_dict().items()}
    state = torch.get_rng_state()
    first = lrptrain.inspect(net, batches(images("corner")), max_samples=48)
    assert torch.equal(state, torch.get_rng_state())
    assert net.training
    assert all(torch.equal(before[name], x) for name, x in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    again = lrptrain.inspect(net.eval(), batches(images("corner")), max_samples=48)
    assert first.to_dict() == again.to_dict()


def test_it_is_saved_as_a_page_and_as_values(report, tmp_path):
    page = report.save(tmp_path / "report.html").read_text()
    assert page.count("data:image/png") >= 1
    assert "Swapped with another class: b (" in page
    assert "<c>" not in page
    values = json.loads(report.save(tmp_path / "report.json").read_text())
    assert values["findings"][0]["name"] == "the top left corner"
    assert set(values["findings"][0]["by_class"]) == {"a", "b", "<c>"}
    json.dumps(values, allow_nan=False)


def test_in_a_script_it_is_printed_though_ipython_is_there(report, capsys):
    import IPython  # noqa: F401

    report.show()
    assert capsys.readouterr().out.strip() == str(report)


@pytest.mark.trained
def test_a_footer_is_found_as_a_whole():
    report = lrptrain.inspect(reads_the_footer(), batches(texts(True)), tokenizer=Tokenizer())
    assert report.accuracy == 1
    assert "the phrase 'sent from my phone'" in {each.name for each in report.faults}
    assert report.faults[0].interval[0] > 0.8


def test_what_cannot_be_exchanged_place_by_place_is_said():
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    rows = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
    columns = {"image": rows, "label": (rows[:, 0] > 0).long()}
    trained(net, columns, ["image"], 100, 0.05)
    report = lrptrain.inspect(net, batches(columns))
    assert report.untested
    assert "Not tested: parts of an input that is no image, no text and no rows" in str(report)


def test_without_a_tokenizer_no_family_of_words_is_told():
    report = lrptrain.inspect(reads_the_footer(), batches(texts(True), ["rationale"]))
    assert not [each for each in report.judged if each.cue.kind == "family"]
    assert "pass tokenizer=" in str(report)
    assert "phrase" in {each.kind for each in report.to_review}


def test_a_sample_that_cannot_be_used_is_left_out_and_named(reads_the_corner):
    columns = images("corner", count=48)
    columns["image"][40] = torch.nan
    report = lrptrain.inspect(reads_the_corner, batches(columns))
    assert report.samples == 47
    assert "Not tested: the sample 40: 'image' holds NaN or infinity" in str(report)
    assert report.faults[0].cue.name == "the top left corner"
