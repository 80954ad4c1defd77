"""State that a model keeps outside of buffers: as before after a map, or named once; and training is bit-identical."""

import itertools
import random
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lrptrain
from lrptrain.relevance.fast.walk import own_attributes_of
from lrptrain.relevance.model import contents

Pair = namedtuple("Pair", "numbers name")


class Plain:
    def __init__(self):
        self.count, self.inner = 0, SimpleNamespace(seen=[])

    def step(self):
        self.count += 1
        self.inner.seen.append(self.count)
        self.late = 1


@dataclass
class Record:
    values: list[int] = field(default_factory=list)


class Walker:
    """An iterator of the user's own."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        return self.at


def cache():
    from transformers import DynamicCache

    kept = DynamicCache()
    kept.update(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), 0)
    return kept


def grow(kept):
    kept.update(torch.ones(1, 2, 1, 4), torch.ones(1, 2, 1, 4), 0)


def drawn(generator):
    return torch.rand(1, generator=generator)


def looked_at(value: Any) -> Any:
    """The state of a thing, as values."""
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return str(value.get_state())
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, Tensor):
        return str(value.tolist())
    if type(value).__name__ == "DynamicCache":
        return [(layer.keys.tolist(), layer.values.tolist()) for layer in value.layers]
    if isinstance(value, nn.Module):
        return {name: x.tolist() for name, x in value.state_dict().items()} | {"count": getattr(value, "count", None)}
    if isinstance(value, (dict, UserDict)):
        return {key: looked_at(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, deque, UserList)):
        return [looked_at(item) for item in value]
    if hasattr(value, "__dict__"):
        return {name: looked_at(item) for name, item in vars(value).items()}
    return repr(value)


class Norm(nn.Module):
    """A module that is registered nowhere, in training mode."""

    def __init__(self):
        super().__init__()
        self.norm, self.count = nn.BatchNorm1d(3), 0

    def step(self):
        self.norm(torch.randn(4, 3))
        self.count += 1


KINDS: dict[str, tuple[Any, Any]] = {
    "torch.Generator": (lambda: torch.Generator().manual_seed(0), drawn),
    "NumPy generator": (lambda: np.random.default_rng(0), lambda v: v.random()),
    "NumPy's legacy state": (lambda: np.random.RandomState(0), lambda v: v.rand()),
    "random.Random": (lambda: random.Random(0), lambda v: v.random()),
    "a plain object": (Plain, Plain.step),
    "a namespace": (lambda: SimpleNamespace(n=0), lambda v: setattr(v, "n", v.n + 1)),
    "a dataclass": (Record, lambda v: v.values.append(1)),
    "DynamicCache": (cache, grow),
    "a tuple of lists": (lambda: ([], [0]), lambda v: v[0].append(1)),
    "a named tuple": (lambda: Pair([0], "x"), lambda v: v.numbers.append(1)),
    "a list": (list, lambda v: v.append(1)),
    "a dict": (dict, lambda v: v.update({len(v): 1})),
    "a default dict": (lambda: defaultdict(list), lambda v: v["x"].append(1)),
    "a counter": (Counter, lambda v: v.update("x")),
    "an ordered dict": (lambda: OrderedDict(a=1), lambda v: v.update(a=2)),
    "a deque": (lambda: deque([1], maxlen=2), lambda v: v.append(2)),
    "a user dict": (UserDict, lambda v: v.update({len(v): 1})),
    "a user list": (UserList, lambda v: v.append(1)),
    "an iterator of one's own": (Walker, next),
    "objects in objects": (lambda: {"x": [SimpleNamespace(y=Plain())]}, lambda v: v["x"][0].y.step()),
    "a tensor": (lambda: torch.zeros(2), lambda v: v.add_(1)),
    "a module in a list": (lambda: [Norm()], lambda v: v[0].step()),
    "a tensor's data": (lambda: torch.zeros(2), lambda v: v.data.add_(1)),
    "a tensor's memory": (lambda: torch.zeros(2), lambda v: setattr(v, "data", v.data + 1)),
    "a tensor by its array": (lambda: torch.zeros(2), lambda v: v.numpy().__iadd__(1)),
    "a tensor with nan": (lambda: torch.tensor([float("nan"), 0]), lambda v: v.nan_to_num_(7)),
    "a parameter in a list": (lambda: [nn.Parameter(torch.zeros(2))], lambda v: v[0].data.add_(1)),
}
NAMED: dict[str, tuple[Any, Any]] = {
    "an iterator": (lambda: iter(list(range(9))), next),
    "a count": (itertools.count, next),
    "a generator": (lambda: (i for i in range(99)), next),
    "an array": (lambda: np.zeros(3), lambda v: v.__iadd__(1)),
    "an array inside of a dict": (lambda: {"a": np.zeros(3)}, lambda v: v["a"].__iadd__(1)),
    "a large vocabulary": (lambda: dict.fromkeys(range(5000)), lambda v: v.update({len(v): 1})),
    "a large set": (lambda: set(range(5000)), lambda v: v.add(len(v))),
    "a large tensor": (lambda: torch.zeros(2**22 + 1), lambda v: v.add_(1)),
}


class Model(nn.Module):
    def __init__(self, kept: Any = None, change: Any = None):
        super().__init__()
        self.kept, self.change = kept, change
        self.conv, self.head = nn.Conv2d(3, 4, 4, 4), nn.Linear(4, 2)

    def forward(self, image: Tensor) -> Tensor:
        if self.change is not None:
            self.change(self.kept)
        return self.head(self.conv(image).relu().mean((2, 3)))


def images() -> Tensor:
    return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("method", ["attnlrp", "leave_one_out"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_as_before(kind, method):
    make, change = KINDS[kind]
    model = Model(make(), change)
    before, held = looked_at(model.kept), model.kept
    lrptrain.attribute(model, images(), 1, method)
    assert looked_at(model.kept) == before
    assert model.kept is held
    change(model.kept)
    if kind != "a namespace":
        assert looked_at(model.kept) != before, "the test sees a change"


@pytest.mark.parametrize("kind", NAMED)
def test_what_cannot_be_put_back_is_named_once(kind, recwarn):
    make, change = NAMED[kind]
    model = Model(make(), change)
    with pytest.warns(
        lrptrain.RelevanceWarning,
        match="'kept' in its forward, and this cannot be put",
    ):
        lrptrain.attribute(model, images(), 1, "attnlrp")
    recwarn.clear()
    lrptrain.attribute(model, images(), 1, "attnlrp")
    lrptrain.attribute(Model(make()), images(), 1, "attnlrp")  # which stands still
    assert not [each for each in recwarn if "cannot be" in str(each.message)]


def test_attributes_of_classes():
    class Counting(Model):
        calls = 0
        seen: ClassVar[list[int]] = []

        def forward(self, image: Tensor) -> Tensor:
            type(self).calls += 1
            type(self).late = 1  # type: ignore[attr-defined]
            self.seen.append(1)
            return super().forward(image)

    with pytest.warns(lrptrain.RelevanceWarning, match="'Counting' .* attribute of the class"):
        lrptrain.attribute(Counting(), images(), 1, "attnlrp")
    assert Counting.seen == []


class Momentum(Model):
    """As MoCo: a second head follows the first one, in place, past the versions of tensors, or by new memory."""

    def __init__(self, how: str):
        super().__init__()
        self.key, self.how = nn.Linear(4, 2), how

    def forward(self, image: Tensor) -> Tensor:
        with torch.no_grad():
            for key, query in zip(self.key.parameters(), self.head.parameters(), strict=True):
                if self.how == "in place":
                    key.mul_(0.9).add_(query, alpha=0.1)
                elif self.how == "of its data":
                    key.data.mul_(0.9).add_(query, alpha=0.1)
                else:
                    key.data = 0.9 * key.data + 0.1 * query.data
        return super().forward(image) + 0 * self.key.weight.sum()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("how", ["in place", "of its data", "new memory"])
@pytest.mark.filterwarnings("error:the model changes:lrptrain.RelevanceWarning")
def test_parameters_that_the_forward_updates(how, training):
    model = Momentum(how)
    lrptrain.attribute(Model(), images(), 1, "attnlrp")
    model.train(training)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    held = dict(model.named_parameters())
    for _ in range(3):
        lrptrain.attribute(model, images(), 1, "attnlrp")
        assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert all(held[name] is x for name, x in model.named_parameters())


def test_parameters_that_are_too_many_for_a_copy_are_named_and_then_copied(monkeypatch):
    monkeypatch.setattr(contents, "_COPIED_PARAMETERS", 5)
    model = Momentum("in place")
    with pytest.warns(lrptrain.RelevanceWarning, match="changes 'key.(weight|bias)' in its forward"):
        lrptrain.attribute(model, images(), 1, "attnlrp")
    after = {name: x.clone() for name, x in model.state_dict().items()}
    lrptrain.attribute(model, images(), 1, "attnlrp")
    assert all(torch.equal(x, after[name]) for name, x in model.state_dict().items())


def test_parameters_that_are_written_in_training_alone():
    model = Switched("of its data")
    before = {name: x.clone() for name, x in model.state_dict().items()}
    for training in (False, True, True):
        model.train(training)
        lrptrain.attribute(model, images(), 1, "attnlrp")
        assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


class Switched(Momentum):
    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image) if self.training else Model.forward(self, image)


def test_weights_with_nan_are_not_written_into():
    """What an earlier pass has recorded can still go backward."""
    model = Momentum("new memory")
    model.spare = nn.Parameter(torch.full((2,), torch.nan))
    loss = (model(images()).sum() + (model.spare**2).nan_to_num().sum()).sin()
    lrptrain.attribute(model, images(), 1, "attnlrp")
    loss.backward()


class Unreadable(dict):
    def __len__(self):
        raise RuntimeError("no length")


class Final(dict):
    """As outputs of transformers: it lets nobody update it."""

    def update(self, *args, **kwargs):
        raise RuntimeError("final")


def test_containers_that_fail_harm_nothing():
    kept = {"unreadable": Unreadable(a=1), "seen": []}
    lrptrain.attribute(Model(kept, lambda v: v["seen"].append(1)), images(), 1, "attnlrp")
    assert kept["seen"] == []
    with pytest.warns(lrptrain.RelevanceWarning, match="'kept' .* a Final that refuses it: final"):
        lrptrain.attribute(Model(Final(a=1), lambda v: v.__setitem__("b", 1)), images(), 1, "attnlrp")


def test_a_teacher_in_a_list_is_copied_in_part_alone(monkeypatch):
    """Its weights may be many, and each call would copy them."""
    monkeypatch.setattr(contents, "_COPIED", 50)
    teacher = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    model = Model()
    model.kept = [teacher]
    kept = contents.Contents(own_attributes_of(model))
    assert sum(each.numbers.numel() for _, each in kept._tensors if each.numbers is not None) == 48


def test_what_a_library_made_is_left_alone():
    """A trainer, a logger or a data set that a model knows is none of its forward's state."""
    import logging
    import threading

    from torch.utils.data import TensorDataset

    class Own(TensorDataset):
        pass

    kept: dict[str, Any] = {
        "logger": logging.getLogger("x"),
        "lock": threading.Lock(),
        "data": DataLoader(Own(images())),
    }

    def change(values):
        values["logger"].level = 17
        values["data"].dataset.tensors[0].add_(1)

    model = Model(kept, change)
    lrptrain.attribute(model, images(), 1, "attnlrp")
    assert kept["logger"].level == 17


