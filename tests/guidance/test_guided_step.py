"""One guided step, without a trainer: what it listens to, what it adds to the loss, and what it rejects."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lrptrain.batch.annotations import TokenAnnotation, mask_to_tokens
from lrptrain.guidance import guidance_loss
from lrptrain.guidance.guided_step import Progress
from lrptrain.guidance.guided_training import GuidedTraining
from lrptrain.guidance.options import GuidanceOptions
from lrptrain.relevance import attribute
from lrptrain.trainers.processes import torch_processes

EXACT = 1e-12  # of float64


class Pooled(nn.Module):
    """A linear model of the mean colours: its maps and gradients are known."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(3, 3).double()
        self.seen = []

    def forward(self, image):
        self.seen.append(image.detach())
        return self.head(image.mean((2, 3)))


def columns(samples=6):
    generator = torch.Generator().manual_seed(1)
    mask = torch.zeros(samples, 4, 4, dtype=torch.uint8)
    mask[:, :2] = 1
    image = torch.randn(samples, 3, 4, 4, generator=generator, dtype=torch.float64)
    return {"image": image, "mask": mask, "label": torch.arange(samples) % 3}


def training(loss="rrr", **options):
    return GuidedTraining(GuidanceOptions(loss, **{"weight": 1.0, "on_error": "raise", **options}))


def task_loss(model, batch):
    return F.cross_entropy(model(batch["image"]), batch["label"])


def guided(of, model, batch, number=0, share=1.0):
    """One step as a trainer makes it: its loss, and the step."""
    step = of.begin(model, model, batch, Progress(number, number), torch_processes())
    with step.listening():
        loss = task_loss(model, batch)
    return step.guided(loss, share), step


def right_reasons(model, batch):
    image = batch["image"].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(image).log_softmax(-1).sum(), image, create_graph=True)
    return ((batch["mask"] == 0)[:, None] * gradient**2).sum() / len(image)


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_the_loss_is_the_tasks_plus_the_guidance(share):
    model, batch = Pooled(), columns()
    loss, step = guided(training(weight=0.5), model, batch, share=share)
    expected = task_loss(model, batch) + share * 0.5 * right_reasons(model, batch)
    assert loss.item() == pytest.approx(expected.item(), rel=EXACT)
    assert step.values["rrr"] == pytest.approx(right_reasons(model, batch).item(), rel=EXACT)
    assert step.values["applied_weight"] == 0.5
    found, by_hand = (torch.autograd.grad(each, [*model.parameters()]) for each in (loss, expected))
    for one, other in zip(found, by_hand, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=EXACT)


def test_a_step_without_annotations_is_the_tasks_alone():
    batch = columns()
    batch["mask"][:] = 255
    loss, step = guided(training(sparse=True), model := Pooled(), batch)
    assert loss.item() == task_loss(model, batch).item()
    assert (step.samples, step.values["samples"]) == (0, 0)


def test_a_bounded_guidance_is_at_most_half_as_long_as_the_task():
    model, batch = Pooled(), columns()
    with torch.no_grad():
        model.head.weight *= 30  # whose input gradients are far longer than the task's
    of = training(weight=None)
    loss, step = guided(of, model, batch)
    task = task_loss(model, batch)
    pulls = [
        torch.cat([x.flatten() for x in torch.autograd.grad(each, [*model.parameters()], retain_graph=True)]).norm()
        for each in (task, loss - task)
    ]
    assert 0 < step.values["applied_weight"] < 1
    assert step.values["norm_ratio"] > 1
    assert (pulls[1] / pulls[0]).item() == pytest.approx(
        step.values["applied_weight"] * step.values["norm_ratio"], rel=1e-4
    )


def test_swapped_samples_are_what_the_model_is_given():
    model, batch = Pooled(), columns()
    _, step = guided(training({"swap": 1.0}, weight=None, compare_every_n_batches=0), model, batch)
    inside = (batch["mask"] == 1)[:, None].expand_as(batch["image"])
    assert torch.equal(model.seen[0][inside], batch["image"][inside])
    assert (model.seen[0] != batch["image"]).flatten(1).any(1).all()
    assert step.values["swapped"] == 6


def test_the_swaps_of_a_step_follow_seed_and_step():
    def swapped(seed, number):
        model = Pooled()
        of = training("swap", weight=None, seed=seed, compare_every_n_batches=0)
        guided(of, model, columns(), number)
        return model.seen[0]

    assert torch.equal(swapped(0, 3), swapped(0, 3))
    assert not torch.equal(swapped(0, 3), swapped(0, 4))
    assert not torch.equal(swapped(0, 3), swapped(1, 3))


def test_a_map_loss_is_that_of_the_steps_own_pass():
    model, batch = Pooled(), columns()
    loss, _ = guided(training("energy", method="input_x_gradient"), model, batch)
    found = attribute(model, batch["image"], batch["label"], "input_x_gradient")
    assert found.grid is not None
    given = mask_to_tokens(batch["mask"], found.grid)
    annotation = TokenAnnotation(given.evidence.double(), given.valid.double())
    expected = task_loss(model, batch) + guidance_loss(found.scores, annotation, "energy")
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)


def test_the_first_step_is_rejected_and_a_later_failure_counted():
    batch = columns()
    batch["mask"][:] = 1
    with pytest.raises(ValueError, match="mark all of every sample"):
        guided(training("rrr"), Pooled(), batch)
    of, model = training("rrr", on_error="warn"), Pooled()
    guided(of, model, columns())
    assert of.state.worked
    step = of.begin(model, model, columns(), Progress(1, 1), torch_processes())
    with step.listening():
        loss = task_loss(model, {name: x[:3] for name, x in columns().items()})  # not the samples of the batch
    with pytest.warns(UserWarning, match="never called"):
        assert step.guided(loss) is not None
    assert of.failures == 1


def test_a_step_that_calls_a_part_guides_that_from_the_next_step_on():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Pooled()

        def forward(self, image):
            return self.inner(image)

    of, outer = training(), Outer()
    said: list[str] = []
    of.state.messages.send = said.append
    step = of.begin(outer, outer, columns(), Progress(0, 0), torch_processes())
    with step.listening():
        loss = task_loss(outer.inner, columns())
    step.guided(loss)
    assert of.state.part is outer.inner
    assert "Pooled itself, which is guided from now on" in said[0]
    after = of.begin(outer, outer, columns(), Progress(1, 1), torch_processes())
    assert after.model is outer.inner
