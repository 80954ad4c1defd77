"""Methods that need no tape get none, and their maps are those of a tape; what only a tape can follow, it follows."""

from typing import Any

import numpy as np
import pytest
import torch
from model_zoo import KINDS
from small_models import Block, Small, patches
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import lrptrain
from lrptrain.relevance.passes.forward_pass import forward_pass
from lrptrain.relevance.passes.plain_pass import MOST_KNOWN, NeedsTape, PlainPass, _known
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.registry import get_method
from lrptrain.relevance.tape.tape import Tape

GRADIENT = [name for name in lrptrain.methods() if get_method(name, {}).needs in ("answers", "gradient")]
FEW: dict[str, dict[str, Any]] = {
    "integrated_gradients": {"steps": 3},
    "smoothgrad": {"samples": 3},
    "lime": {"samples": 20},
}
FEW["kernel_shap"] = FEW["lime"]


def on_tape(model: nn.Module, inputs: Any, method: str, **options: Any) -> lrptrain.Relevance:
    return lrptrain.record(model, inputs).attribute(1, method, **options)


@pytest.fixture
def no_tape(monkeypatch):
    """Fails who records."""

    def recording(*_):
        raise AssertionError("a tape was entered")

    monkeypatch.setattr(Tape, "recording", recording)


def test_which_methods_need_no_tape():
    assert set(GRADIENT) == {
        "input_x_gradient", "integrated_gradients", "smoothgrad", "leave_one_out", "lime", "kernel_shap", "random",
    }  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_a_map_is_that_of_the_tape(name):
    model, inputs = KINDS[name].build(True), KINDS[name].inputs()
    for _ in range(2):  # where the tokens stand is known from the first call on
        mine = lrptrain.attribute(model, inputs, 1, "input_x_gradient")
        theirs = on_tape(model, inputs, "input_x_gradient")
        assert mine.grid == theirs.grid
        assert mine.input is not None
        assert theirs.input is not None
        for one, other in ((mine.scores, theirs.scores), (mine.input, theirs.input), (mine.logits, theirs.logits)):
            assert torch.allclose(one, other, rtol=1e-9, atol=1e-12 * float(other.abs().max()))


@pytest.mark.filterwarnings("ignore:integrated_gradients has not converged")
@pytest.mark.parametrize("method", GRADIENT)
@pytest.mark.parametrize("name", ["vit", "bert"])
def test_so_are_those_of_all_such_methods(name, method):
    model, inputs, options = KINDS[name].build(True), KINDS[name].inputs(), FEW.get(method, {})
    mine = lrptrain.attribute(model, inputs, 1, method, **options)
    assert torch.allclose(mine.scores, on_tape(model, inputs, method, **options).scores, rtol=1e-9, atol=1e-12)


def test_a_text_takes_no_tape(no_tape):
    lrptrain.attribute(KINDS["bert"].build(True), KINDS["bert"].inputs(), 1, "input_x_gradient")


def test_an_image_takes_one_for_each_shape_and_state_of_the_model(monkeypatch):
    entered = []
    recording = Tape.recording

    def counted(tape, model):
        entered.append(model)
        return recording(tape, model)

    monkeypatch.setattr(Tape, "recording", counted)
    model = Small()

    def tapes(images):
        entered.clear()
        grid = lrptrain.attribute(model, images, 1, "input_x_gradient").grid
        return bool(entered), grid

    assert tapes(patches()) == (True, (4, 4))
    assert tapes(patches() + 1) == (False, (4, 4))
    twice = torch.cat([patches(), patches()])
    assert tapes(twice) == (False, (4, 4)), "more samples, as in another batch, have the same tokens"
    one, both = (lrptrain.attribute(model, images, 1, "input_x_gradient").input for images in (patches(), twice))
    assert one is not None
    assert both is not None
    torch.testing.assert_close(both, torch.cat([one, one]))
    assert tapes(patches()[:1]) == (True, (4, 4)), "of one sample nothing shows whether it is one"
    model.embed.stride, model.position = (6, 6), nn.Parameter(torch.zeros(9, 8, dtype=torch.float64))
    assert tapes(patches()) == (True, (3, 3))
    model.embed.padding = (1, 1)
    assert tapes(patches())[0]
    assert len(_known[model]) == 4
    model.train()
    assert [tapes(patches())[0] for _ in range(2)] == [True, True], (
        "in train mode a model may do another thing each time"
    )


