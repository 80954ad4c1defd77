"""What cannot work is told before the first optimizer step; what fails later does not end a run."""

import warnings
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from guided import annotated_data, by_hand, fit, guidance, sgd_module, stepped, weights
from setting import vit
from sklearn.datasets import load_sample_images
from test_guidance_gradients import assert_close

from lrptrain.callbacks import RelevanceGuidance
from lrptrain.guidance import MAP_LOSSES

CONSTRUCTED = [
    ({"loss": ["energy"]}, "loss must be a text like"),
    ({"loss": "energy+energy"}, "names energy twice"),
    ({"loss": "swap", "weight": 10.0}, "share of the samples"),
    ({"loss": {"swap": 0.0}}, "share of the samples|positive"),
    ({"weight": float("nan")}, "positive and finite, not nan"),
    ({"target": "true"}, "target must be 'label' or 'predicted', not 'true'"),
    ({"max_samples": 0}, "max_samples must be at least 1, not 0"),
    ({"on_error": "ignore"}, "on_error must be 'warn' or 'raise', not 'ignore'"),
]


@pytest.mark.parametrize(("options", "message"), CONSTRUCTED)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        RelevanceGuidance(**{"loss": "energy", **options})


def without(name, samples=6):
    return {key: x for key, x in annotated_data(samples).items() if key != name}


def replaced(**entries):
    return {**annotated_data(), **entries}


ABSENT = torch.full((6, 16, 16), 255, dtype=torch.uint8)
FIRST_BATCH = [
    ("no annotation", without("mask"), {}, "no annotation of images in a batch with .*needs 'mask' or 'boxes'"),
    ("all ignored", replaced(mask=ABSENT), {}, "no sample of the first guided batch has an annotation.*sparse=True"),
    ("label", without("label"), {}, "no 'label' in a batch with .*target='predicted'"),
    ("no call", annotated_data(), {"model": "net.head"}, "never called Linear with the 6 samples"),
]


@pytest.mark.parametrize(
    ("columns", "options", "message"), [case[1:] for case in FIRST_BATCH], ids=[x[0] for x in FIRST_BATCH]
)
def test_told_in_the_first_batch(columns, options, message, tmp_path):
    pl_module = sgd_module()
    if "label" not in columns:
        type(pl_module).training_step = lambda self, batch, batch_idx: self(batch["image"]).sum()
    if options.get("model") == "net.head":
        pl_module.net.global_pool = ""  # the head sees tokens, and the loss is made of one
        type(pl_module).training_step = lambda self, batch, batch_idx: self(batch["image"]).flatten(0, 1)[:5].sum()
        pl_module.net.head.register_forward_pre_hook(lambda module, given: given[0].flatten(0, 1))
    start = weights(pl_module)
    with pytest.raises(ValueError, match=message):
        fit(tmp_path, pl_module, columns, guidance(on_error="warn", **options))
    assert_close(weights(pl_module), start, 0.0)
    assert "training_step" not in vars(pl_module)
    assert "forward" not in vars(pl_module)


def test_no_annotation_at_first_where_annotations_are_sparse(tmp_path):
    columns = annotated_data(12)
    columns["mask"][:6] = 255
    guided = guidance(sparse=True)
    fit(tmp_path, sgd_module(), columns, guided)
    assert guided.failures == guided.skipped == 0


def test_manual_optimisation(tmp_path):
    with pytest.raises(
        ValueError, match=r"Classifier optimises manually and returns none.*automatic_optimization = True"
    ):
        fit(tmp_path, sgd_module(automatic_optimization=False), annotated_data(), guidance())


def test_a_subclass_is_a_second_guidance(tmp_path):
    class Mine(RelevanceGuidance):
        pass

    with pytest.raises(ValueError, match="one RelevanceGuidance per trainer"):
        fit(tmp_path, sgd_module(), annotated_data(), guidance(), Mine("l1"))


