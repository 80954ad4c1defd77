"""What a step gives the model is what is explained, and what lies elsewhere than its annotations is refused."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lrptrain.batch.call import ARGUMENT
from lrptrain.monitor.model_input import InputListener, by_names, check_bytes, copied, with_call, without_given
from lrptrain.relevance.types import RelevanceWarning


class Pooled(nn.Module):
    """A linear model of mean colours, in a module whose forward changes nothing."""

    def __init__(self, change=lambda x: x):
        super().__init__()
        self.head, self.change = nn.Linear(3, 2), change

    def forward(self, image):
        return self.head(self.change(image).float().mean((2, 3)))


class Around(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.net, self.other, self.own = Pooled(), nn.Linear(48, 2), forward

    def forward(self, image):
        return self.net(self.own(image))


def columns(annotated=True):
    image = torch.randn(4, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    mask = {"mask": (torch.arange(4) < 2).long().expand(4, 4, 4)} if annotated else {}
    return {"image": image, "label": torch.arange(4) % 2, **mask}


def heard(model, step, batch, explain=None):
    """The batch as a monitor has it, once a step was listened to."""
    listener = InputListener(model, batch)
    step(batch)
    listener.stop()
    return with_call(listener, batch, explain, "validation_step")


@pytest.mark.parametrize("change", [lambda x: x.flip(-1), lambda x: F.interpolate(x, (8, 8)), lambda x: x**2])
def test_annotated_images_that_the_step_moves_are_refused(change):
    model = Pooled()
    with pytest.raises(ValueError, match="validation_step gives the model other values than 'image'"):
        heard(model, lambda batch: model(change(batch["image"])), columns())


@pytest.mark.parametrize("annotated", [False, True])
def test_what_the_step_makes_of_images_is_explained(annotated):
    """A normalisation moves nothing; without annotations, nothing can lie elsewhere."""
    change = (lambda x: (x - 0.5) / 2) if annotated else (lambda x: x.flip(-1))
    model, batch = Pooled(), columns(annotated)
    found = heard(model, lambda batch: model(change(batch["image"])), batch)
    assert torch.equal(found["image"], change(batch["image"]))


def test_steps_that_go_round_the_forward_are_compared_with_it():
    half = lambda x: x / 2  # noqa: E731
    same = lambda x: x  # noqa: E731
    for step, forward in ((half, same), (same, half), (half, half), (same, same)):
        model = Around(forward)
        run = lambda batch, model=model, step=step: model.net(step(batch["image"]))  # noqa: E731
        if step is forward:
            assert "image" in heard(model, run, columns())
            continue
        with pytest.raises(ValueError, match="as its forward does"):
            heard(model, run, columns())


def test_a_step_that_never_calls_the_model_is_mentioned():
    model = Around(lambda x: x)
    with pytest.warns(RelevanceWarning, match="never calls Around"):
        heard(model, lambda batch: model.other(batch["image"].flatten(1)), columns())


def test_a_forward_that_takes_the_batch_or_what_has_no_name_is_refused():
    class Whole(Around):
        def forward(self, batch):
            return self.net(batch["image"])

    class Unnamed(Around):
        def forward(self, *inputs):
            return self.net(inputs[0])

    for kind, message in ((Whole, "takes the whole batch"), (Unnamed, r"takes \*args")):
        model = kind(None)
        given = (lambda batch: (batch,)) if kind is Whole else (lambda batch: (batch["image"], batch["label"]))
        with pytest.raises(ValueError, match=message):
            heard(model, lambda batch, model=model, given=given: model(*given(batch)), columns())


class Two(nn.Module):
    def forward(self, mri, ct):
        return (mri + ct).mean((2, 3))


def test_which_of_two_images_is_asked_and_the_named_one_is_explained():
    mri, ct = columns()["image"], columns()["image"] + 1
    batch, model = {"label": torch.arange(4) % 2}, Two()
    step = lambda _: model(mri, ct)  # noqa: E731
    with pytest.raises(ValueError, match=r"gives the model 'mri' and 'ct'.* explain='mri'"):
        heard(model, step, batch)
    with pytest.raises(ValueError, match=r"explain='pet' is no tensor .* it gives \['ct', 'mri'\]"):
        heard(model, step, batch, "pet")
    found = heard(model, step, batch, "ct")
    assert torch.equal(found["image"], ct)
    assert torch.equal(found[f"{ARGUMENT}mri"], mri)


def test_of_a_tuple_what_the_model_was_given_is_no_label():
    mri, label, model = columns()["image"], torch.arange(4) % 2, Two()
    batch = (mri, mri + 1, label)
    listener = InputListener(model, batch)
    model(batch[0], batch[1])
    listener.stop()
    assert listener.given == {0, 1}
    assert [x is y for x, y in zip(without_given(batch, listener), (mri, label), strict=True)] == [True, True]


def test_without_a_step_the_entry_that_is_named_is_explained():
    batch = {"label": torch.arange(4) % 2, "mri": columns()["image"], "ct": columns()["image"]}
    assert torch.equal(by_names(Two(), batch, "ct")["image"], batch["ct"])
    with pytest.raises(ValueError, match=r"explain='pet' is no entry .* these are \['ct', 'mri'\]"):
        by_names(Two(), batch, "pet")


@pytest.mark.parametrize("scales", [False, True])
def test_bytes_that_the_model_reads_otherwise_than_floats_are_refused(scales):
    model = Pooled(lambda x: x / 255 if scales and x.dtype == torch.uint8 else x)
    batch = {**columns(), "image": torch.randint(0, 256, (4, 3, 4, 4), dtype=torch.uint8)}
    listener = InputListener(model, batch)
    model(batch["image"])
    listener.stop()
    contract = {**batch, "image": batch["image"].float()}
    if not scales:
        check_bytes(model, contract, listener, "validation_step")
        return
    with pytest.raises(ValueError, match=r"'image' as bytes .* takes otherwise"):
        check_bytes(model, contract, listener, "validation_step")


def test_what_a_step_changes_in_place_is_not_believed():
    batch = columns()
    kept = copied(batch)
    batch["image"].zero_()
    assert kept["image"].any()
    graph = {"image": torch.ones(1, requires_grad=True) * 2}
    assert copied(graph) is graph
