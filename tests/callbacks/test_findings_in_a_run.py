"""Models that learn a planted corner, or the object: what the monitor says of them in the run."""

import base64
import json
import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from setting import loader, module, monitor, trainer, vit

import lrptrain
from lrptrain.cues.cue import Cue, Role
from lrptrain.cues.images import image_of
from lrptrain.dashboard.report import write_html_report
from lrptrain.dashboard.runs import proof_picture
from lrptrain.findings import reliance
from lrptrain.loggers import read_events, read_findings
from lrptrain.monitor.judging import FindingError
from lrptrain.monitor.loop_monitor import Monitor
from lrptrain.render.image import OUTLINE

EPOCHS = 2
CORNER = "the bottom right corner"


def pictures(where, samples=96, seed=0):
    """Noise; the class's colour in the object (the evidence, somewhere on the left) or in the corner bottom right."""
    generator = torch.Generator().manual_seed(seed)
    image = 0.4 * torch.rand(samples, 3, 16, 16, generator=generator)
    label = torch.arange(samples) % 3
    mask = torch.zeros(samples, 16, 16, dtype=torch.uint8)
    for i, top in enumerate(torch.randint(0, 13, (samples,), generator=generator).tolist()):
        mask[i, top : top + 4, 2:6] = 1
        part = image[i, :, top : top + 4, 2:6] if where == "object" else image[i, :, 12:, 12:]
        part[label[i]] += 1
    return {"image": image, "label": label, "mask": mask}


@cache
def learned(where):
    """Weights of a model that has learned it, without a monitor."""
    learner, columns = vit(), pictures(where)
    optimizer = torch.optim.AdamW(learner.parameters(), lr=3e-3)
    torch.manual_seed(0)
    for epoch in range(240):  # on some processors it takes longer
        correct = 0
        for batch in loader(columns, batch_size=16, shuffle=True):
            optimizer.zero_grad()
            logits = learner(batch["image"])
            F.cross_entropy(logits, batch["label"]).backward()
            optimizer.step()
            correct += int((logits.argmax(1) == batch["label"]).sum())
        if epoch >= 19 and correct == len(columns["label"]):
            break
    return learner.state_dict()


def watched(folder, where, annotated=True, epochs=EPOCHS, **options):
    """The monitor after the last epochs of a short training."""
    columns = pictures(where)
    if not annotated:
        columns.pop("mask")
    watching = monitor(**{"max_samples": 48, "max_pictures": 0, "on_error": "raise", **options})
    batches = {"batch_size": 16}
    runner = trainer(folder, watching, max_epochs=epochs)
    learner = module()
    learner.net.load_state_dict(learned(where))
    learner.configure_optimizers = lambda: torch.optim.AdamW(learner.parameters(), lr=1e-3)
    torch.manual_seed(0)
    runner.fit(learner, loader(columns, **batches, shuffle=True), loader(columns, **batches))
    assert runner.callback_metrics["relevance/accuracy"] > 0.9
    return watching, runner


