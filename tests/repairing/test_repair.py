"""A last layer that is trained anew stops reading what tells nothing any more."""

from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import timm
import torch
import transformers
from hugging_face import small_sizes
from torch import nn
from torch.utils.data import DataLoader, StackDataset

import lrptrain
from lrptrain.batch import batched
from lrptrain.repairing.balance import Swaps, swapped_batches, weights_by
from lrptrain.repairing.fitting import PENALTIES, CrossValidation, Table, fit, folds_of
from lrptrain.repairing.last_layer import find_last_layer, read_features

SIDE = 12
CENTRE, CORNER = (slice(4, 8), slice(4, 8)), (slice(0, 2), slice(0, 2))


def images(samples: int, agreeing: float, seed: int = 0) -> dict[str, torch.Tensor]:
    """The class is the brightness of the centre, which is noisy, and mostly that of a corner, which is not."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(samples) % 2
    agrees = torch.rand(samples, generator=generator) < agreeing
    image = 0.1 * torch.randn(samples, 1, SIDE, SIDE, generator=generator)
    mask = torch.zeros(samples, SIDE, SIDE, dtype=torch.uint8)
    mask[:, *CENTRE] = 1
    image[:, 0, *CENTRE] += (label - 0.5)[:, None, None]
    image[:, 0, *CORNER] += torch.where(agrees, label - 0.5, 0.5 - label)[:, None, None]
    group = 2 * label + agrees
    return {"image": image, "mask": mask, "label": label, "group": group, "sample_id": torch.arange(samples)}


class TwoPlaces(nn.Module):
    """Two features, the centre and the corner, and a last layer that reads the corner alone."""

    def __init__(self, outputs: int = 2, bias: bool = True) -> None:
        super().__init__()
        self.head = nn.Linear(2, outputs, bias=bias)
        nn.init.zeros_(self.head.weight)
        with torch.no_grad():
            self.head.weight[-1, 1] = 5.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = [x[:, 0, rows, columns].mean((1, 2)) for rows, columns in (CENTRE, CORNER)]
        return self.head(torch.stack(places, 1))


def loader(columns: dict[str, Any]) -> DataLoader:
    dataset: StackDataset = StackDataset(**columns)
    return DataLoader(dataset, 16)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_what_tells_nothing_is_read_no_longer(outputs, bias):
    model = TwoPlaces(outputs, bias)
    with torch.no_grad():
        if bias:
            model.head.bias.zero_()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    repaired = lrptrain.repair(model, loader(images(80, 1.0)), max_samples=80)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert (repaired.balance, repaired.layer, repaired.samples) == ("outside", "head", 80)
    assert repaired.before["as they are"] == 1.0
    same, other = "with the same class's surroundings", "with another class's surroundings"
    # The corner says the class of the source, in each pair.
    assert repaired.before == {"as they are": 1.0, same: 1.0, other: 0.0}
    assert repaired.after == {"as they are": 1.0, same: 1.0, other: 1.0}
    assert repaired.reliance == (1.0, 0.0, 0.0, 0.0, 0.0, 80)
    assert repaired.reliance.is_significant
    repaired.apply(model)
    centre, corner = (model.head.weight[-1] - model.head.weight[0] * (outputs == 2)).tolist()
    assert centre > 10 * abs(corner)
    swapped = images(40, 0.0, seed=1)
    logits = model(swapped["image"])
    predicted = logits.argmax(1) if outputs == 2 else (logits[:, 0] > 0).long()
    assert torch.equal(predicted, swapped["label"])
    assert "100.0 %" in str(repaired)


def test_groups_count_alike():
    model = TwoPlaces()
    data = images(200, 0.9)
    assert lrptrain.repair(model, loader(data), max_samples=200, balance="groups").after["worst group"] == 1.0
    without_masks = {name: x for name, x in data.items() if name != "mask"}
    repaired = lrptrain.repair(model, loader(without_masks), max_samples=200)
    assert repaired.balance == "groups"
    assert repaired.before["worst group"] == 0.0
    np.testing.assert_allclose(weights_by(np.array([0, 0, 0, 1])), [2 / 3, 2 / 3, 2 / 3, 2])


def test_a_group_may_be_that_of_the_shortcut_alone():
    data = images(200, 0.9)
    data["image"] += 0.7 * torch.randn(200, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    corner = corner_groups(data)["group"]
    of_pairs, of_corner = (
        lrptrain.repair(TwoPlaces(), loader({**data, "group": group}), max_samples=200, balance="groups")
        for group in (data["group"], corner)
    )
    assert torch.equal(of_pairs.weight, of_corner.weight)
    assert of_pairs.after == of_corner.after


class BothPlaces(TwoPlaces):
    """Its layer reads the corner twice as much as the centre."""

    def __init__(self, outputs: int = 2, bias: bool = True) -> None:
        super().__init__(outputs, bias)
        with torch.no_grad():
            self.head.weight[-1] = torch.tensor([5.0, 10.0])
            if bias:
                self.head.bias.zero_()


def corner_groups(data: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """With the group of the shortcut alone: how bright the corner is."""
    return {**data, "group": torch.where(data["group"] % 2 == 1, data["label"], 1 - data["label"])}


class BrightAndStriped(nn.Module):
    """Two features of whole images, how bright and how striped they are, of which the layer reads brightness alone."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)
        nn.init.zeros_(self.head.bias)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[0.0, 0.0], [0.0, 20.0]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        upright = (x[..., ::2] - x[..., 1::2]).mean((1, 2, 3))
        return self.head(torch.stack([upright, x.mean((1, 2, 3))], 1))


