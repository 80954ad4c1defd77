"""A sample that cannot be used has no part in the evaluation; all others have the one that they had."""

import json
import warnings

import pytest
import torch
import torch.nn.functional as F
from setting import UNSEEING, UNTRAINED, data, loader, module, monitor, trainer
from torch import nn

import lrptrain
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


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (spoiled(image=float("nan")), "'image' holds NaN or infinity: replace such numbers in the dataset"),
        (spoiled(label=7), "the label 7 is no class of the model: as a target it is out of range for 3 classes"),
        (spoiled(mask=2), r"mask must be 1 \(evidence\), 0 \(not\) or 255 \(ignored\), found \[2.0\]"),
    ],
)
def test_a_bad_sample_is_left_out_named_and_counted_and_the_rest_goes_on(columns, problem, good, tmp_path):
    with pytest.warns(UserWarning, match=f"1 sample is left out for the rest of the run. {BAD}: {problem}") as told:
        watching, _ = run(tmp_path / "a", columns, pl_module=module(**UNSEEING), max_epochs=2)
    assert sum("left out" in str(each.message) for each in told) == 1
    assert watching.failures == 0
    assert maps(watching).keys() == maps(good).keys() == set(range(24)) - {BAD}
    for sample_id, expected in maps(good).items():
        torch.testing.assert_close(maps(watching)[sample_id], expected, rtol=0, atol=1e-5)
    assert [event["scalars"]["relevance/left_out"] for event in read_events(watching.folder)] == [1.0, 1.0]
    assert list(json.loads((watching.folder / "left_out.json").read_text())) == [str(BAD)]
    assert not (good.folder / "left_out.json").exists()


def test_where_ids_repeat_no_sound_sample_goes_with_a_bad_one(tmp_path):
    columns = {**spoiled(image=float("nan")), "sample_id": torch.arange(24) % 8}
    with (
        pytest.warns(UserWarning, match="1 sample is left out"),
        pytest.warns(UserWarning, match="23 samples have 8 different ids: `sample_id` must tell"),
    ):
        watching, _ = run(tmp_path, columns, pl_module=module(**UNSEEING))
    assert len(watching.scored) == 23
    assert list(json.loads((watching.folder / "left_out.json").read_text())) == [f"{BAD % 8} (place {BAD})"]


def test_on_request_a_bad_sample_ends_the_run(tmp_path):
    with pytest.raises(ValueError, match=f"{BAD}: mask must be 1"):
        run(tmp_path, spoiled(mask=2), monitor(max_samples=24, on_error="raise"))


def test_a_bad_sample_in_the_sanity_check_is_an_error_that_names_it(tmp_path):
    columns = data()
    columns["mask"][7] = 2  # of the second batch
    columns["sample_id"] = torch.arange(24) + 100
    with pytest.raises(ValueError, match="RelevanceMonitor cannot use the sample 107: mask must be 1"):
        run(tmp_path, columns, pl_module=module(**UNTRAINED))


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


class Sizes(torch.utils.data.Dataset):
    """Two images of another size in a batch of their own, which the model does not take."""

    def __len__(self):
        return 24

    def __getitem__(self, i):
        row = {name: column[i] for name, column in data().items()}
        return {**row, "image": torch.randn(3, 20, 20), "mask": torch.ones(20, 20)} if i in (12, 13) else row


def test_images_of_a_size_that_the_model_does_not_take_are_left_out(tmp_path):
    with pytest.warns(UserWarning, match=r"2 samples are left out.* 12, 13: .*Input height \(20\) doesn't match"):
        watching, _ = run(tmp_path, torch.utils.data.DataLoader(Sizes(), batch_size=2), pl_module=module(**UNSEEING))
    assert maps(watching).keys() == set(range(24)) - {12, 13}


def test_masks_of_0_and_255_behind_unannotated_ones_are_not_used(tmp_path):
    """The first batches say nothing, and later ones never have a 1: read as they are, nothing would be evidence."""
    columns = data()
    columns["mask"] *= 255
    columns["mask"][:10] = 255
    with pytest.warns(UserWarning, match="failed while reading the masks: ValueError: .*`mask > 0`. The annotations a"):
        watching, _ = run(tmp_path, columns)
    assert watching.failures == 1
    assert len(watching.scored) == 24
    assert not any(name.startswith("label/") for name in watching.scored[0].values)


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


@pytest.mark.parametrize("change", [lambda x: x.flip(-1), lambda x: F.interpolate(x, (32, 32)), lambda x: x**2])
def test_annotated_images_that_the_validation_step_moves_are_refused(change, tmp_path):
    """Their annotations may lie elsewhere."""
    pl_module = prepared(module(), change)
    type(pl_module).training_step = lambda self, batch, i: pytest.fail("training began")
    type(pl_module).forward = lambda self, x: self.net(x[..., :16, :16])
    with pytest.raises(ValueError, match="validation_step gives the model other values than 'image' of the batch"):
        run(tmp_path, data(), pl_module=pl_module)