def test_masks_as_png_files_hold_them(tmp_path):
    """0 and 255: read as they are, nothing is evidence, and the guidance has no gradient."""
    columns = annotated_data()
    columns["mask"] = columns["mask"] * 255
    with pytest.raises(ValueError, match="pass `mask > 0`"):
        fit(tmp_path, sgd_module(), columns, guidance(on_error="warn"))


@pytest.mark.parametrize(("value", "marks", "loss"), [(1, "all", "energy"), (0, "nothing", "consistency")])
def test_annotations_that_give_no_gradient_are_refused(value, marks, loss, tmp_path):
    columns = replaced(mask=torch.full((6, 16, 16), value, dtype=torch.uint8))  # nothing is inside, or outside
    pl_module = sgd_module()
    start = weights(pl_module)
    with pytest.raises(ValueError, match=f"the first guided batch mark {marks} of every sample.*`mask > 0`"):
        fit(tmp_path, pl_module, columns, guidance(loss, compare_every_n_batches=0))
    assert_close(weights(pl_module), start, 0.0)


def test_sparse_batches_may_have_no_annotation_at_all(tmp_path):
    """A collate function that writes None for each sample without one may write nothing else."""

    def adapted(batch):
        return {**batch, "mask": [None] * 6 if batch["sample_id"][0] == 0 else batch["mask"]}

    guided = guidance(sparse=True, batch_adapter=adapted)
    runner = fit(tmp_path, sgd_module(), annotated_data(12), guided)
    assert guided.failures == 0
    assert runner.callback_metrics["guidance/samples"] == 6


def test_where_annotations_are_sparse_they_may_give_no_gradient(tmp_path):
    columns = replaced(mask=torch.ones(6, 16, 16, dtype=torch.uint8))
    runner = fit(tmp_path, sgd_module(), columns, guidance(sparse=True))
    assert runner.callback_metrics["guidance/norm_ratio"] == 0


def zero_head():
    net = vit().double()
    torch.nn.init.zeros_(net.head.weight)
    return net


def test_a_head_of_zeros_is_guided_after_its_first_step(tmp_path):
    guided = guidance()
    runner = fit(tmp_path, sgd_module(zero_head()), annotated_data(12), guided)
    assert runner.callback_metrics["guidance/norm_ratio"] > 0  # compared anew in the second batch
    assert guided.failures == 0


def test_a_guidance_that_never_has_a_gradient_is_refused_after_a_few_steps(tmp_path):
    net = zero_head()
    net.head.weight.requires_grad_(False)
    pl_module = sgd_module(net)
    with pytest.raises(ValueError, match="the guidance had no gradient in its first 10 steps"):
        fit(tmp_path, pl_module, annotated_data(120), guidance())
    fit(tmp_path, sgd_module(net), annotated_data(60), guidance())  # ten steps


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (lambda x: (x - 0.3) / 2.0, False),
        (lambda x: torch.cat([x[:5], x[5:].flip(-2)]), True),  # one of six
    ],
)
def test_images_that_the_step_moves_are_refused(change, refused, tmp_path):
    pl_module = sgd_module()
    step = lambda self, batch, batch_idx: F.cross_entropy(self(change(batch["image"])), batch["label"])  # noqa: E731
    type(pl_module).training_step = step
    if refused:
        with pytest.raises(ValueError, match="are flipped or turned, and the annotations are not"):
            fit(tmp_path, pl_module, annotated_data(), guidance())
    else:
        fit(tmp_path, pl_module, annotated_data(), guidance())


def photographs():
    """Eight windows of a photograph, of 32 pixels."""
    photo = torch.tensor(load_sample_images().images[0]).permute(2, 0, 1).double() / 255
    windows = torch.stack([photo[:, 20 * i : 20 * i + 200, 55 * i : 55 * i + 200] for i in range(8)])
    mask = torch.zeros(8, 32, 32, dtype=torch.uint8)
    mask[..., :16] = 1
    image = F.interpolate(windows, (32, 32), mode="bilinear", antialias=True)
    return {**annotated_data(8), "image": image, "mask": mask}


