"""Models that learn a planted corner, or the object: what the monitor says of them in the run."""

import base64
import json
import re
import warnings
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from setting import loader, messages, module, monitor, trainer, vit

from lrptrain.dashboard import runs
from lrptrain.dashboard.report import write_html_report
from lrptrain.dashboard.verdicts import proof_picture
from lrptrain.findings import OVERALL, Candidate, Detector, Scope, register_detector, unfold, worst_severity
from lrptrain.findings.detectors.shares import high_share_finding
from lrptrain.intervention import Region
from lrptrain.loggers import read_events, read_findings
from lrptrain.monitor.gate import FindingError

EPOCHS = 2
OUTSIDE = ("focus_outside_annotation", "reliance_outside_annotation")


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


def watched(folder, where, annotated=True, **options):
    """The monitor after the last epochs of a short training."""
    columns = pictures(where)
    if not annotated:
        columns.pop("mask")
    watching = monitor(**{"max_samples": 48, "max_pictures": 0, "on_error": "raise", **options})
    batches = {"batch_size": 16}
    runner = trainer(folder, watching, max_epochs=EPOCHS)
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
    return watched(tmp_path_factory.mktemp("object"), "object")


def test_a_corner_is_confirmed_in_the_run(corner):
    watching, runner = corner
    outside = [fact for fact in unfold(watching.findings) if fact.kind in OUTSIDE and fact.scope == OVERALL]
    assert [fact.state for fact in outside if fact.target == "label"] == ["confirmed"]
    assert outside[0].effect > 0.2
    assert outside[0].interval[0] > 0.05
    assert outside[0].p_value < 0.01
    assert runner.callback_metrics["relevance/reliance"] > 0.7
    assert runner.callback_metrics["relevance/severity"] == pytest.approx(worst_severity(watching.findings))


def test_its_place_is_named(corner):
    (place,) = (
        fact for fact in unfold(corner[0].findings) if fact.kind == "focus_at_position" and fact.scope == OVERALL
    )
    assert place.where.startswith("bottom right")
    assert place.state == "confirmed"


def test_what_is_confirmed_is_shown(corner):
    """The corner is painted over, the rest is as it was, and the model's answers are those of a forward pass."""
    watching, _ = corner
    (place,) = (fact for fact in watching.findings if fact.kind == "focus_at_position")
    proof = place.proof
    assert len(proof.samples) == 3
    falls = [(sample.before - sample.changed, sample.before - sample.control) for sample in proof.samples]
    assert all(change > control + 0.3 and abs(control) < 0.05 for change, control in falls), falls
    assert falls[0][0] - falls[0][1] >= place.effect
    with Image.open(watching.folder / proof.path) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    side = 160  # 16 x 16 pixels, each enlarged tenfold
    parts = [pixels[4 : 4 + side, 4 + i * (side + 8) :][:, :side] for i in range(3)]
    changed = (np.abs(parts[0] - parts[1]) > 8).any(2)
    assert changed[120:, 120:].mean() > 0.9
    # On some processors the model reads a patch beside the corner, too.
    named = np.zeros(16, bool)
    named[list(place.part.patches)] = True
    assert named[15]
    assert named.sum() <= 3
    assert not (changed & ~np.kron(named.reshape(4, 4), np.ones((40, 40), bool))).any()
    assert (np.abs(parts[0] - parts[2]) > 8).any(2).sum() > 0
    assert not (np.abs(parts[0] - parts[2]) > 8).any(2)[120:, 120:].any()
    assert proof.png == (watching.folder / proof.path).read_bytes()
    stored = read_events(watching.folder)[-1]["findings"]
    assert proof.path in {fact["proof"]["path"] for fact in stored}
    assert proof_picture(watching.folder, proof.path) == watching.folder / proof.path
    for odd in ("run.json", "../run.json", f"{proof.path}/..", "proofs/../events.jsonl", "inputs/a/b.png"):
        assert proof_picture(watching.folder, odd) is None
    html = tmp_report(watching.folder)
    assert base64.b64encode(proof.png).decode() in html


def tmp_report(folder):
    output = folder.parent.parent / "report.html"
    write_html_report(folder, output)
    return output.read_text()


def test_a_model_that_reads_the_object_is_not_blamed(clean):
    watching, runner = clean
    # The object is its colour: that the model relies on colour is true, and for a person to judge.
    confirmed = [fact for fact in unfold(watching.findings) if fact.state == "confirmed"]
    of_colour = {"reliance_on_statistics", "class_reliance_on_statistics", "statistics_of_class"}
    assert {fact.kind for fact in confirmed} <= of_colour, [str(fact) for fact in confirmed]
    facts = [fact for fact in watching.findings if fact.state == "confirmed"]
    assert runner.callback_metrics["relevance/findings_confirmed"] == len(facts)
    assert runner.callback_metrics["relevance/severity"] == 0
    assert abs(runner.callback_metrics["relevance/reliance"]) < 0.1


@pytest.mark.parametrize("how", ["inpaint", "fill"])
def test_other_interventions_agree(tmp_path, how):
    watching, _ = watched(tmp_path, "corner", intervention=how)
    assert any(fact.state == "confirmed" and fact.kind in OUTSIDE for fact in unfold(watching.findings))


