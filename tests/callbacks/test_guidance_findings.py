"""Training on swaps of what a monitor has confirmed, where nothing is annotated."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from guided import RATE, annotated_data, explicit, fit, sgd_module, weights
from guided_loops import LOOPS
from lrptrain.guidance.named_parts import NamedParts
from setting import data, loader, messages, module, trainer, vit
from test_guidance_gradients import EXACT, assert_close
from torch import Tensor

import lrptrain
from lrptrain.batch.parts import InputPart
from lrptrain.callbacks import RelevanceGuidance, RelevanceMonitor
from lrptrain.findings import OVERALL, Evidence, Finding
from lrptrain.intervention.parts import Confirmed, note_confirmed
from lrptrain.loggers import read_events

SEED = hash((0, 0, 0, 1)) % 2**63
CORNER = InputPart("patches", "the image's top left corner", (4, 4), (0,))
MOVED = Evidence(0.5, (0.4, 0.6), 0.0, 0.001, 32)
CONFIRMED = Finding(
    "focus_at_position", OVERALL, "predicted", None, 0.95, 0, 0, 0, state="confirmed", intervention=MOVED, part=CORNER
)


def unannotated() -> dict[str, Tensor]:
    columns = annotated_data()
    del columns["mask"]
    return columns


def unannotated_pairs() -> dict[str, Tensor]:
    return {name: values for name, values in data().items() if name != "mask"}


def step_by_hand(columns: dict[str, Tensor], outside: bool = False) -> dict[str, Tensor]:
    """The weights after one step of plain PyTorch on images with each other's corners, and surroundings."""
    named = NamedParts([CORNER], outside)
    mask = named.annotated(columns)["mask"]
    images, *_ = named.swap(columns["image"], mask, None, torch.Generator().manual_seed(SEED), True, None)
    net = explicit(vit().double())
    F.cross_entropy(net(images), columns["label"]).backward()
    return {name: x.detach() - RATE * (0 if x.grad is None else x.grad) for name, x in net.named_parameters()}


@pytest.mark.parametrize("loop", [name for name in LOOPS if name != "a line"])
@pytest.mark.parametrize("annotated", [False, True])
def test_a_step_is_that_of_the_batch_with_places_swapped_and_no_annotation_is_read(loop, annotated, tmp_path):
    columns = annotated_data() if annotated else unannotated()
    options = {"loss": "swap", "swap": [CONFIRMED], "on_error": "raise"}
    trained, guided = LOOPS[loop](vit().double(), columns, options, 6, 1, tmp_path)
    assert_close(trained, step_by_hand(unannotated()), EXACT)
    values = getattr(guided, "values", None) or guided.guidance.values
    assert values["guidance/swapped"] == values["guidance/samples"] == 6
    assert guided.failures == 0


@pytest.mark.parametrize("loop", [name for name in LOOPS if name != "a line"])
def test_what_lies_outside_of_the_annotation_can_be_swapped_beside(loop, tmp_path):
    options = {"loss": "swap", "swap": ["outside", CONFIRMED], "on_error": "raise"}
    trained, guided = LOOPS[loop](vit().double(), annotated_data(), options, 6, 1, tmp_path)
    assert_close(trained, step_by_hand(annotated_data(), outside=True), EXACT)
    assert guided.failures == 0


@pytest.mark.parametrize(("patches", "covers"), [((0,), False), (tuple(range(16)), True)])
def test_a_finding_that_covers_most_of_the_object_is_said_to_leave_little(patches, covers):
    said: list[str] = []
    named = replace(CONFIRMED, part=InputPart("patches", "the image", (4, 4), patches))
    guidance = lrptrain.Guidance("swap", swap=["outside", named])
    guidance.inform = said.append
    columns = annotated_data()
    net = vit().double()
    for _ in range(2):
        with guidance.step(net, columns) as step:
            step.guided(F.cross_entropy(net(columns["image"]), columns["label"]))
    assert sum("100% of the annotated evidence" in line for line in said) == covers
    assert sum("of the annotated evidence" in line for line in said) == covers


def test_surroundings_beside_findings_want_annotations_and_findings():
    with pytest.raises(ValueError, match=r"names no finding beside it: say swap='outside'"):
        lrptrain.Guidance("swap", swap=["outside"])
    with pytest.raises(ValueError, match=r"swap takes one of outside, .* not str"):
        lrptrain.Guidance("swap", swap=["statistics", CONFIRMED])
    guidance = lrptrain.Guidance("swap", swap=["outside", CONFIRMED])
    with pytest.raises(ValueError, match="annotation"), guidance.step(vit().double(), unannotated()):
        pass


