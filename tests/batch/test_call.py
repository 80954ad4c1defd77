"""The arguments of a model, from the entries of a batch or from a call that was heard."""

import pytest
import torch
from torch import nn

from lrptrain.batch import Sample, collate, model_inputs, read_batch, take
from lrptrain.batch.call import (
    ARGUMENT,
    CALL,
    Call,
    bound_arguments,
    candidates,
    explained_argument,
    missing_arguments,
    samples_of,
    split_call,
)


def forward(parameters: str) -> nn.Module:
    """A module whose forward has these parameters."""
    space: dict = {}
    exec(f"def forward(self, {parameters}): pass", space)
    return type("Model", (nn.Module,), {"forward": space["forward"]})()


IMAGE, OTHER, IDS = torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4), torch.tensor([[5, 6], [7, 8]])
NUMBERS, MASK = torch.rand(2, 5), torch.ones(2, 2, dtype=torch.long)


@pytest.mark.parametrize(
    ("parameters", "batch", "expected"),
    [
        ("x", {"image": IMAGE}, None),
        ("x, ct=None", {"image": IMAGE}, None),
        ("image, ct", {"image": IMAGE, "ct": OTHER}, {"image": IMAGE, "ct": OTHER}),
        ("x, ct", {"image": IMAGE, "ct": OTHER}, {"x": IMAGE, "ct": OTHER}),
        ("ct, x", {"image": IMAGE, "ct": OTHER}, {"x": IMAGE, "ct": OTHER}),
        ("x", {"image": IMAGE, "depth": OTHER}, None),
        ("pixel_values", {"pixel_values": IMAGE}, {"pixel_values": IMAGE}),
        ("pixel_values=None, age=None", {"image": IMAGE, "age": NUMBERS}, {"pixel_values": IMAGE, "age": NUMBERS}),
        (
            "input_ids=None, pixel_values=None",
            {"pixel_values": IMAGE, "input_ids": IDS},
            {"pixel_values": IMAGE, "input_ids": IDS},
        ),
        ("tokens, attention_mask", {"input_ids": IDS, "attention_mask": MASK}, {"tokens": IDS, "attention_mask": MASK}),
        ("input_ids", {"input_ids": IDS, "attention_mask": MASK}, {"input_ids": IDS}),
        (
            "input_ids, **more",
            {"input_ids": IDS, "attention_mask": MASK, "numeric": NUMBERS},
            {"input_ids": IDS, "attention_mask": MASK},
        ),
        ("input_ids, numeric=None", {"input_ids": IDS, "numeric": NUMBERS}, {"input_ids": IDS, "numeric": NUMBERS}),
        # An annotation is an argument only where the forward cannot do without one.
        ("x, mask=None", {"image": IMAGE, "mask": torch.ones(2, 4, 4)}, None),
        ("x, mask", {"image": IMAGE, "mask": torch.ones(2, 4, 4)}, {"x": IMAGE, "mask": torch.ones(2, 4, 4)}),
    ],
)
def test_entries_go_to_the_parameters_of_their_names(parameters, batch, expected):
    given = model_inputs(forward(parameters), read_batch({**batch, "label": torch.tensor([0, 1])}))
    if expected is None:
        assert given is not None
        assert torch.equal(given, IMAGE)  # type: ignore[arg-type]
        return
    assert isinstance(given, dict)
    assert given.keys() == expected.keys()
    assert all(torch.equal(given[name], expected[name]) for name in expected)
    explained = "input_ids" if "image" not in batch and "pixel_values" not in batch else next(iter(batch))
    assert torch.equal(given[str(explained_argument(given))], batch[explained])


def test_a_forward_that_hands_on_what_it_is_given_takes_what_is_taken_below():
    model = forward("input_ids, **more")
    model.inner = forward("numeric=None")
    batch = {"input_ids": IDS, "numeric": NUMBERS, "index": torch.arange(2)}
    assert model_inputs(model, read_batch(batch)).keys() == {"input_ids", "numeric"}  # type: ignore[union-attr]