def test_the_corner_is_found_without_annotations(tmp_path):
    watching, runner = watched(tmp_path, "corner", annotated=False)
    confirmed = {fact.kind for fact in unfold(watching.findings) if fact.state == "confirmed"}
    assert "focus_at_position" in confirmed
    assert "relevance/reliance" not in runner.callback_metrics


def test_without_interventions_all_stay_suspected(tmp_path):
    watching, runner = watched(tmp_path, "corner", intervention=None)
    assert {fact.state for fact in watching.findings} == {"suspected"}
    assert "relevance/reliance" not in runner.callback_metrics


def test_findings_are_on_disk_with_their_history(corner):
    watching, _ = corner
    assert read_findings(watching.folder) == watching.findings
    last = read_events(watching.folder)[-1]["findings"]
    assert [fact["state"] for fact in last] == [fact.state for fact in watching.findings]
    longest = max(watching.findings, key=lambda one: len(one.history))
    assert len(longest.history) == EPOCHS - longest.first_epoch


def test_a_run_can_be_stopped_by_a_confirmed_finding(tmp_path):
    with pytest.raises(FindingError, match="fail_on='confirmed': ! confirmed"):
        watched(tmp_path, "corner", fail_on="confirmed", fail_after=1)
    events = read_events(tmp_path / "relevance" / "run")
    assert 1 <= len(events) < EPOCHS
    assert events[-1]["scalars"]["relevance/findings_confirmed"] > 0


def test_a_validation_by_itself_is_judged_by_itself(tmp_path):
    runner = trainer(tmp_path, monitor(max_samples=48, max_pictures=0, fail_on="confirmed"))
    learner = module()
    learner.net.load_state_dict(learned("object"))
    runner.validate(learner, loader(pictures("object"), batch_size=16), verbose=False)
    # Other weights in the same trainer: what is found now was in no evaluation before.
    learner.net.load_state_dict(learned("corner"))
    with pytest.raises(FindingError, match="fail_on='confirmed': ! confirmed"):
        runner.validate(learner, loader(pictures("corner"), batch_size=16), verbose=False)


def test_a_clean_run_is_not_stopped(tmp_path):
    watched(tmp_path, "object", fail_on="confirmed")


def test_a_model_that_predicts_one_class_says_why_nothing_is_tested(tmp_path):
    watching = monitor(max_samples=48, max_pictures=0, bound=0.9, on_error="raise")
    columns = {**pictures("corner"), "label": torch.zeros(96, dtype=torch.long)}
    trainer(tmp_path, watching, max_epochs=3).fit(module(), loader(columns, 16), loader(columns, 16))
    (overall, *_) = watching.findings
    assert overall.state == "suspected"
    assert "predicts the same class" in overall.note


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"intervention": "erase"}, "intervention must be one of"),
        ({"min_effect": 0.0}, "min_effect must lie between 0 and 1"),
        ({"fail_on": "refuted"}, "fail_on must be"),
        ({"fail_on": "confirmed", "intervention": None}, "needs an intervention"),
    ],
)
def test_impossible_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        monitor(**options)


@pytest.mark.parametrize("annotated", [True, False])
def test_one_sample_is_no_evidence(tmp_path, annotated):
    columns = {name: column[:1] for name, column in pictures("corner").items() if annotated or name != "mask"}
    watching = monitor(max_samples=1, max_pictures=0, on_error="raise")
    trainer(tmp_path, watching, max_epochs=1).fit(module(), loader(columns), loader(columns))
    assert watching.findings == []


class FocusOnLastPatch(Detector):
    """A kind of finding that the library does not have: the relevance lies on the last patch."""

    kind = "focus_on_last_patch"
    title = "The relevance lies on the last patch"

    def detect(self, evaluation, config):
        shares = evaluation.shares
        last = shares.shape[1] - 1
        rows = np.arange(len(shares))
        if np.nanmean(shares[:, last]) > 4 / len(shares[0]):
            finding = high_share_finding(
                self, evaluation, config, OVERALL, "the last patch", rows, shares[:, last], reference=1 / len(shares[0])
            )
            yield Candidate(finding, Region("patches", (last,)), rows)


def test_a_new_kind_of_finding_is_one_object(tmp_path):
    """Registered, it is tested by the intervention, in the record, printed, and on the page with its own title."""
    remove = register_detector(FocusOnLastPatch())
    try:
        with pytest.raises(ValueError, match="a detector of the kind 'focus_on_last_patch' is registered already"):
            register_detector(FocusOnLastPatch())
        watching, _ = watched(tmp_path, "corner")
    finally:
        remove()
    (finding,) = (fact for fact in watching.findings if fact.kind == "focus_on_last_patch")
    assert (finding.state, finding.title) == ("confirmed", "The relevance lies on the last patch")
    assert len(finding.history) > 1
    assert " of the relevance lies on the last patch (95 % interval " in str(finding)
    assert "; changing this moves the prediction by " in str(finding)
    (stored,) = (fact for fact in read_findings(watching.folder) if fact.kind == finding.kind)
    assert repr(stored) == repr(finding)  # p-values of nan differ from themselves
    assert str(stored) == str(finding)  # also where the detector is not registered, as here
    (on_page,) = (
        fact for fact in runs.read_new_events(watching.folder)["events"][-1]["findings"] if fact["kind"] == finding.kind
    )
    assert (on_page["title"], on_page["state"]) == (finding.title, "confirmed")
    others, _ = watched(tmp_path / "others", "corner")
    assert {fact.kind for fact in watching.findings} - {fact.kind for fact in others.findings} == {finding.kind}


