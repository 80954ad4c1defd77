"""A model is as it was after an attribution: also what its attributes hold, and what an earlier call left there."""

import pickle
from collections import defaultdict, deque
from typing import Any

import pytest
import torch
from model_zoo import randomised
from small_models import Small
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain
from lrptrain.relevance.model import contents


def tiny_vit():
    from timm.models.tiny_vit import TinyVit

    ones, widths = (1, 1, 1, 1), (8, 16, 16, 24)
    return TinyVit(num_classes=3, embed_dims=widths, depths=ones, num_heads=(1, 2, 2, 2), window_sizes=(2, 2, 2, 2))


def levit():
    from timm.models.levit import Levit

    sizes: dict[str, Any] = {"embed_dim": (16, 24, 32), "key_dim": 4, "depth": (1, 1, 1), "num_heads": (2, 2, 2)}
    return Levit(img_size=64, num_classes=3, **sizes)


def efficient_vit():
    from timm.models.efficientvit_msra import EfficientVitMsra

    sizes: dict[str, Any] = {"embed_dim": (16, 24, 32), "key_dim": (4, 4, 4), "depth": (1, 1, 1)}
    heads: dict[str, Any] = {"num_heads": (2, 2, 2), "window_size": (2, 2, 2), "kernels": (3, 3, 3, 3)}
    return EfficientVitMsra(img_size=64, num_classes=3, **sizes, **heads)


def efficient_former():
    from timm.models.efficientformer import EfficientFormer

    return EfficientFormer(num_classes=3, depths=(1, 1, 1, 1), embed_dims=(8, 8, 8, 16), num_vit=1)


FAMILIES = {tiny_vit: 64, levit: 64, efficient_vit: 64, efficient_former: 224}


def state(model: nn.Module) -> dict[str, Any]:
    """What a model consists of: the identity of all that its attributes hold, and its numbers."""
    return {name: (content(vars(module)), pickle.dumps(module.state_dict())) for name, module in model.named_modules()}


def content(x: Any) -> Any:
    if isinstance(x, Tensor):
        return id(x), pickle.dumps(x.detach().clone().numpy()), x.requires_grad
    if isinstance(x, dict):
        return id(x), [(key, content(value)) for key, value in x.items()]
    if isinstance(x, (list, set, deque)):
        return id(x), [content(item) for item in x]
    return id(x)


@pytest.mark.parametrize("build", FAMILIES, ids=lambda build: build.__name__)
def test_families_that_keep_tensors_between_calls(build):
    model = randomised(build())
    x = torch.randn(1, 3, FAMILIES[build], FAMILIES[build], dtype=torch.float64)
    fresh = state(model)
    first = lrptrain.attribute(model, x, 1, "attnlrp").scores
    assert state(model) == fresh
    assert torch.equal(lrptrain.attribute(model, x, 1, "attnlrp").scores, first)
    model(x)  # leaves a cache with a graph that leads to parameters
    cached = state(model)
    assert cached != fresh
    torch.testing.assert_close(lrptrain.attribute(model, x, 1, "attnlrp").scores, first, rtol=1e-9, atol=1e-12)
    assert state(model) == cached


class Hoarding(Small):
    """Keeps what it can, wherever it can."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.ones(8, dtype=torch.float64))
        self.cache: dict[str, Any] = {"list": [torch.ones(2)], "deep": {"count": torch.zeros(1)}}
        self.grouped: dict[str, list[Any]] = defaultdict(list)
        self.recent: deque[Any] = deque(maxlen=2)
        self.seen = {1}
        self.count = torch.zeros(3)
        self.unseen = None

    def forward(self, x: Tensor) -> Tensor:
        self.cache.setdefault("bias", self.bias * 2)
        self.cache["list"].append(x)
        self.cache["list"][0] += 1
        self.cache["deep"]["count"].add_(1)
        self.cache["deep"]["more"] = x
        self.grouped["inputs"].append(x.detach())
        self.recent.append(x)
        self.seen.add(len(self.recent))
        self.count += 1
        self.unseen = x
        self.late = nn.Parameter(torch.zeros(1))
        return super().forward(x) + self.cache["bias"].sum()


@pytest.mark.parametrize("method", ["attnlrp", "integrated_gradients"])
def test_whatever_a_module_keeps(method):
    model = Hoarding()
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    before = state(model)
    first = lrptrain.attribute(model, x, 1, method).scores
    assert state(model) == before
    assert torch.equal(lrptrain.attribute(model, x, 1, method).scores, first)
    assert state(model) == before


def test_a_tensor_too_large_to_be_put_back_is_told(monkeypatch):
    monkeypatch.setattr(contents, "_COPIED", 3)
    with pytest.warns(lrptrain.RelevanceWarning, match="changes 'count' in its forward.*register_buffer"):
        lrptrain.attribute(Hoarding(), torch.randn(2, 3, 16, 16, dtype=torch.float64), 1, "attnlrp")


class Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch._C.DisableTorchFunction():  # as a kernel that is no function of torch
            return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def test_a_graph_that_leads_to_the_input_is_no_cache():
    """A constant with a graph of parameters, made before; and the same beside what comes from the input, unseen."""

    class Cached(Small):
        def forward(self, x: Tensor) -> Tensor:
            tokens = self.embed(x).flatten(2).transpose(1, 2)
            if leaks:
                tokens = Cut.apply(tokens)
            return self.head((tokens * scale + F.relu(scale)).mean(1))

    model, x = Cached(), torch.randn(2, 3, 16, 16, dtype=torch.float64)
    scale = Cut.apply(model.position[0] + 2)
    leaks = False
    first = lrptrain.attribute(model, x, 1, "attnlrp").scores
    scale = scale.detach()
    torch.testing.assert_close(lrptrain.attribute(model, x, 1, "attnlrp").scores, first, rtol=1e-12, atol=1e-14)
    leaks = True
    with pytest.raises(lrptrain.UnsupportedOperationError, match=r"CutBackward in module .* outside of torch's"):
        lrptrain.attribute(model, x, 1, "attnlrp")