def test_what_is_missing_is_named():
    batch = read_batch({"image": IMAGE, "age": NUMBERS})
    assert missing_arguments(forward("image, ct, age, scale=1"), batch) == ["ct"]
    assert missing_arguments(forward("image, age"), batch) == []
    assert missing_arguments(forward("x, y"), read_batch({"image": IMAGE})) == ["y"]


def test_a_call_that_was_heard_is_made_again():
    model = forward("a, b=None, flag=False, table=None, attention_mask=None")
    table = torch.rand(7)
    heard = bound_arguments(model, (OTHER, IMAGE), {"flag": True, "table": table})
    assert heard is not None
    call, columns = split_call(heard, "b", 2)
    assert call.differs_from(Call("b", (), {"flag": True, "table": table.clone()})) == ""
    assert call.differs_from(Call("b", (), {"flag": False, "table": table})) == "flag"
    assert call.differs_from(Call("b", (), {"flag": True, "table": table + 1})) == "table"
    batch = {"image": IMAGE, "attention_mask": MASK, CALL: call} | {ARGUMENT + name: x for name, x in columns.items()}
    given = model_inputs(model, batch)
    assert isinstance(given, dict)
    assert list(given)[0] == "b"  # noqa: RUF015
    assert given.keys() == {"a", "b", "flag", "table"}, "a mask that the step did not give is not given"
    assert given["flag"] is True
    assert torch.equal(given["a"], OTHER)
    one = samples_of(batch, slice(1, 2))
    assert torch.equal(one["argument:a"], OTHER[1:])
    assert one[CALL] is call


@pytest.mark.parametrize("value", [nn.Linear(1, 1), {"x": IMAGE}, object()])
def test_arguments_that_are_no_rows_of_samples_are_refused(value):
    with pytest.raises(ValueError, match=r"argument 'b' is a .* model='<attribute>'"):
        split_call({"a": IMAGE, "b": value}, "a", 2)


def test_one_row_for_all_samples_is_each_samples():
    _, columns = split_call({"a": IDS, "position_ids": torch.arange(2)[None]}, "a", 2)
    assert columns["position_ids"].tolist() == [[0, 1], [0, 1]]


def test_calls_without_names():
    assert bound_arguments(forward("*inputs"), (IMAGE, OTHER), {}) is None
    assert bound_arguments(forward("x"), (IMAGE, OTHER), {}) is None
    assert bound_arguments(forward("x, *more"), (IMAGE,), {}) == {"x": IMAGE}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"image": IMAGE, "mask": OTHER}, ["image"]),
        ({"mri": IMAGE, "ct": OTHER}, ["mri", "ct"]),
        ({"ids": IDS, "mask": MASK}, ["ids"]),
        ({"bag": torch.rand(2, 9, 5), "age": NUMBERS}, ["bag"]),
        ({"age": NUMBERS}, ["age"]),
        ({"image": IMAGE[:1]}, []),
    ],
)
def test_what_may_be_explained(arguments, expected):
    assert list(candidates(arguments, 2)) == expected


def test_arguments_travel_with_their_samples():
    boxes = torch.arange(2 * 3 * 4).view(2, 3, 4)
    ids = torch.tensor([[1, 2, 3], [4, 5, 0]])
    batch = read_batch({"input_ids": ids, "attention_mask": ids > 0, "bbox": boxes, "age": torch.tensor([3, 4])})
    samples = [take(batch, row, row) for row in range(2)]
    shorter = Sample(2, 0, {name: x[:2] if x.ndim else x for name, x in samples[1].tensors.items()})
    stacked = collate([samples[0], shorter])
    assert stacked["argument:bbox"].shape == (2, 3, 4)
    assert torch.equal(stacked["argument:bbox"][1, :2], boxes[1, :2])
    assert not stacked["argument:bbox"][1, 2].any()
    assert stacked["argument:age"].tolist() == [3, 4]


def test_an_entry_that_some_batches_lack_is_no_zero():
    samples = [Sample(0, 0, {"image": IMAGE[0]}), Sample(1, 0, {"pixel_values": IMAGE[1]})]
    with pytest.raises(ValueError, match="'image' is in some batches and not in others"):
        collate(samples)
