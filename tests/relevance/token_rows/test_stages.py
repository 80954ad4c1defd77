"""Attention maps through windows, merges and stages, against dense matrices that are put together by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from transformers import SwinConfig, SwinForImageClassification

import lrptrain
from tests.relevance.model_zoo import in_float64, randomised

# -- Swin: windows, shifted windows, and a merge of four tokens --------------------------------------------------------


@pytest.fixture(scope="module")
def swin() -> nn.Module:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"depths": [2, 1], "num_heads": [1, 2], "num_labels": 3, "attn_implementation": "eager"}
    config = SwinConfig(image_size=32, patch_size=4, embed_dim=8, window_size=4, **sizes)
    return in_float64(randomised(SwinForImageClassification(config)))


class Softmaxes(TorchFunctionMode):
    """Keeps what every softmax makes."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[Tensor] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function is F.softmax:
            self.results.append(result)
        return result


def windows(side: int, window: int, shift: int) -> Tensor:
    """The tokens of every window, `[windows, tokens]`, numbered in reading order."""
    numbers = torch.arange(side * side).view(side, side).roll((-shift, -shift), (0, 1))
    parts = numbers.view(side // window, window, side // window, window).transpose(1, 2)
    return parts.reshape(-1, window * window)


def dense(maps: Tensor, tokens: Tensor, samples: int) -> Tensor:
    """Maps of windows `[samples * windows, n, n]` as one matrix per sample over all tokens."""
    count = tokens.numel()
    maps = maps.view(samples, len(tokens), *maps.shape[-2:])
    matrix = torch.zeros(samples, count, count, dtype=maps.dtype)
    for number, window in enumerate(tokens):
        matrix[:, window[:, None], window[None]] = maps[:, number]
    return matrix


def merge(weight: Tensor, side: int) -> Tensor:
    """What a merged token reads from its four tokens, by the sizes of the weights: `[tokens / 4, tokens]`."""
    sizes = weight.abs().sum(0).view(4, -1).sum(1)
    shares = sizes / sizes.sum()
    matrix = torch.zeros((side // 2) ** 2, side * side, dtype=weight.dtype)
    for row in range(side // 2):
        for column in range(side // 2):
            for place, (down, right) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
                token = (2 * row + down) * side + 2 * column + right
                matrix[row * side // 2 + column, token] = shares[place]
    return matrix


def swin_row(model: nn.Module, images: Tensor, target: int, *, averaged: bool, start: int = 0) -> Tensor:
    """The row of the pooled logits, by matrices."""
    with Softmaxes() as softmaxes:
        output = model(images)
    maps = softmaxes.results
    if averaged:
        maps = [block.mean(1) for block in maps]
    else:
        gradients = torch.autograd.grad(output.logits[:, target].sum(), maps)
        maps = [(block * gradient).relu().mean(1) for block, gradient in zip(maps, gradients, strict=True)]
    samples = len(images)
    matrices = [
        dense(maps[0], windows(8, 4, 0), samples),
        dense(maps[1], windows(8, 4, 2), samples),
        dense(maps[2], windows(4, 4, 0), samples),
    ]

    def step(row: Tensor, block: int) -> Tensor:
        if block < start:
            return row
        read = (row[:, None] @ matrices[block])[:, 0]
        return (row + read) / 2 if averaged else row + read

    row = torch.full((samples, 16), 1 / 16, dtype=images.dtype)
    row = step(row, 2)
    reduction = model.swin.encoder.layers[0].downsample.reduction.weight  # type: ignore[union-attr, index]
    row = row @ merge(reduction, 8)
    return step(step(row, 1), 0).detach()


@pytest.mark.parametrize("method", ["rollout", "generic_attention"])
@pytest.mark.parametrize("start", [0, 1])
def test_a_row_goes_through_windows_shifts_and_merges(swin: nn.Module, method: str, start: int) -> None:
    torch.manual_seed(1)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    expected = swin_row(swin, images, 1, averaged=method == "rollout", start=start)
    scores = lrptrain.attribute(swin, images, target=1, method=method, start_layer=start).scores
    assert (scores - expected).abs().max() <= 1e-12 * expected.abs().max()


# -- A pyramid: fewer keys than queries, convolutions, pooled queries, a gate ------------------------------------------


class Reduced(nn.Module):
    """Attention of all tokens to keys that a strided convolution makes."""

    attend = staticmethod(torch.matmul)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.reduce = nn.Conv2d(width, width, 2, 2)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.map: Tensor | None = None

    def forward(self, x: Tensor, side: int) -> Tensor:
        query = self.heads(self.query(x))
        fewer = self.reduce(x.mT.unflatten(2, (side, side))).flatten(2).mT
        key, value = map(self.heads, self.key_value(fewer).chunk(2, -1))
        self.map = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
        return self.out(self.attend(self.map, value).transpose(1, 2).flatten(2))

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (2, -1)).transpose(1, 2)


class Pyramid(nn.Module):
    """An overlapping stem, reduced attention, a depthwise convolution, a gate, pooled maxima, and pooled attention."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 2, 2)
        self.first = Reduced(width)
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.gate = nn.Linear(width, width)
        self.second = Reduced(width)
        self.head = nn.Linear(width, 3)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images).flatten(2).mT
        x = x + self.first(x, 8)
        grid = x.mT.unflatten(2, (8, 8))
        x = x + F.gelu(self.depthwise(grid)).flatten(2).mT
        x = x * self.gate(x.mean(1, keepdim=True)).sigmoid()
        x = F.max_pool2d(x.mT.unflatten(2, (8, 8)), 2).flatten(2).mT
        self.pooled_from = grid
        x = x + self.second(x, 4)
        return self.head(x.mean(1))


def of_convolution(weight: Tensor, side: int, **options: Any) -> Tensor:
    """What every output place reads from every input place, by the sizes of the kernel's weights; rows sum to 1."""
    kernel = weight.abs().sum((0, 1), keepdim=True)
    places = torch.eye(side * side, dtype=weight.dtype).view(-1, 1, side, side)
    read = F.conv2d(places, kernel, **options).flatten(1).T
    return read / read.sum(1, keepdim=True)


@pytest.fixture(scope="module")
def pyramid() -> nn.Module:
    torch.manual_seed(0)
    return randomised(Pyramid())


@pytest.mark.parametrize("method", ["rollout", "generic_attention"])
def test_a_row_goes_through_reduced_keys_convolutions_gates_and_maxima(pyramid: Pyramid, method: str) -> None:
    torch.manual_seed(1)
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    scores = lrptrain.attribute(pyramid, images, target=2, method=method).scores

    logits = pyramid(images)
    maps = [module.map for module in (pyramid.first, pyramid.second) if module.map is not None]
    if method == "rollout":
        matrices = [block.mean(1) for block in maps]
    else:
        gradients = torch.autograd.grad(logits[:, 2].sum(), maps)
        matrices = [(block * slope).relu().mean(1) for block, slope in zip(maps, gradients, strict=True)]

    def attended(row: Tensor, block: int, module: Reduced, side: int) -> Tensor:
        fewer = of_convolution(module.reduce.weight, side, stride=2)
        read = (row[:, None] @ matrices[block] @ fewer)[:, 0]
        return (row + read) / 2 if method == "rollout" else row + read

    row = torch.full((2, 16), 1 / 16, dtype=images.dtype)
    row = attended(row, 1, pyramid.second, 4)
    # For each feature, a maximum is one token's.
    with torch.no_grad():
        x = pyramid.stem(images).flatten(2).mT
        x = x + pyramid.first(x, 8)
        x = x + F.gelu(pyramid.depthwise(x.mT.unflatten(2, (8, 8)))).flatten(2).mT
        x = x * pyramid.gate(x.mean(1, keepdim=True)).sigmoid()
        _, winners = F.max_pool2d(x.mT.unflatten(2, (8, 8)), 2, return_indices=True)
    before = torch.zeros(2, 4, 64, dtype=images.dtype)
    row = before.scatter_add(2, winners.flatten(2), row[:, None].expand(2, 4, 16) / 4).sum(1)
    row = (row + row @ of_convolution(pyramid.depthwise.weight, 8, padding=1)) / 2
    row = attended(row, 0, pyramid.first, 8)
    assert scores.shape == (2, 64)
    assert (scores - row).abs().max() <= 1e-12 * row.abs().max()


@pytest.mark.parametrize("method", ["rollout", "generic_attention"])
def test_an_einsum_may_name_the_values_first(pyramid: Pyramid, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    expected = lrptrain.attribute(pyramid, images, target=2, method=method).scores
    values_first = staticmethod(lambda attention, value: torch.einsum("bhkd,bhqk->bhqd", value, attention))
    monkeypatch.setattr(Reduced, "attend", values_first)
    torch.testing.assert_close(lrptrain.attribute(pyramid, images, target=2, method=method).scores, expected)
