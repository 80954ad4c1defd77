"""Every model that the tests run: by a plan or by the tape, the map is the same."""

import gc
import importlib
import weakref
from typing import Any

import pytest
import torch
from model_zoo import KINDS, select
from small_models import tiny_vit

import lrptrain
from lrptrain.relevance.fast.switch import plainly
from lrptrain.relevance.output.logit_view import LogitView, one_logit_as
from lrptrain.relevance.output.outputs import head_of_output
from lrptrain.relevance.passes.plain_pass import MOST_KNOWN
from lrptrain.relevance.swapped import plans

SEVERAL = "the logits read several tokens"
REFUSED = {
    "attnlrp": {},
    "cp_lrp": {},
    "generic_attention": {
        **dict.fromkeys(["vit_distilled", "vit_mean", "beit", "modernbert_mean", "dinov2", "clip", "siglip"], SEVERAL),
        "deberta_v3": "indices say where entries of its scores go",
    },
}
"""By method, the models of which no plan is made, and why."""
WITHOUT_PRODUCTS = ("timm_swin", "hf_swin", "hiera", "pvt", "mvit", "maxvit")
"""Models of windows and stages, which generic attention does not serve."""
CASES = [(method, name) for method in plans.PLANNED for name in KINDS]


@pytest.mark.parametrize(("method", "name"), CASES)
def test_a_model_of_the_zoo_has_the_tapes_map_by_its_plan(method: str, name: str):
    kind = KINDS[name]
    model, inputs = kind.build(True).double(), kind.inputs()
    if method == "generic_attention" and name in WITHOUT_PRODUCTS:
        with pytest.raises((lrptrain.UnsupportedMethodError, lrptrain.UnsupportedModelError)):
            lrptrain.attribute(model, inputs, [0, 3, 4], method)
        return
    with plainly():
        expected = lrptrain.attribute(model, inputs, [0, 3, 4], method)
    found = lrptrain.attribute(model, inputs, [0, 3, 4], method)
    # Not of the token that the logits read, which has 1.
    scale = float(expected.scores.abs().topk(2).values[:, 1].max())
    assert float((found.scores - expected.scores).abs().max()) <= 1e-6 * scale
    assert found.grid == expected.grid
    (state,) = plans._known[model].values()
    assert (state.plan is None) == (name in REFUSED[method]), REFUSED[method].get(name)
    alone = lrptrain.attribute(model, select(inputs, [1]), [3], method)
    width = alone.scores.shape[1]
    assert float((alone.scores[0] - expected.scores[1, :width]).abs().max()) <= 1e-6 * scale


def test_plans_are_forgotten_with_their_model_and_are_few():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)).double().eval()
    for number in range(2 * MOST_KNOWN):
        with head_of_output(number):  # another form, as far as one can see
            plans.planned(model, torch.zeros(2, 3, 2, 2), None, plans.Asked((None,), {}, (0, None), False))
    assert len(plans._known[model]) == MOST_KNOWN
    count = len(plans._known)
    del model
    assert len(plans._known) == count - 1


@pytest.mark.parametrize("method", plans.PLANNED)
@pytest.mark.parametrize("name", ["vit", "bert"])
def test_the_tape_is_gone_before_the_plans_pass_takes_memory(method: str, name: str, monkeypatch: pytest.MonkeyPatch):
    module = importlib.import_module("lrptrain.relevance.attribute")
    run, alive = module.forward_pass, []
    tapes: weakref.WeakSet[Any] = weakref.WeakSet()

    def counted(*args, **options):
        alive.append(len(tapes))
        passed = run(*args, **options)
        if "tape_type" in options:
            tapes.add(passed.tape)
        return passed

    monkeypatch.setattr(module, "forward_pass", counted)
    kind = KINDS[name]
    gc.disable()
    try:
        lrptrain.attribute(kind.build(True), kind.inputs(), 0, method)
    finally:
        gc.enable()
    assert alive == [0, 0]
    assert len(tapes) == 0


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("method", plans.PLANNED)
def test_a_monitors_view_of_one_logit_has_a_plan_of_its_own(method: str, classes: int):
    """A monitor reads one logit as two, and leaves several as they are."""
    model = tiny_vit(num_classes=classes).double().eval()
    images, target = torch.randn(4, 3, 16, 16, dtype=torch.float64), [0, 1, 1, 0]
    with plainly(), one_logit_as(LogitView()):
        expected = lrptrain.attribute(model, images, target, method)
    with one_logit_as(LogitView()):
        found = [lrptrain.attribute(model, images, target, method) for _ in range(2)]
    for each in found:
        assert torch.allclose(each.scores, expected.scores, rtol=1e-9, atol=1e-15)
        assert torch.allclose(each.logits, expected.logits)
    (state,) = plans._known[model].values()
    assert state.plan is not None
    lrptrain.attribute(model, images, 0, method)  # as it is
    assert len(plans._known[model]) == 2