@pytest.fixture(scope="module")
def corner(tmp_path_factory):
    return watched(tmp_path_factory.mktemp("corner"), "corner")


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Its gate does not stop it."""
    return watched(tmp_path_factory.mktemp("object"), "object", fail_on="relies")


@pytest.mark.trained
def test_a_corner_is_named_in_the_run(corner):
    watching, runner = corner
    (fault,) = watching.faults
    assert (fault.name, fault.verdict, fault.role) == (CORNER, "relies", "shortcut")
    assert fault.effect > 0.5
    assert 0.3 < fault.interval[0] < fault.effect < fault.interval[1] <= 1
    assert runner.callback_metrics["relevance/reliance"] == pytest.approx(reliance(watching.findings))
    assert runner.callback_metrics["relevance/reliance"] == pytest.approx(fault.interval[0])
    assert runner.callback_metrics["relevance/any_reliance"] >= fault.interval[0]
    assert runner.callback_metrics["relevance/findings"] == 1
    # Its patch is a sixteenth of the image, and holds most of the relevance.
    assert fault.area == pytest.approx(1 / 16)
    assert fault.relevance > 0.5


def test_what_is_named_is_shown(corner):
    """The corner is another's, the rest is as it was, and the model's answers are those of a forward pass."""
    watching, _ = corner
    (place,) = watching.faults
    proof = place.proof
    assert len(proof.samples) == 3
    falls = [(sample.before - sample.changed, sample.before - sample.control) for sample in proof.samples]
    assert all(change > control + 0.3 and abs(control) < 0.05 for change, control in falls), falls
    assert falls[0][0] - falls[0][1] >= place.effect
    with Image.open(watching.folder / proof.path) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    side, inner = 304, 228  # 16 x 16 pixels, each enlarged to 19; the corner has 4 x 4 of them
    parts = [pixels[4 : 4 + side, 4 + i * (side + 8) :][:, :side] for i in range(3)]
    for part in parts[1:]:
        changed = (np.abs(parts[0] - part) > 8).any(2)
        assert changed[inner:, inner:].mean() > 0.5
        changed[inner - 1 :, inner - 1 :] = False  # with the black line around the outline
        assert not changed.any()
    for part in parts:
        assert (part[inner + 10, inner : inner + 3] == OUTLINE).all(), "what is changed is outlined"
        assert not (part == OUTLINE).all(2)[: inner - 1, : inner - 1].any()
    own, unlike, like = (int(part[inner + 19 : -19, inner + 19 : -19].mean((0, 1)).argmax()) for part in parts)
    assert own == like != unlike, "each under its own caption"
    assert proof.png == (watching.folder / proof.path).read_bytes()
    stored = read_events(watching.folder)[-1]["findings"]
    assert proof.path in {fact["proof"]["path"] for fact in stored if fact["proof"]}
    assert proof_picture(watching.folder, proof.path) == watching.folder / proof.path
    for odd in ("run.json", "../run.json", f"{proof.path}/..", "proofs/../events.jsonl", "inputs/a/b.png"):
        assert proof_picture(watching.folder, odd) is None
    html = tmp_report(watching.folder)
    assert base64.b64encode(proof.png).decode() in html


def tmp_report(folder):
    output = folder.parent.parent / "report.html"
    write_html_report(folder, output)
    return output.read_text()


@pytest.mark.trained
def test_a_model_that_reads_the_object_is_not_blamed(clean):
    watching, runner = clean
    assert not watching.faults
    # The object is its colour: that the model reads it is true, and for a person to judge.
    assert {each.name for each in watching.to_review} <= {
        "the colours of the annotated object",
        "the colours of the image",
    }
    assert watching.to_review
    assert runner.callback_metrics["relevance/findings"] == 0
    assert runner.callback_metrics["relevance/reliance"] == 0
    assert runner.callback_metrics["relevance/any_reliance"] > 0.3
    (event,) = read_events(watching.folder)[-1:]
    assert event["power"]["tells"]
    assert "It does not rely on these alone: everything outside the annotation" in event["power"]["text"]


def test_what_people_say_is_evidence_or_a_fault_is_so(clean, tmp_path):
    (seen,) = clean[0].to_review
    evidence, _ = watched(tmp_path / "evidence", "object", epochs=1, cues=[seen.cue.declared("annotation")])
    assert not evidence.to_review
    (known,) = (each for each in evidence.findings if each.name == seen.name)
    assert (known.role, known.verdict) == ("annotation", "relies")
    fault, runner = watched(tmp_path / "fault", "object", epochs=1, cues=[seen.cue.declared("shortcut")])
    assert [each.name for each in fault.faults] == [seen.name]
    assert runner.callback_metrics["relevance/reliance"] > 0.3


def test_findings_are_on_disk_with_their_history(corner):
    watching, _ = corner
    assert read_findings(watching.folder) == watching.findings
    (fault,) = watching.faults
    assert (fault.first_epoch, fault.epochs, fault.verdicts) == (0, (0, 1), ("relies", "relies"))
    assert fault.history[-1] == fault.effect
    assert fault.plain == fault.cue.to_dict()
    (stored,) = (each for each in read_findings(watching.folder) if each.is_fault)
    assert stored.plain["box"] == [0.75, 0.75, 1.0, 1.0]
    assert stored.cue is None


def test_a_validation_by_itself_is_judged_by_itself(tmp_path):
    runner = trainer(tmp_path, monitor(max_samples=48, max_pictures=0, fail_on="relies"))
    learner = module()
    learner.net.load_state_dict(learned("object"))
    runner.validate(learner, loader(pictures("object"), batch_size=16), verbose=False)
    # Other weights in the same trainer: what is found now was in no evaluation before.
    learner.net.load_state_dict(learned("corner"))
    with pytest.raises(FindingError, match="fail_on='relies': SHORTCUT"):
        runner.validate(learner, loader(pictures("corner"), batch_size=16), verbose=False)


def gated(folder, where="corner", fail_on="relies", **options):
    net = vit()
    watching = Monitor(net, loader(pictures(where), 16), folder, max_samples=48, show=lrptrain.Show(max_pictures=0),
                       judge=lrptrain.Judge(fail_on=fail_on), **options)  # fmt: skip
    return net, watching


@pytest.mark.parametrize("states", [("untrained", "corner"), ("corner", "untrained", "corner")])
def test_an_evaluation_that_can_tell_nothing_is_none_without_the_fault(states, tmp_path):
    net, watching = gated(tmp_path)

    def loop():
        for epoch, where in enumerate(states):
            net.load_state_dict(learned("corner"))
            if where == "untrained":
                net.head.weight.data.zero_()  # one answer to all samples
            watching.evaluate(epoch)
        watching.close()

    with pytest.raises(FindingError, match=r"fail_on='relies'.*: SHORTCUT"):
        loop()
    assert len(read_events(watching.folder)) == len(states)
    assert lrptrain.check(watching.folder).verdict == "failed"


def test_no_gate_passes_where_the_last_evaluation_failed(tmp_path, monkeypatch):
    net, watching = gated(tmp_path, "object")
    net.load_state_dict(learned("object"))
    watching.evaluate(0)
    monkeypatch.setattr(watching.core.explainer, "evaluator", lambda *given: 1 / 0)
    net.head.bias.data.add_(0.01)
    with pytest.warns(UserWarning, match="division by zero"):
        watching.evaluate(1)
    with pytest.raises(FindingError, match="not of the weights that training left"):
        watching.close()
    assert lrptrain.check(watching.folder).verdict == "inconclusive"
    assert json.loads((watching.folder / "run.json").read_text())["kept"] is None


def test_a_validation_by_itself_ends(tmp_path):
    watching = monitor(max_samples=48, max_pictures=0)
    learner = module()
    learner.net.load_state_dict(learned("corner"))
    trainer(tmp_path, watching).validate(learner, loader(pictures("corner"), batch_size=16), verbose=False)
    settings = json.loads((watching.folder / "run.json").read_text())
    assert settings["ended"]
    assert settings["kept"]["epoch"] == 0
    assert lrptrain.check(watching.folder, max_reliance=0.2).verdict == "failed"


@dataclass(frozen=True)
class LastPatch(Cue):
    """A kind of cue that the library does not have: the last patch of an image."""

    kind = "last_patch"
    name: str = "the last patch"
    role: Role = "unreviewed"

    def exchange(self, batch, sources):
        name, images = image_of(batch)
        changed = images.clone()
        changed[..., 12:, 12:] = image_of(sources)[1][..., 12:, 12:]
        return {**batch, name: changed}


def test_a_new_kind_of_cue_is_one_object(tmp_path, clean):
    """Given, it is tested like any other, in the record, printed, and on the page by its own name."""
    watching, _ = watched(tmp_path, "corner", annotated=False, cues=[LastPatch().declared("shortcut")])
    (finding,) = (each for each in watching.findings if each.kind == "last_patch")
    assert finding.verdict == "relies"
    assert len(finding.history) == EPOCHS
    assert str(finding).startswith("SHORTCUT: the model relies on the last patch. Effect ")
    (stored,) = (each for each in read_findings(watching.folder) if each.kind == finding.kind)
    assert stored == finding
    assert "the model relies on the last patch." in tmp_report(watching.folder)
    assert "last_patch" not in {each.kind for each in clean[0].findings}


def test_what_cannot_be_drawn_is_named_without_a_proof(tmp_path):
    columns = pictures("corner")
    columns["image"] = torch.cat([columns["image"], torch.zeros(96, 1, 16, 16)], 1)
    learner = module(net=vit(in_chans=4))
    weights = {**learned("corner")}
    kernel = weights["patch_embed.proj.weight"]
    weights["patch_embed.proj.weight"] = torch.cat([kernel, torch.zeros_like(kernel[:, :1])], 1)
    learner.net.load_state_dict(weights)
    watching = monitor(max_samples=48, max_pictures=0, on_error="raise")
    trainer(tmp_path, watching).validate(learner, loader(columns, 16), verbose=False)
    assert [fault.name for fault in watching.faults] == [CORNER]
    assert [fault.proof for fault in watching.faults] == [None]


@dataclass(frozen=True)
class Broken(LastPatch):
    """A cue that cannot be exchanged."""

    kind = "broken"
    name: str = "the broken cue"

    def exchange(self, batch, sources):
        raise RuntimeError("no such column")


def test_a_cue_that_fails_is_reported_once_by_its_name_and_the_record_is_kept(tmp_path):
    columns = pictures("corner")
    watching = monitor(max_samples=48, max_pictures=0, cues=[Broken()])
    learner = module()
    learner.net.load_state_dict(learned("corner"))
    learner.configure_optimizers = lambda: torch.optim.SGD(learner.parameters(), lr=0.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(tmp_path, watching, max_epochs=2).fit(learner, loader(columns, 16), loader(columns, 16))
    (line,) = {str(each.message) for each in caught if "broken" in str(each.message)}
    assert "the broken cue could not be swapped: RuntimeError: no such column" in line
    events = read_events(watching.folder)
    assert [event["epoch"] for event in events] == [0, 1]
    assert [event["scalars"]["relevance/failures"] for event in events] == [1.0, 2.0]
    assert [fault.name for fault in watching.faults] == [CORNER]


def test_a_cue_that_fails_ends_training_where_errors_are_raised(tmp_path):
    columns = pictures("corner")
    watching = monitor(max_samples=48, max_pictures=0, on_error="raise", cues=[Broken()])
    learner = module()
    learner.net.load_state_dict(learned("corner"))
    with pytest.raises(RuntimeError, match="no such column"):
        trainer(tmp_path, watching).fit(learner, loader(columns, 16), loader(columns, 16))


def test_too_few_annotated_samples_are_said(tmp_path):
    columns = pictures("corner")
    columns["mask"][5:] = 255
    net = vit()
    net.load_state_dict(learned("corner"))
    report = lrptrain.inspect(net, loader(columns, 16), max_samples=48)
    assert not report.faults
    assert any("what lies outside of annotations: " in line for line in report.untested)
