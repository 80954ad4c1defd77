"""What a guidance asks for, on a call of the model."""

import pytest
import torch
from small_models import tiny_vit

import lrptrain
from lrptrain.batch.annotations import IGNORED, mask_to_tokens
from lrptrain.cues.sources import random_sources
from lrptrain.cues.surroundings import Surroundings
from lrptrain.guidance import LOSSES, MAP_LOSSES, guidance_loss
from lrptrain.guidance.losses import MapSettings
from lrptrain.guidance.losses.consistency import divergences
from lrptrain.guidance.objective import Objective, parse_losses
from lrptrain.relevance import UnsupportedMethodError, UnsupportedModelError
from lrptrain.relevance.default import GUIDANCE_METHODS
from lrptrain.relevance.passes.interception import intercepted

SAMPLES = 5


def batch():
    generator = torch.Generator().manual_seed(0)
    mask = torch.zeros(SAMPLES, 16, 16, dtype=torch.uint8)
    mask[:, :5, 3:9] = 1
    images = torch.randn(SAMPLES, 3, 16, 16, dtype=torch.float64, generator=generator)
    return images, mask, torch.tensor([0, 1, 2, 0, 1])


def surrounded(images, mask):
    """Images with the surroundings of another annotated one."""
    usable = (mask != IGNORED).flatten(1).any(1)
    sources = random_sources(usable, torch.Generator().manual_seed(3))
    given = {"image": images, "mask": mask}
    return Surroundings().exchange(given, {name: x[sources] for name, x in given.items()})["image"]


def double_vit():
    return tiny_vit().double()


def losses(objective, rows, record=None, mask=None, label=None):
    net, (images, given, known) = double_vit(), batch()
    record = objective.records(len(rows), SAMPLES) if record is None else record
    with intercepted(net, SAMPLES, record) as calls:
        net(images)
    seed, mask, label = (
        torch.Generator().manual_seed(3),
        given if mask is None else mask,
        known if label is None else label,
    )
    return objective.losses(calls[0], mask, label, torch.tensor(rows), seed)


@pytest.mark.parametrize(
    ("given", "weight", "expected"),
    [
        ("energy", 1.0, {"energy": 1}),
        ("consistency + energy", 2.0, {"consistency": 2, "energy": 2}),
        ({"rrr": 3, "l1": 0.1}, 0.5, {"rrr": 1.5, "l1": 0.05}),
    ],
)
def test_losses_by_name(given, weight, expected):
    assert parse_losses(given, weight) == pytest.approx(expected)


def test_when_the_callers_pass_is_recorded():
    assert Objective({"energy": 1.0}).records(2, 4)
    assert not Objective({"energy": 1.0}).records(1, 4)
    assert Objective({"rrr": 1.0, "consistency": 1.0}).records(4, 4)
    assert not Objective({"consistency": 1.0}).records(4, 4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4], [1, 3]])
def test_losses_are_the_librarys_own_losses(loss, rows):
    net, (images, mask, label) = double_vit(), batch()
    found = losses(Objective({loss: 1.0}), rows)[loss]
    if loss in MAP_LOSSES:
        maps = lrptrain.attribute(net, images[rows], label[rows], "generic_attention", create_graph=True)
        assert maps.image_grid is not None
        expected = guidance_loss(maps.scores, mask_to_tokens(mask[rows], maps.image_grid), loss)
    elif loss == "rrr":
        expected = lrptrain.guidance.right_reasons(lrptrain.record(net, images[rows]), mask[rows]).mean()
    else:
        expected = divergences(net(images), net(surrounded(images, mask)))[rows].mean()
    assert found.count == len(rows)
    torch.testing.assert_close(found.total / found.count, expected, rtol=1e-9, atol=1e-15)
    assert found.total.requires_grad