@pytest.mark.parametrize(
    ("change", "is_told"),
    [
        (lambda x: (x - 0.5) * 3, False),
        (lambda x: F.interpolate(x[..., 3:25, 7:29], (32, 32), mode="bilinear"), True),
    ],
    ids=["normalised", "cropped"],
)
def test_of_photographs_that_the_step_may_move_it_is_said_once(change, is_told, tmp_path):
    pl_module = sgd_module(vit(img_size=32).double())
    step = lambda self, batch, batch_idx: F.cross_entropy(self(change(batch["image"])), batch["label"])  # noqa: E731
    type(pl_module).training_step = step
    with (
        pytest.warns(UserWarning, match=r"\(8 of 8\). If it crops, shifts or turns them") if is_told else nullcontext()
    ):
        fit(tmp_path, pl_module, photographs(), guidance(), batch_size=8)


def in_three(second=None):
    """Three batches of six; something is the matter with the second."""
    columns = annotated_data(18)
    if second is not None:
        second({name: x[6:12] for name, x in columns.items()})
    return columns


def test_wrong_values_in_a_later_batch_leave_their_sample_unguided(tmp_path):
    """As if nobody had annotated it, and said once."""

    def spoil(batch):
        batch["mask"][1] = 7

    def ignore(batch):
        batch["mask"][1] = 255

    guided = guidance(on_error="warn")
    with pytest.warns(UserWarning, match="leaves out the sample 7: mask must be 1") as told:
        found = stepped(tmp_path, guided, in_three(spoil), max_epochs=2)
    assert guided.left_out == 2
    assert guided.failures == 0
    assert sum("RelevanceGuidance" in str(each.message) for each in told) == 1
    assert_close(found, stepped(tmp_path, guidance(), in_three(ignore), max_epochs=2), 0.0)
    with pytest.raises(ValueError, match="the sample 7: mask must be 1"):
        stepped(tmp_path, guidance(on_error="raise"), in_three(spoil))


def test_a_batch_that_fails_goes_unguided(tmp_path, monkeypatch):
    """As if there were no guidance in that batch, whatever fails: the loss, or the recording of the forward pass."""
    columns = in_three()
    first, unguided = guidance(max_samples=6), {name: x[6:12] for name, x in columns.items()}
    one_batch = {name: x[:6] for name, x in columns.items()}
    two_batches = {name: x[:12] for name, x in columns.items()}
    net = vit().double()
    fit(tmp_path, (after_one := sgd_module(net)), one_batch, first)
    expected = by_hand(unguided, after_one.net, weight=0.0, names="energy")
    own = MAP_LOSSES["energy"]

    def fails_in_the_second(target):
        calls = []

        def called(*args, **kwargs):
            calls.append(args)
            if len(calls) == 2:
                raise RuntimeError("out of memory")
            return target(*args, **kwargs)

        return called

    from lrptrain.relevance.passes import interception, recording

    for owner, name, target in (
        (MAP_LOSSES, "energy", own),
        (vars(interception), "forward_on_tape", recording.forward_on_tape),
    ):
        guided = guidance(on_error="warn")
        with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as told:
            patch.setitem(owner, name, fails_in_the_second(target))
            warnings.simplefilter("always")
            found = stepped(tmp_path, guided, two_batches)
        assert guided.failures == 1
        assert any("RuntimeError: out of memory" in str(each.message) for each in told)
        assert_close(found, expected, 1e-9)


def test_a_loss_that_is_not_finite_is_left_out(tmp_path, monkeypatch):
    columns = annotated_data()
    unguided = by_hand(columns, weight=0.0, names="energy")
    monkeypatch.setitem(MAP_LOSSES, "energy", lambda scores, annotation: scores.sum(-1) * torch.nan)
    guided = guidance(compare_every_n_batches=0)
    pl_module = sgd_module()
    runner = fit(tmp_path, pl_module, columns, guided, gradient_clip_val=1e9)
    assert guided.skipped == 1
    assert_close(weights(pl_module.net), unguided)
    assert runner.callback_metrics["guidance/skipped"] == 1
    assert "guidance/energy" not in runner.callback_metrics
