"""A sample that cannot be used has no part in the evaluation; all others have the one that they had."""

import json

import pytest
import torch
import torch.nn.functional as F
from setting import UNSEEING, UNTRAINED, data, loader, module, monitor, trainer
from torch import nn

from lrptrain.loggers import read_events

BAD = 17  # in the last batch but one: beyond the two of the sanity check


def spoiled(**values):
    columns = data()
    for name, value in values.items():
        columns[name][BAD] = value
    return columns


def run(folder, columns, watching=None, pl_module=None, max_epochs=1, **options):
    """A monitor of all samples, after epochs whose training never saw the bad sample."""
    watching = watching or monitor(max_samples=24)
    pl_module = pl_module or module()
    val = columns if isinstance(columns, torch.utils.data.DataLoader) else loader(columns)
    trainer(folder, watching, max_epochs=max_epochs, **options).fit(pl_module, loader(), val)
    return watching, pl_module


def maps(watching):
    return {each.sample.sample_id: each.maps["label"] for each in watching.scored}


def without_bad():
    keep = [i for i in range(24) if i != BAD]
    return {**{name: column[keep] for name, column in data().items()}, "sample_id": torch.tensor(keep)}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return run(tmp_path_factory.mktemp("good"), without_bad(), pl_module=module(), max_epochs=2)[0]


def test_a_bad_sample_is_left_out_named_and_counted_and_the_rest_goes_on(good, tmp_path):
    with pytest.warns(UserWarning, match=f"1 sample is left out for the rest of the run. {BAD}: the label 7") as told:
        watching, _ = run(tmp_path / "a", spoiled(label=7), pl_module=module(**UNSEEING), max_epochs=2)
    assert sum("left out" in str(each.message) for each in told) == 1
    assert watching.failures == 0
    assert maps(watching).keys() == maps(good).keys() == set(range(24)) - {BAD}
    for sample_id, expected in maps(good).items():
        torch.testing.assert_close(maps(watching)[sample_id], expected, rtol=0, atol=1e-5)
    assert [event["scalars"]["relevance/left_out"] for event in read_events(watching.folder)] == [1.0, 1.0]
    assert list(json.loads((watching.folder / "left_out.json").read_text())) == [str(BAD)]
    assert not (good.folder / "left_out.json").exists()


def test_on_request_a_bad_sample_ends_the_run(tmp_path):
    with pytest.raises(ValueError, match=f"{BAD}: mask must be 1"):
        run(tmp_path, spoiled(mask=2), monitor(max_samples=24, on_error="raise"))


class Picky(nn.Module):
    """Cannot take one image, for a reason that no value shows."""

    def __init__(self):
        super().__init__()
        self.net = module().net

    def forward(self, image):
        if not self.training and bool((image[:, 0, 0, 0] == 42).any()):
            raise RuntimeError("not this one")
        return self.net(image)


def test_a_sample_that_the_model_cannot_take_goes_alone_where_ids_repeat(tmp_path):
    """Sound samples with its id come before and after it, and stay: in every epoch, by their place."""
    columns = {**spoiled(), "sample_id": torch.arange(24)}
    others = [BAD + 4, BAD - 8]
    columns["sample_id"][others] = BAD
    columns["image"][BAD, 0, 0, 0] = 42
    with (
        pytest.warns(UserWarning, match=rf"rest of the run. {BAD} \(place {BAD}\): RuntimeError: not this one"),
        pytest.warns(UserWarning, match="24 samples have 22 different ids.*their place in it is written behind the id"),
    ):
        watching, _ = run(tmp_path, columns, pl_module=module(net=Picky(), **UNSEEING), max_epochs=2)
    expected = {str(place) for place in range(24) if place not in (BAD, *others)}
    expected |= {f"{BAD} (place {other})" for other in others}
    assert {each.sample.sample_id for each in watching.scored} == expected
    assert [event["scalars"]["relevance/left_out"] for event in read_events(watching.folder)] == [1.0, 1.0]
    assert watching.failures == 0


def with_boxes(boxes):
    return {**{name: data()[name] for name in ("image", "label")}, "boxes": torch.as_tensor(boxes).float()}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (with_boxes([[[0.1, 0.1, 0.5, 0.9]]] * 24), "'boxes' lie in 0..1, but corners are in pixels"),
        ({**data(), "mask": 0.7 * data()["mask"]}, "binarise it first, for example `.mask > 0.5.`"),
    ],
)
def test_annotations_that_would_be_misread_are_refused(columns, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run(tmp_path, columns, pl_module=module(**UNTRAINED))


def prepared(pl_module, change):
    """A module that changes its images within its steps."""
    read = pl_module.forward
    kind = type(pl_module)
    kind.training_step = lambda self, batch, i: F.cross_entropy(read(change(batch["image"])), batch["label"])
    kind.validation_step = lambda self, batch, i: self(change(batch["image"]))
    return pl_module


def test_without_a_sanity_check_such_images_are_not_explained(tmp_path):
    with pytest.warns(UserWarning, match="failed while drawing the sample: ValueError"):
        watching, _ = run(tmp_path, data(), pl_module=prepared(module(), lambda x: x.flip(-1)), num_sanity_val_steps=0)
    assert watching.failures == 1
    assert watching.scored == []
