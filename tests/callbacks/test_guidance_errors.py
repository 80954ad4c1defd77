"""What cannot work is told before the first optimizer step; what fails later does not end a run."""

import warnings

import pytest
import torch
from guided import annotated_data, by_hand, fit, guidance, sgd_module, stepped, weights
from setting import vit
from test_guidance_gradients import assert_close
from torch.utils.data import IterableDataset

from lrptrain.callbacks import RelevanceGuidance
from lrptrain.guidance import MAP_LOSSES
from lrptrain.relevance import UnsupportedMethodError

CONSTRUCTED = [
    ({"loss": "enrgy"}, "unknown guidance loss 'enrgy'.*energy"),
    ({"loss": ""}, "loss must be a text like"),
    ({"loss": {}}, "loss must be a text like"),
    ({"loss": {"energy": 0.0}}, "the weight of energy must be positive and finite, not 0"),
    ({"weight": -1.0}, "the weight of energy must be positive and finite, not -1"),
    ({"weight": float("nan")}, "positive and finite, not nan"),
    ({"target": "true"}, "target must be 'label' or 'predicted', not 'true'"),
    ({"annotated_fraction": 0.0}, r"annotated_fraction must lie in \(0, 1\], not 0.0"),
    ({"every_n_batches": 0}, "every_n_batches must be at least 1, not 0"),
    ({"max_samples": 0}, "max_samples must be at least 1, not 0"),
    ({"warmup_steps": -1}, "warmup_steps must not be negative, got -1"),
    ({"decay": "exponential"}, "decay must be 'none', 'linear' or 'cosine', got 'exponential'"),
    ({"adaptive": True, "compare_every_n_batches": 0}, "adaptive=True needs compare_every_n_batches of at least 1"),
    ({"on_error": "ignore"}, "on_error must be 'warn' or 'raise', not 'ignore'"),
    ({"margin": -1}, "margin must not be negative, not -1"),
]


@pytest.mark.parametrize(("options", "message"), CONSTRUCTED)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        RelevanceGuidance(**{"loss": "energy", **options})


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("lime", "guidance cannot train through lime; it can through: .*attnlrp.*generic_attention"),
        ("generic_atention", "unknown method 'generic_atention'.*generic_attention"),
    ],
)
def test_wrong_methods(method, message):
    with pytest.raises(UnsupportedMethodError, match=message):
        RelevanceGuidance("energy", method=method)


def test_a_wrong_option_of_a_method():
    with pytest.raises(UnsupportedMethodError, match="start"):
        RelevanceGuidance("energy", method_options={"start": 1})


def without(name, samples=6):
    return {key: x for key, x in annotated_data(samples).items() if key != name}


def replaced(**entries):
    return {**annotated_data(), **entries}


ABSENT = torch.full((6, 16, 16), 255, dtype=torch.uint8)
FIRST_BATCH = [
    ("no annotation", without("mask"), {}, "no annotation of images in a batch with .*needs 'mask' or 'boxes'"),
    (
        "size",
        replaced(mask=ABSENT[:, :8]),
        {},
        r"masks of \(8, 16\) for images of \(16, 16\) pixels: bring both to one",
    ),
    ("values", replaced(mask=ABSENT - 5), {}, r"mask must be 1 \(evidence\), 0 \(not\) or 255"),
    ("all ignored", replaced(mask=ABSENT), {}, "no sample of the first guided batch has an annotation.*sparse=True"),
    ("label", without("label"), {}, "no 'label' in a batch with .*target='predicted'"),
    ("ids", without("sample_id"), {"annotated_fraction": 0.5}, "draws samples by their 'sample_id'"),
    ("rationale", without("mask") | {"rationale": torch.ones(6, 16)}, {}, "no annotation of images in a batch with"),
    (
        "way",
        annotated_data(),
        {"method": "input_x_gradient", "first_order": True},
        "energy reaches no weight that is tra",
    ),
    ("model", annotated_data(), {"model": "nett"}, "model='nett': Classifier has no such attribute"),
    ("no call", annotated_data(), {"model": "net.head"}, "never called Linear with the 6 samples"),
]