@pytest.mark.parametrize("kind", ["torch.Generator", "NumPy generator", "DynamicCache", "a plain object"])
def test_training_is_bit_identical_with_a_monitor(kind, tmp_path):
    make, change = KINDS[kind]
    weights = []
    for watched in (False, True):
        torch.manual_seed(0)
        model = Noisy(make(), change)
        batches = [{"image": torch.randn(8, 3, 16, 16), "label": torch.arange(8) % 2} for _ in range(3)]
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        watching = (
            lrptrain.Monitor(model, batches, tmp_path, max_samples=8, run=lrptrain.Run(progress_bar=False))
            if watched
            else None
        )
        for epoch in range(2):
            for batch in batches:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(batch["image"]), batch["label"]).backward()
                optimizer.step()
            if watching is not None:
                watching.evaluate(epoch)
        weights.append((model.state_dict(), looked_at(model.kept)))
    assert weights[0][1] == weights[1][1]
    assert all(torch.equal(x, weights[1][0][name]) for name, x in weights[0][0].items())


class Noisy(Model):
    """What it keeps decides what it computes."""

    def forward(self, image: Tensor) -> Tensor:
        drawn = self.change(self.kept)
        noise = float(drawn) if isinstance(drawn, (float, Tensor)) else float(len(str(looked_at(self.kept))) % 7) / 7
        return super().forward(image) * (1 + 0.1 * noise)

    def __init__(self, kept: Any, change: Any):
        super().__init__(kept, None)
        self.change = change