@pytest.mark.parametrize("loop", [name for name in LOOPS if name != "a line"])
def test_a_step_is_that_of_what_the_runs_own_monitor_has_confirmed(loop, tmp_path):
    net = vit().double()
    note_confirmed(net, Confirmed((CORNER,), 1))
    options = {"loss": "swap", "swap": "findings", "on_error": "raise"}
    trained, _ = LOOPS[loop](net, unannotated(), options, 6, 1, tmp_path)
    assert_close(trained, step_by_hand(unannotated()), EXACT)


@pytest.mark.parametrize("loop", [name for name in LOOPS if name != "a line"])
def test_while_nothing_is_confirmed_weights_are_those_of_plain_training(loop, tmp_path):
    plain, _ = LOOPS[loop](vit().double(), unannotated(), None, 3, 1, tmp_path)
    net = vit().double()
    note_confirmed(net, Confirmed((), 1))
    options = {"loss": "swap", "swap": "findings", "on_error": "raise"}
    trained, _ = LOOPS[loop](net, unannotated(), options, 3, 1, tmp_path)
    assert all(torch.equal(trained[name], plain[name]) for name in plain)


@pytest.mark.parametrize("loop", [name for name in LOOPS if name != "a line"])
def test_without_a_monitor_the_first_step_is_refused(loop, tmp_path):
    with pytest.raises(ValueError, match="none watches this model: add RelevanceMonitor"):
        LOOPS[loop](vit().double(), unannotated(), {"loss": "swap", "swap": "findings"}, 6, 1, tmp_path)


@pytest.mark.parametrize("loss", ["consistency", "consistency+energy"])
def test_losses_go_by_what_is_named_too(loss, tmp_path):
    guidance = RelevanceGuidance(loss, swap=CONFIRMED, on_error="raise")
    trained = sgd_module()
    fit(tmp_path, trained, unannotated(), guidance)
    assert guidance.guidance.values["guidance/samples"] == 6
    assert guidance.guidance.values["guidance/consistency"] > 0
    assert guidance.failures == 0
    plain = sgd_module()
    fit(tmp_path, plain, unannotated())
    assert not torch.allclose(weights(trained.net)["head.weight"], weights(plain.net)["head.weight"], atol=1e-9)


def test_a_resumed_run_swaps_what_was_confirmed_before(tmp_path):
    guidance = lrptrain.Guidance("swap", swap="findings")
    net = vit()
    note_confirmed(net, Confirmed((CORNER,), 1))
    with guidance.step(net, data(6)) as step:
        step.guided(F.cross_entropy(net(data(6)["image"]), data(6)["label"]))
    resumed = lrptrain.Guidance("swap", swap="findings")
    resumed.load_state_dict(guidance.state_dict())
    assert resumed.named is not None
    assert resumed.named.parts == (CORNER,)
    older = {name: value for name, value in guidance.state_dict().items() if name != "named"}
    lrptrain.Guidance("swap", swap="findings").load_state_dict(older)


def test_what_cannot_be_swapped_amid_a_run_is_a_warning_and_does_not_end_it(tmp_path):
    """A step that flips its images moves them away from where the batch has them."""
    pl_module = sgd_module()
    note_confirmed(pl_module, Confirmed((), 1))

    def flipping(batch, batch_idx):
        images = batch["image"].flip(-1) if batch_idx or flips_at_once else batch["image"]
        if batch_idx == 1:
            note_confirmed(pl_module, Confirmed((CORNER,), 2))
        return F.cross_entropy(pl_module(images), batch["label"])

    pl_module.training_step = flipping
    guidance = RelevanceGuidance("swap", swap="findings")
    flips_at_once = False
    with pytest.warns(UserWarning, match="flipped, cropped or otherwise moved"):
        fit(tmp_path, pl_module, unannotated(), guidance, batch_size=2, max_epochs=2)
    assert guidance.failures > 0
    # What shows in the first batch is refused before the first step, though nothing is swapped yet.
    flips_at_once = True
    for swap in ("findings", [CONFIRMED]):
        note_confirmed(pl_module, Confirmed((), 1))
        with pytest.raises(ValueError, match="flipped, cropped or otherwise moved"):
            fit(tmp_path, pl_module, unannotated(), RelevanceGuidance("swap", swap=swap))


@pytest.mark.parametrize("loss", ["swap", "consistency"])
def test_a_step_that_no_guidance_could_listen_to_is_refused_before_anything_is_found(loss, tmp_path):
    pl_module = sgd_module()
    pl_module.training_step = lambda batch, batch_idx: F.cross_entropy(pl_module.net(batch["image"]), batch["label"])
    note_confirmed(pl_module, Confirmed((), 1))
    with pytest.raises(ValueError, match="say which module it calls with them, model='net'"):
        fit(tmp_path, pl_module, unannotated(), RelevanceGuidance(loss, swap="findings"))