@pytest.mark.parametrize("on_error", ["warn", "raise"])
@pytest.mark.parametrize(
    ("columns", "options", "message"), [case[1:] for case in FIRST_BATCH], ids=[x[0] for x in FIRST_BATCH]
)
def test_told_in_the_first_batch(columns, options, message, on_error, tmp_path):
    pl_module = sgd_module()
    if "label" not in columns:
        type(pl_module).training_step = lambda self, batch, batch_idx: self(batch["image"]).sum()
    if options.get("model") == "net.head":
        pl_module.net.global_pool = ""  # the head sees tokens, and the loss is made of one
        type(pl_module).training_step = lambda self, batch, batch_idx: self(batch["image"]).flatten(0, 1)[:5].sum()
        pl_module.net.head.register_forward_pre_hook(lambda module, given: given[0].flatten(0, 1))
    start = weights(pl_module)
    with pytest.raises(ValueError, match=message):
        fit(tmp_path, pl_module, columns, guidance(on_error=on_error, **options))
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


def test_two_guidances(tmp_path):
    with pytest.raises(ValueError, match=r"one RelevanceGuidance per trainer: combine losses, as in loss='consist"):
        fit(tmp_path, sgd_module(), annotated_data(), guidance(), guidance("l1"))


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
    columns["mask"] = columns["mask"] > 0
    columns["mask"] = columns["mask"].to(torch.uint8)
    columns["mask"][::2] = 255  # samples without an annotation are none of that
    fit(tmp_path, sgd_module(), columns, guidance())


def test_a_guidance_without_a_gradient_is_told(tmp_path):
    columns = replaced(mask=torch.ones(6, 16, 16, dtype=torch.uint8))  # there is nothing outside
    with pytest.warns(UserWarning, match=r"the guidance has no gradient in its first comparison .*pass `mask > 0`"):
        runner = fit(tmp_path, sgd_module(), columns, guidance())
    assert runner.callback_metrics["guidance/cosine"].isnan()


class Endless(IterableDataset):
    def __iter__(self):
        columns = annotated_data()
        while True:
            yield {name: x[0] for name, x in columns.items()}


@pytest.mark.parametrize("data", ["map", "iterable"])
def test_decay_without_an_end(data, tmp_path):
    from torch.utils.data import DataLoader

    pl_module, options = sgd_module(), {"max_epochs": -1} if data == "map" else {"limit_train_batches": 1.0}
    pl_module.train_dataloader = lambda: DataLoader(Endless(), batch_size=6)
    from setting import loader, trainer

    given = loader(annotated_data(), 6) if data == "map" else DataLoader(Endless(), batch_size=6)
    with pytest.raises(ValueError, match="decay needs an end: set max_epochs or max_steps of the trainer"):
        trainer(tmp_path, guidance(decay="linear"), **options).fit(pl_module, given)
    runner = trainer(tmp_path, guidance(decay="linear"), max_epochs=-1, max_steps=3)
    runner.fit(pl_module, DataLoader(Endless(), batch_size=6))
    assert runner.callback_metrics["guidance/weight"] == pytest.approx(1 / 3)


def in_three(second=None):
    """Three batches of six; something is the matter with the second."""
    columns = annotated_data(18)
    if second is not None:
        second({name: x[6:12] for name, x in columns.items()})
    return columns


def test_a_wrong_mask_in_a_later_batch(tmp_path):
    columns = in_three(lambda batch: batch["mask"].fill_(7))
    guided = guidance(on_error="warn")
    with pytest.warns(
        UserWarning, match="RelevanceGuidance failed while reading a batch: ValueError: mask must be 1"
    ) as told:
        found = stepped(tmp_path, guided, columns, max_epochs=2)
    assert guided.failures == 2
    assert sum("RelevanceGuidance" in str(each.message) for each in told) == 1
    assert all(x.isfinite().all() for x in found.values())
    with pytest.raises(ValueError, match="mask must be 1"):
        stepped(tmp_path, guidance(on_error="raise"), columns)


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

    from lrptrain.relevance import interception, recording

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


@pytest.mark.parametrize("kind", ["value", "gradient"])
def test_what_is_not_finite_is_left_out(kind, tmp_path, monkeypatch):
    columns = annotated_data()
    unguided = by_hand(columns, weight=0.0, names="energy")

    class NanBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * torch.nan

    def broken(scores, annotation):
        return scores.sum(-1) * torch.nan if kind == "value" else NanBackward.apply(scores.sum(-1))

    monkeypatch.setitem(MAP_LOSSES, "energy", broken)
    guided = guidance(compare_every_n_batches=0)
    pl_module = sgd_module()
    runner = fit(tmp_path, pl_module, columns, guided, gradient_clip_val=1e9)
    assert guided.skipped == 1
    expected = unguided if kind == "value" else weights(vit().double())
    assert_close(weights(pl_module.net), expected)
    assert runner.callback_metrics["guidance/skipped"] == (kind == "value")
    assert ("guidance/energy" in runner.callback_metrics) == (kind == "gradient")