def test_a_hint_is_recorded_by_itself_and_said_at_the_end(tmp_path):
    with messages() as lines:
        watching, _ = watched(tmp_path, "object", min_effect=0.9)  # the class's colour comes to about 0.6
    (event,) = read_events(watching.folder)[-1:]
    assert re.fullmatch(r"Nearest to a flag: .+, \d+ points where 90 confirm\.", event["hints"])
    assert event["power"]["tells"]
    assert event["power"]["text"].startswith("What could have been found: ")
    assert "Nearest" not in event["power"]["text"]
    (end,) = (" ".join(line.split()) for line in lines if " ends: no shortcut found" in line)
    assert f"{event['power']['text']} {event['hints']}" in end


def test_what_cannot_be_drawn_is_confirmed_without_a_proof(tmp_path):
    columns = pictures("corner")
    columns["image"] = torch.cat([columns["image"], torch.zeros(96, 1, 16, 16)], 1)
    learner = module(net=vit(in_chans=4))
    weights = {**learned("corner")}
    kernel = weights["patch_embed.proj.weight"]
    weights["patch_embed.proj.weight"] = torch.cat([kernel, torch.zeros_like(kernel[:, :1])], 1)
    learner.net.load_state_dict(weights)
    watching = monitor(max_samples=48, max_pictures=0, on_error="raise")
    trainer(tmp_path, watching).validate(learner, loader(columns, 16), verbose=False)
    confirmed = [fact for fact in watching.findings if fact.state == "confirmed"]
    assert confirmed
    assert [fact.proof for fact in confirmed] == [None] * len(confirmed)


class Broken(Detector):
    """A kind whose detector cannot read any evaluation."""

    kind = "broken"
    title = "It fails"

    def detect(self, evaluation, config):
        raise RuntimeError("no such column")


@pytest.fixture
def broken():
    remove = register_detector(Broken())
    yield
    remove()


def test_a_detector_that_fails_is_reported_once_by_its_kind_and_the_record_is_kept(broken, tmp_path):
    columns = pictures("corner")
    watching = monitor(max_samples=24, max_pictures=0, bound=0.5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(tmp_path, watching, max_epochs=2).fit(module(), loader(columns, 16), loader(columns, 16))
    (line,) = (str(each.message) for each in caught if "broken" in str(each.message))
    assert line == (
        "RelevanceMonitor goes on without the detector 'broken', which failed: RuntimeError: no such column "
        '(on_error="raise" shows where)'
    )
    events = read_events(watching.folder)
    assert [event["epoch"] for event in events] == [0, 1]
    assert [event["scalars"]["relevance/failures"] for event in events] == [2.0, 3.0]  # one is of the sanity check
    assert {fact.kind for fact in watching.findings} & set(OUTSIDE)


def test_a_detector_that_fails_ends_training_where_errors_are_raised(broken, tmp_path):
    columns = pictures("corner", 12)
    watching = monitor(max_samples=12, max_pictures=0, on_error="raise")
    with pytest.raises(RuntimeError, match="no such column"):
        trainer(tmp_path, watching).fit(module(), loader(columns), loader(columns))


@pytest.mark.parametrize("name", ["overall", "overalls", "group 1"])
def test_a_class_may_be_called_like_a_scope(name, tmp_path):
    watching, _ = watched(tmp_path, "corner", class_names=[name, "b", "c"])
    of_class = [fact for fact in unfold(watching.findings) if fact.scope == Scope("class", name)]
    assert {fact.samples for fact in of_class} == {16}
    assert all(f", class {name}: " in str(fact) for fact in of_class)
    # Colour and contrast are judged by half of the samples.
    of_all = [fact for fact in watching.findings if fact.scope == OVERALL and fact.kind != "reliance_on_statistics"]
    # The first look at a place, 32 samples, settles it.
    assert {fact.samples for fact in of_all if fact.kind == "focus_at_position"} == {32}
    assert {fact.samples for fact in of_all if fact.kind != "focus_at_position"} == {48}
    assert read_findings(watching.folder) == watching.findings


def test_records_of_older_runs_are_read(corner):
    """Before, a finding had no title, and its scope no kind."""
    watching, _ = corner
    path = watching.folder / "findings.json"
    text = path.read_text()
    older = [{k: v for k, v in fact.items() if k not in ("title", "scope_kind")} for fact in json.loads(text)]
    try:
        path.write_text(json.dumps(older))
        assert read_findings(watching.folder) == watching.findings
    finally:
        path.write_text(text)