@pytest.mark.parametrize("annotated", [False, True])
def test_what_the_step_makes_of_images_is_explained(annotated, tmp_path):
    """A normalisation moves nothing; without annotations, nothing can lie elsewhere."""
    change = (lambda x: (x - 0.5) / 2) if annotated else (lambda x: x.flip(-1))
    columns = data() if annotated else {name: x for name, x in data().items() if name != "mask"}
    watching, expected = monitor(max_samples=24), monitor(max_samples=24)
    trainer(tmp_path / "a", watching).validate(prepared(module(), change), loader(columns), verbose=False)
    changed = {**columns, "image": change(columns["image"])}
    trainer(tmp_path / "b", expected).validate(module(), loader(changed), verbose=False)
    assert [each.predicted for each in watching.scored] == [each.predicted for each in expected.scored]
    for one, other in zip(watching.scored, expected.scored, strict=True):
        torch.testing.assert_close(one.maps["label"], other.maps["label"])


def test_without_a_sanity_check_such_images_are_not_explained(tmp_path):
    with pytest.warns(UserWarning, match="failed while drawing the sample: ValueError"):
        watching, _ = run(tmp_path, data(), pl_module=prepared(module(), lambda x: x.flip(-1)), num_sanity_val_steps=0)
    assert watching.failures == 1
    assert watching.scored == []


def calls_net(change, forward):
    """A module with a forward of its own, whose steps call `self.net`."""
    pl_module = module()
    kind = type(pl_module)
    kind.forward = lambda self, x: self.net(forward(x))
    kind.training_step = lambda self, batch, i: F.cross_entropy(self.net(change(batch["image"])), batch["label"])
    kind.validation_step = lambda self, batch, i: self.net(change(batch["image"]))
    return pl_module


def test_steps_that_go_round_the_forward_are_compared_with_it(tmp_path):
    half = lambda x: x / 2  # noqa: E731
    same = lambda x: x  # noqa: E731
    for change, forward in ((half, same), (same, half)):
        with pytest.raises(ValueError, match="validation_step gives the model other values than 'image' of the batch"):
            run(tmp_path / "refused", data(), pl_module=calls_net(change, forward))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*never calls.*")
        for change in (half, same):
            watching, _ = run(tmp_path / change(8.0).hex(), data(), pl_module=calls_net(change, change))
            assert len(watching.scored) == 24


def test_a_step_that_never_calls_the_model_is_mentioned(tmp_path):
    pl_module = calls_net(lambda x: x, lambda x: x)
    pl_module.other = torch.nn.Linear(3 * 16 * 16, 3)
    type(pl_module).validation_step = lambda self, batch, i: self.other(batch["image"].flatten(1))
    with pytest.warns(UserWarning, match="validation_step never calls Classifier.*model='other'"):
        run(tmp_path, data(), pl_module=pl_module)


class Bytes(nn.Module):
    def __init__(self, scales):
        super().__init__()
        self.net = module().net
        self.scales = scales

    def forward(self, image):
        if self.scales and image.dtype == torch.uint8:
            return self.net(image / 255)
        return self.net(image.float())


@pytest.mark.parametrize("scales", [False, True])
def test_images_of_bytes(scales, tmp_path):
    """They are explained as floats, unless the model reads these otherwise."""
    columns = {**data(), "image": torch.randint(0, 256, (24, 3, 16, 16), dtype=torch.uint8)}
    pl_module = module(net=Bytes(scales))
    watching = monitor(max_samples=24)
    runner = trainer(tmp_path, watching)
    if scales:
        with pytest.raises(ValueError, match=r"'image' as bytes .* which it reads otherwise"):
            runner.fit(pl_module, loader(columns), loader(columns))
    else:
        runner.fit(pl_module, loader(columns), loader(columns))
        assert len(watching.scored) == 24


def test_images_of_bytes_in_a_loop_that_makes_floats_of_them():
    """Nobody can know what it makes of them: the model alone would be given other numbers than in training."""
    columns = {**data(), "image": torch.randint(0, 256, (24, 3, 16, 16), dtype=torch.uint8)}
    net = module().net
    with pytest.raises(ValueError, match=r"step=lambda model, batch: model\(batch\['image'\].float\(\) / 255\)"):
        lrptrain.inspect(net, loader(columns))
    with pytest.raises(ValueError, match=r"'image' as bytes .* which it reads otherwise"):
        lrptrain.inspect(Bytes(scales=True), loader(columns))
    assert lrptrain.inspect(Bytes(scales=False), loader(columns))
    assert lrptrain.inspect(net, loader(columns), step=lambda model, batch: model(batch["image"] / 255))
    assert lrptrain.inspect(net, loader(columns), step=lambda model, batch: model(batch["image"].float()))


def reads_batches():
    pl_module = module()
    kind = type(pl_module)
    kind.forward = lambda self, batch: self.net(batch["image"])
    kind.training_step = lambda self, batch, i: F.cross_entropy(self(batch), batch["label"])
    kind.validation_step = lambda self, batch, i: self(batch)
    return pl_module


def test_a_forward_that_takes_the_batch_names_what_to_take_instead(tmp_path):
    with pytest.raises(ValueError, match=r"the forward of Classifier takes the whole batch.*model='net'"):
        run(tmp_path / "a", data(), pl_module=reads_batches())
    watching, _ = run(tmp_path / "b", data(), monitor(max_samples=24, model="net"), reads_batches())
    assert len(watching.scored) == 24