def test_a_loss_may_wait_for_the_first_finding(tmp_path):
    pl_module = sgd_module()
    note_confirmed(pl_module, Confirmed((), 1))
    guidance = RelevanceGuidance("consistency", swap="findings", on_error="raise")
    fit(tmp_path, pl_module, unannotated(), guidance)
    assert guidance.failures == 0


def test_a_batch_of_another_kind_than_the_findings_is_refused_before_the_first_step(tmp_path):
    word = replace(CONFIRMED, part=InputPart("words", "the token 'so'", words=((7,),)))
    with pytest.raises(ValueError, match="the token 'so' is a part of texts, and the batch has"):
        fit(tmp_path, sgd_module(), unannotated(), RelevanceGuidance("swap", swap=[word]))


# -- A whole run ------------------------------------------------------------------------------------------------------


def squares(size: int, seed: int, wrong_tag: bool = False) -> dict[str, Tensor]:
    """A dark or a bright square anywhere but in the corner, and there a tag that tells the class, too."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (size,), generator=draw)
    images = 0.3 + 0.4 * torch.rand(size, 3, 32, 32, generator=draw)
    for image, label in zip(images, labels.tolist(), strict=True):
        top, left = torch.randint(8, 22, (2,), generator=draw).tolist()
        image[:, top : top + 10, left : left + 10] = float(label)
        tag = torch.tensor([[1.0, 0, 0], [0, 0, 1.0]])[1 - label if wrong_tag else label]
        image[:, :8, :8] = tag[:, None, None]
    return {"image": images, "label": labels}


def fitted(folder: Any, epochs: int, *callbacks: Any) -> tuple[float, RelevanceMonitor]:
    """The accuracy with the tag of the other class after a run without annotations, and its monitor."""
    torch.manual_seed(0)
    net = vit(img_size=32, patch_size=8, embed_dim=64, num_heads=4, num_classes=2)
    pl_module = module(net=net)
    pl_module.configure_optimizers = lambda: torch.optim.AdamW(pl_module.parameters(), lr=1e-3)
    monitor = RelevanceMonitor(budget=None, max_samples=64, max_pictures=0)
    fitter = trainer(folder, monitor, *callbacks, max_epochs=epochs, num_sanity_val_steps=0)
    fitter.fit(pl_module, loader(squares(384, 0), 32, shuffle=True), loader(squares(96, 1), 32))
    turned = squares(128, 2, wrong_tag=True)
    with torch.no_grad():
        right = net.eval()(turned["image"]).argmax(1) == turned["label"]
    return float(right.float().mean()), monitor


def test_what_a_training_goes_by_is_evaluated_in_every_validation(tmp_path):
    """By its budget a monitor would look at the final weights alone, when it is too late for the training."""
    epochs = []
    for callbacks in ([], [RelevanceGuidance("swap", swap="findings")]):
        monitor = RelevanceMonitor(budget=0.001, max_pictures=0)
        fit_options: dict[str, Any] = {"max_epochs": 3, "num_sanity_val_steps": 0}
        runner = trainer(tmp_path / str(len(callbacks)), monitor, *callbacks, **fit_options)
        runner.fit(module(), loader(unannotated_pairs()), loader(unannotated_pairs()))
        assert monitor.core.folder is not None
        epochs.append([event["epoch"] for event in read_events(monitor.core.folder)])
    assert epochs == [[2], [0, 1, 2]]


def test_a_run_mends_what_its_own_monitor_confirms(tmp_path):
    plain, monitor = fitted(tmp_path / "plain", 5)
    assert plain < 0.25
    (place,) = [finding for finding in monitor.findings if finding.kind == "focus_at_position"]
    assert place.part == CORNER
    with messages() as said:
        guidance = RelevanceGuidance("swap", swap="findings", on_error="raise")
        mended, _ = fitted(tmp_path / "same run", 12, guidance)
    assert mended > 0.75
    (line,) = [line for line in said if "the image's top left corner" in line and "from here on" in line]
    assert line.startswith("RelevanceGuidance: from here on, samples swap what the monitor has confirmed")
    with messages() as said:
        anew, _ = fitted(tmp_path / "anew", 8, RelevanceGuidance("swap", swap=monitor.findings, on_error="raise"))
    assert anew > 0.75
    assert any("samples swap what the findings name: the image's top left corner" in line for line in said)