@pytest.mark.parametrize("loss", LOSSES)
def test_a_pass_of_some_rows_or_of_all_gives_the_same_losses(loss):
    one, two = (losses(Objective({loss: 1.0}), [1, 3], record)[loss] for record in (True, False))
    assert one.count == two.count == 2
    torch.testing.assert_close(one.total, two.total, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_that_are_not_guided_have_no_part(loss):
    """Neither their annotation, nor a label that is none."""
    _, mask, label = batch()
    absent, unknown = mask.clone(), label.clone()
    unknown[[0, 2, 4]] = -100
    if loss != "consistency":  # what is annotated gives its surroundings
        absent[[0, 2, 4]] = IGNORED
    one, two = (losses(Objective({loss: 1.0}), [1, 3], True, *each)[loss] for each in ((), (absent, unknown)))
    torch.testing.assert_close(one.total, two.total, rtol=1e-9, atol=1e-15)


def test_several_losses_share_one_map():
    several = losses(Objective({"energy": 1.0, "l1": 2.0, "consistency": 1.0, "rrr": 1.0}), [0, 1, 2, 3, 4])
    assert several.keys() == {"energy", "l1", "consistency", "rrr"}
    for loss, term in several.items():
        torch.testing.assert_close(term.total, losses(Objective({loss: 1.0}), [0, 1, 2, 3, 4])[loss].total)


def test_the_predicted_class():
    net, (images, _, _) = double_vit(), batch()
    predicted = net(images).argmax(1)
    rows = [0, 1, 2, 3, 4]
    one = losses(Objective({"energy": 1.0}, MapSettings(target="predicted")), rows)["energy"].total
    torch.testing.assert_close(one, losses(Objective({"energy": 1.0}), rows, label=predicted)["energy"].total)
    assert not torch.isclose(one, losses(Objective({"energy": 1.0}), rows)["energy"].total)


def test_wrong_objectives():
    with pytest.raises(ValueError, match="loss must be a text like"):
        parse_losses({})
    with pytest.raises(ValueError, match=r"unknown guidance loss 'consistancy'.*consistency"):
        Objective({"consistancy": 1.0})
    with pytest.raises(ValueError, match="the weight of rrr must be positive"):
        Objective({"rrr": 0.0})
    with pytest.raises(UnsupportedMethodError, match="guidance cannot train through lime; it can through: "):
        Objective({"energy": 1.0}, MapSettings("lime"))
    assert Objective({"rrr": 1.0}, MapSettings("lime"))  # which has no part in it


def test_surroundings_are_not_swapped_where_their_pixels_have_labels():
    """The step's loss takes all labels, and those of the swapped pixels are the source's."""
    of_pixel = lrptrain.Head(lambda output: output[:, :, 8, 8], label=lambda labels: labels[:, 8, 8])
    for swap in ("outside", "border", ["outside", "colour"], "findings"):
        with pytest.raises(ValueError, match="'consistency' asks the head alone, and swap='colour' leaves them"):
            lrptrain.Guidance("swap", task=of_pixel, swap=swap)
    assert lrptrain.Guidance("swap", task=of_pixel, swap="colour")
    assert lrptrain.Guidance("consistency", task=of_pixel)
    assert lrptrain.Guidance("swap", task=lrptrain.Head("logits_b", label="label_b"))


def test_the_swap_distance_is_how_far_the_prediction_moves():
    net, (images, mask, _) = double_vit(), batch()
    mask[4] = IGNORED
    with intercepted(net, SAMPLES, False) as calls:
        net(images)
    rows = torch.tensor([0, 2, 4])
    found = Objective({"energy": 1.0}).swap_distance(calls[0], mask, rows, torch.Generator().manual_seed(3))
    before, after = net(images)[rows].softmax(-1), net(surrounded(images, mask))[rows].softmax(-1)
    expected = (before - after).abs().sum(1)[:2].sum() / 2
    torch.testing.assert_close(found.total, expected.detach())
    assert found.count == 2
    assert not found.total.requires_grad
    assert 0 < found.total < 2


def test_a_model_that_reads_the_evidence_alone_has_no_swap_distance():
    images, mask, _ = batch()
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 3)).double()
    with torch.no_grad():
        net[1].weight *= (mask[:1, None].expand(1, 3, 16, 16) == 1).flatten(1)
    with intercepted(net, SAMPLES, False) as calls:
        net(images)
    found = Objective({"energy": 1.0}).swap_distance(calls[0], mask, torch.arange(SAMPLES))
    assert found.total < 1e-12


def test_without_a_method_guidance_takes_what_serves_the_model_and_says_so():
    images, mask, label = batch()
    named = losses(Objective({"energy": 1.0}, MapSettings(GUIDANCE_METHODS[0])), [0, 1, 2])["energy"].total
    assert torch.equal(losses(Objective({"energy": 1.0}), [0, 1, 2])["energy"].total, named)
    convolutions = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 4, 4), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(64, 3)
    ).double()
    with intercepted(convolutions, SAMPLES, True) as calls:
        convolutions(images)
    with pytest.warns(lrptrain.RelevanceWarning, match="generic_attention: the model has no self-attention"):
        loss = Objective({"energy": 1.0}).losses(calls[0], mask, label, torch.arange(SAMPLES))["energy"].total
    loss.backward()
    assert convolutions[0].weight.grad is not None
    with intercepted(convolutions, SAMPLES, True) as calls:
        convolutions(images)
    with pytest.raises(UnsupportedModelError, match="no self-attention"):
        Objective({"energy": 1.0}, MapSettings("generic_attention")).losses(
            calls[0], mask, label, torch.arange(SAMPLES)
        )


def test_guidance_takes_no_map_of_one_row_where_several_are_pooled():
    images, mask, label = batch()
    net = tiny_vit(num_classes=3, class_token=False, global_pool="avg").double()

    def computed(method):
        with intercepted(net, SAMPLES, True) as calls:
            net(images)
        return (
            Objective({"energy": 1.0}, MapSettings(method))
            .losses(calls[0], mask, label, torch.arange(SAMPLES))["energy"]
            .total
        )

    with pytest.warns(lrptrain.RelevanceWarning, match="computed from several tokens.*attnlrp is used in its place"):
        found = computed(None)
    assert torch.equal(found, computed("attnlrp"))


def test_of_several_labels_a_loss_is_the_mean_over_them_and_a_map_that_of_all():
    labels = torch.tensor([[1, 0, 1], [0, 1, 1], [0, 0, -1], [1, 1, 0], [-1, 0, 1]])
    rows = [0, 1, 2, 4]

    def computed(task, label, name="consistency"):
        maps = MapSettings("input_x_gradient" if name == "energy" else None)
        objective = Objective({name: 1.0}, maps, task)
        return losses(objective, rows, label=label)[name]

    each = computed(lrptrain.EachLabel(), labels)
    alone = [computed(lrptrain.OneLabel(column), labels[:, column]) for column in range(3)]
    assert each.count == alone[0].count == len(rows)
    torch.testing.assert_close(each.total, sum(one.total for one in alone) / 3)

    net, (images, mask, _) = double_vit(), batch()
    signs = torch.where(labels > 0, 1, -1) * (labels >= 0)
    of_all = lrptrain.attribute(net, images[rows], lambda output: (output * signs[rows]).sum(1), "input_x_gradient")
    expected = guidance_loss(of_all.scores, mask_to_tokens(mask[rows], of_all.grid or ()))
    found = computed(lrptrain.EachLabel(), labels, "energy")
    torch.testing.assert_close(found.total / found.count, expected)