def test_what_is_known_is_no_more_than_a_few_shapes():
    class Free(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Conv2d(3, 4, 4, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.embed(x).flatten(2).mean(2))

    model = Free().eval()
    for size in range(8, 8 + 4 * (MOST_KNOWN + 3), 4):
        lrptrain.attribute(model, torch.randn(1, 3, size, 8), 1, "input_x_gradient")
    assert len(_known[model]) == MOST_KNOWN


class Written(torch.autograd.Function):
    """Fills memory as a kernel does."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def through_numpy(x: Tensor) -> Tensor:
    return x + torch.from_numpy(x.detach().numpy() * 2.0)


def into_empty(x: Tensor) -> Tensor:
    memory = torch.empty_like(x)
    memory.numpy()[:] = np.asarray(x.detach())
    return x + memory


def in_inference_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        y = x * 2
    return x + y.clone()


@pytest.mark.parametrize("function", [through_numpy, into_empty, in_inference_mode])
def test_what_no_gradient_follows_is_refused_as_by_the_tape(function):
    model = Small(Block(function))
    with pytest.raises(NeedsTape), torch.enable_grad():
        forward_pass(model, patches(), plain=PlainPass)
    with pytest.raises((lrptrain.UnsupportedOperationError, lrptrain.UnsupportedModelError)) as theirs:
        on_tape(model, patches(), "input_x_gradient")
    with pytest.raises(type(theirs.value)) as mine:
        lrptrain.attribute(model, patches(), 1, "input_x_gradient")
    assert str(mine.value) == str(theirs.value)


def test_a_custom_function_has_its_own_gradient():
    model = Small(Block(Written.apply))
    mine = lrptrain.attribute(model, patches(), 1, "input_x_gradient")
    plain = lrptrain.attribute(Small(Block(lambda x: x * 2)), patches(), 1, "input_x_gradient")
    assert torch.allclose(mine.scores, plain.scores)


def test_no_grad_inside_of_a_model_cuts_nothing_off():
    def switched_off(x: Tensor) -> Tensor:
        with torch.no_grad():
            return x * 2

    mine = lrptrain.attribute(Small(Block(switched_off)), patches(), 1, "input_x_gradient")
    plain = lrptrain.attribute(Small(Block(lambda x: x * 2)), patches(), 1, "input_x_gradient")
    assert torch.allclose(mine.scores, plain.scores)


def test_checkpointed_blocks_run_again():
    class Kept(Small):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)

    mine = lrptrain.attribute(Kept(), patches(), 1, "input_x_gradient")
    assert torch.allclose(mine.scores, lrptrain.attribute(Small(), patches(), 1, "input_x_gradient").scores)


def test_of_a_detached_input_the_same_is_said():
    frozen = nn.Sequential(Block(Tensor.detach), Small().requires_grad_(False)).eval()
    for model in (Small(Block(Tensor.detach)), frozen):
        with pytest.raises(lrptrain.UnsupportedModelError, match="detach"):
            lrptrain.attribute(model, patches(), 1, "input_x_gradient")


class Words(nn.Module):
    """Reads each word by its id, and by a hash of it in another table."""

    def __init__(self, hashed: bool):
        super().__init__()
        self.words, self.hashes, self.head = nn.Embedding(50, 4), nn.Embedding(7, 4), nn.Linear(4, 2)
        self.hashed = hashed

    def forward(self, input_ids):
        x = self.words(input_ids)
        if self.hashed:
            x = x + self.hashes((input_ids * 3 + 1) % 7)
        return self.head(x.tanh().mean(1))


def test_words_that_are_looked_up_twice_count_twice():
    ids = torch.arange(12).view(2, 6)
    for hashed in (False, True):
        model = Words(hashed).eval()
        mine = lrptrain.attribute(model, ids, 1, "input_x_gradient")
        theirs = on_tape(model, ids, "input_x_gradient")
        assert torch.allclose(mine.scores, theirs.scores, atol=1e-7)
        assert mine.input is not None
        assert mine.input.shape[-1] == (8 if hashed else 4)


class Two(nn.Module):
    """Reads two images of one size, cut into patches of two sizes."""

    def __init__(self):
        super().__init__()
        self.fine, self.coarse, self.head = nn.Conv2d(3, 4, 4, 4), nn.Conv2d(3, 4, 8, 8), nn.Linear(4, 2)

    def forward(self, near, far):
        return self.head(self.fine(near).tanh().mean((2, 3)) + self.coarse(far).tanh().mean((2, 3)))


def test_two_inputs_of_one_size_are_two():
    model = Two().eval()
    images = {"near": torch.randn(2, 3, 16, 16), "far": torch.randn(2, 3, 16, 16)}
    for _ in range(2):
        grids = [lrptrain.attribute(model, images, 1, "input_x_gradient", explain=name).grid for name in images]
        assert grids == [(4, 4), (2, 2)]


class Counting(Small):
    """Counts its calls, and allots memory, as only a tape may see."""

    calls: Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        torch.empty_like(x)
        return super().forward(x) * self.calls


def test_a_pass_that_is_given_up_leaves_nothing_behind():
    model, images = Counting().eval(), patches()
    expected = model(images)
    model.calls.zero_()
    for method in ("input_x_gradient", "random", "attnlrp"):
        assert torch.allclose(lrptrain.attribute(model, images, 1, method).logits, expected.detach())
        assert torch.allclose(lrptrain.attribute(model, images[0], 1, method).logits, expected[:1].detach())
    assert model.calls == 0


def test_one_image_of_as_many_channels_as_classes_is_one():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Conv2d(3, 3, 4, 4)

        def forward(self, x):
            return self.embed(x).tanh().mean((-2, -1))

    for method in ("input_x_gradient", "attnlrp"):
        assert lrptrain.attribute(Mean().eval(), torch.randn(3, 16, 16), 1, method).scores.shape == (1, 16)


def test_one_map_holds_no_graph_while_a_tape_finds_the_tokens(monkeypatch):
    """The two beside each other would take nearly twice the memory of a training pass."""
    found = Recording.found_on_tape
    freed = []

    def looked_at(recording):
        with torch.enable_grad(), pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(recording.output.tensor.sum(), recording.watched.leaf)
        freed.append(True)
        return found(recording)

    model, images = KINDS["vit"].build(True), KINDS["vit"].inputs()
    expected = on_tape(KINDS["vit"].build(True), images, "input_x_gradient").scores
    monkeypatch.setattr(Recording, "found_on_tape", looked_at)
    assert torch.allclose(lrptrain.attribute(model, images, 1, "input_x_gradient").scores, expected, rtol=1e-9)
    assert freed
    monkeypatch.undo()
    # Several maps of one pass need its graph until the last.
    monkeypatch.setattr(Tape, "__init__", lambda *_, **__: pytest.fail("a tape"))
    several = lrptrain.attribute(model, images, 1, ["input_x_gradient", "input_x_gradient"])
    assert torch.allclose(several["input_x_gradient"].scores, expected, rtol=1e-9)