def test_without_annotations_images_are_given_the_colours_of_others():
    generator = torch.Generator().manual_seed(0)
    label = torch.arange(80) % 2
    stripes = torch.tensor([1.0, -1.0]).repeat(SIDE // 2) * (label - 0.5)[:, None]
    image = stripes[:, None, None, :] + 0.2 * torch.randn(80, 3, SIDE, SIDE, generator=generator)
    image = image + (label - 0.5)[:, None, None, None]
    data = {"image": image, "label": label}
    with pytest.raises(ValueError, match="balance='colour', 'spectrum', 'light' or 'border' need neither"):
        lrptrain.repair(BrightAndStriped(), loader(data), max_samples=80)
    repaired = lrptrain.repair(BrightAndStriped(), loader(data), max_samples=80, balance="colour")
    assert repaired.before["as they are"] == 1.0
    assert repaired.before["with another class's colour"] == 0.0
    assert set(repaired.after.values()) == {1.0}
    with pytest.raises(ValueError, match="0 of 80 samples have a label and an image"):
        lrptrain.repair(bert(), loader({**texts(), "label": label}), max_samples=80, balance="border")


def texts() -> dict[str, torch.Tensor]:
    """80 texts that nobody annotated."""
    tokens = torch.randint(0, 20, (80, 6), generator=torch.Generator().manual_seed(0))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def test_one_of_several_labels_changes_its_row_alone():
    model = TwoPlaces(outputs=3)
    data = images(80, 1.0)
    columns = torch.zeros(80, 3)
    columns[:, 2] = data["label"]
    several = {**data, "label": columns}
    task = lrptrain.OneLabel(column=2)
    repaired = lrptrain.repair(model, loader(several), max_samples=80, task=task)
    assert torch.equal(repaired.weight[:2], model.head.weight[:2])
    assert repaired.weight[2, 0] > 10 * repaired.weight[2, 1].abs()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_fit_is_where_the_penalised_loss_is_flat(classes, with_bias):
    rng = np.random.default_rng(0)
    label = np.arange(60) % classes
    features = rng.normal(size=(60, 4)) * [1, 10, 0.1, 1] + label[:, None]
    weight = rng.uniform(0.5, 1.5, 60)
    weight *= 60 / weight.sum()
    fitted = fit(Table(features, label, weight, np.arange(60)), 0.1, with_bias)
    rows = torch.tensor(fitted.weight, requires_grad=True)
    bias = torch.tensor(fitted.bias, requires_grad=True)
    logits = torch.tensor(features) @ rows.T + bias
    if classes == 2:
        logits = torch.cat([torch.zeros_like(logits), logits], 1)
    losses = nn.functional.cross_entropy(logits, torch.tensor(label), reduction="none")
    mean = np.average(features, axis=0, weights=weight) if with_bias else np.zeros(4)
    spread = torch.tensor(np.sqrt(np.average((features - mean) ** 2, axis=0, weights=weight)))
    penalised = 0.1 * (torch.tensor(weight) * losses).sum() + (rows * spread).square().sum() / 2
    of_rows, of_bias = torch.autograd.grad(penalised, (rows, bias))
    # L-BFGS ends where no entry of the gradient of the mean loss exceeds 1e-4; here it is of 60 samples, times 0.1.
    assert (
        float((of_rows / spread - (of_bias[:, None] * torch.tensor(mean) / spread if with_bias else 0)).abs().max())
        < 1e-3
    )
    assert not with_bias or float(of_bias.abs().max()) < 1e-3


def test_no_sample_is_on_both_sides_of_a_fold():
    sample = np.repeat(np.arange(20), 3)
    table = Table(np.zeros((60, 1)), sample % 2, np.ones(60), sample)
    folds = folds_of(table, 0)
    assert np.array_equal(np.sum(folds, 0), np.ones(60))
    for held_out in folds:
        assert not set(sample[held_out]) & set(sample[~held_out])
        assert set(table.label[held_out]) == {0, 1}


def test_the_penalty_is_that_of_the_least_loss_on_other_samples():
    rng = np.random.default_rng(0)
    label = np.arange(80) % 2
    noise = Table(rng.normal(size=(80, 30)), label, np.ones(80), np.arange(80))
    assert CrossValidation(noise, folds_of(noise, 0), True).penalty() == PENALTIES[0]
    clear = Table(np.stack([10.0 * label, rng.normal(size=80)], 1), label, np.ones(80), np.arange(80))
    validation = CrossValidation(clear, folds_of(clear, 0), True)
    assert validation.penalty() == validation.penalty(0) == PENALTIES[-1]
    pair = CrossValidation(clear, folds_of(clear, 0)[:2], True)
    assert pair.penalty(0) == PENALTIES[2]  # there is nothing to choose by


def test_what_a_layer_is_measured_on_has_no_say_in_it():
    rng = np.random.default_rng(0)
    label = np.arange(60) % 2
    table = Table(rng.normal(size=(60, 5)), label, np.ones(60), np.arange(60))
    folds = folds_of(table, 0)
    turned = Table(table.features, np.where(folds[1], 1 - label, label), table.weight, table.sample)
    fits = []
    for each in (table, turned):
        validation = CrossValidation(each, folds, True)
        fits.append(validation.fitted(validation.penalty(1), 1))
    assert np.array_equal(fits[0].weight, fits[1].weight)


def bert() -> nn.Module:
    sizes: dict[str, Any] = small_sizes(16)
    config = transformers.BertConfig(vocab_size=20, max_position_embeddings=8, **sizes)
    return transformers.BertForSequenceClassification(config)


def vit() -> nn.Module:
    sizes: dict[str, Any] = {
        "img_size": SIDE,
        "patch_size": 4,
        "embed_dim": 16,
        "depth": 1,
        "num_heads": 2,
        "in_chans": 1,
    }
    return timm.models.vision_transformer.VisionTransformer(num_classes=2, **sizes)


def test_the_last_layer_is_found_by_what_it_returns():
    image = {"image": torch.randn(3, 1, SIDE, SIDE)}
    text = {"input_ids": torch.randint(0, 20, (3, 6)), "attention_mask": torch.ones(3, 6, dtype=torch.long)}
    for model, batch, name in ((vit(), image, "head"), (bert(), text, "classifier")):
        model.train()
        layer = find_last_layer(model, batch)
        assert layer.name == name
        assert model.training
        features = torch.from_numpy(read_features(model, layer, [batch])).float()
        model.eval()
        output = model(batch["image"]) if "image" in batch else model(**batch).logits
        torch.testing.assert_close(layer.module(features), output)


class Scaled(TwoPlaces):
    """The logits are not what the layer returns."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


class Twice(TwoPlaces):
    """The layer is called for two things."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.head(torch.zeros(1, 2))
        return super().forward(x)


class Cosine(nn.Linear):
    """A layer that knows directions alone."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(nn.functional.normalize(input))


def with_head(head: nn.Module) -> nn.Module:
    model = TwoPlaces()
    model.head = head  # type: ignore[assignment]
    return model


@pytest.mark.parametrize(
    ("model", "data", "options", "message"),
    [
        (with_head(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))), images(40, 1.0), {}, "no plain linear"),
        (with_head(Cosine(2, 2)), images(40, 1.0), {}, "no plain linear layer"),
        (TwoPlaces(), images(40, 1.0), {"batch_size": 1}, "batch_size must be at least 2"),
        (Scaled(), images(40, 1.0), {}, "no linear layer of Scaled makes its logits"),
        (Twice(), images(40, 1.0), {}, "used in other places"),
        (TwoPlaces(3), images(40, 1.0), {}, "no usable sample is of class 2"),
        (TwoPlaces(), images(12, 1.0), {}, "12 of 12 samples have a label and an annotation"),
        (
            TwoPlaces(),
            images(40, 1.0),
            {"balance": "masks"},
            "unknown balance 'masks'; known are outside, colour, .*, groups",
        ),
        (TwoPlaces(), images(40, 1.0), {"balance": "surroundings"}, "balance='surroundings' is now balance='outside'"),
        (TwoPlaces(), images(40, 1.0), {"balance": "statistics"}, "balance='statistics' is now balance='colour'"),
        (TwoPlaces(), images(40, 1.0), {"balance": "detail"}, "balance='detail' is now balance='spectrum'"),
        (TwoPlaces(), images(40, 1.0), {"balance": "shading"}, "balance='shading' is now balance='light'"),
        (TwoPlaces(), images(40, 1.0), {"balance": "edges"}, "balance='edges' is now balance='border'"),
        (TwoPlaces(), images(40, 1.0), {"copies": 0}, "copies"),
        (TwoPlaces(1), images(40, 1.0), {"task": lrptrain.Regression(0, 1)}, "task is regression"),
        (TwoPlaces(1), images(40, 1.0), {"task": lrptrain.Ordinal()}, "task is ordinal"),
    ],
)
def test_what_cannot_be_mended_is_refused_in_one_line(model, data, options, message):
    with pytest.raises(ValueError, match=message) as refused:
        lrptrain.repair(model, loader(data), **options)
    assert "\n" not in str(refused.value)


def test_the_last_batch_of_swaps_is_never_a_single_sample():
    from lrptrain.batch import Sample

    data = images(33, 1.0)
    samples = [Sample(i, int(data["label"][i]), {name: data[name][i] for name in ("image", "mask")}) for i in range(33)]
    generator = torch.Generator().manual_seed(0)
    swaps = Swaps(1, 16, 0)
    batches = list(swapped_batches(samples, "outside", swaps, torch.device("cpu"), generator))
    assert sorted(np.concatenate([rows for rows, _ in batches]).tolist()) == list(range(33))
    for rows, batch in batches:
        (before,) = batched([samples[row] for row in rows], len(rows))
        outside = before["mask"] == 0
        assert torch.equal(batch["image"][:, 0, *CENTRE], before["image"][:, 0, *CENTRE])
        # Corners are noisy, so that each tells whose it was: one other of the batch each.
        same = batch["image"][:, None, 0, *CORNER] == before["image"][None, :, 0, *CORNER]
        sources = same.flatten(2).all(2).nonzero()[:, 1].tolist()
        assert sorted(sources) == list(range(len(rows)))
        assert all(source != row for row, source in enumerate(sources))
        changed = (batch["image"][:, 0] != before["image"][:, 0]) & outside
        assert bool(changed.flatten(1).any(1).all())


class WithoutForward(pl.LightningModule):
    """Its steps call the network."""

    def __init__(self) -> None:
        super().__init__()
        self.net = TwoPlaces()


def test_the_module_that_was_repaired_takes_the_layer():
    module = WithoutForward()
    repaired = lrptrain.repair(module, loader(images(40, 1.0)), copies=1)
    repaired.apply(module)
    assert torch.equal(module.net.head.weight, repaired.weight)


class Compiled(nn.Module):
    """A network that was compiled, and has run, before anybody listens to it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.compile(TwoPlaces(), backend="eager")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


def test_a_compiled_network_is_listened_to():
    model = Compiled().eval()
    with torch.no_grad():
        for samples in (4, 16):
            model(images(samples, 1.0)["image"])
    assert lrptrain.repair(model, loader(images(40, 1.0)), copies=1).after["as they are"] == 1.0
