"""A repair is judged on samples and sources that it was not made from, against a control, and says what it is not."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import lrptrain
from lrptrain.batch import Sample
from lrptrain.repairing.balance import Swaps, exchanged_batches
from lrptrain.repairing.repair import Reliance, Repair
from tests.repairing.test_repair import CENTRE, CORNER, SIDE, TwoPlaces, images, loader

TALL, WIDE = (slice(3, 9), slice(5, 7)), (slice(5, 7), slice(3, 9))


def outlines(samples: int, cue: bool, seed: int = 0) -> dict[str, torch.Tensor]:
    """Images of one grey each, annotated by a tall or a wide box: nothing tells the class but a corner, if at all."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(samples) % 2
    image = torch.randn(samples, 1, 1, 1, generator=generator).expand(-1, 1, SIDE, SIDE).clone()
    mask = torch.zeros(samples, SIDE, SIDE, dtype=torch.uint8)
    for each in range(samples):
        mask[each, *(TALL if label[each] else WIDE)] = 1
    if cue:
        image[:, 0, *CORNER] += 4 * (label - 0.5)[:, None, None]
    return {"image": image, "mask": mask, "label": label}


class SeamsAndCorner(nn.Module):
    """Features are the corner, and where a box that was pasted has its seams; the layer reads the corner."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)
        nn.init.zeros_(self.head.bias)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 5.0]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = x[:, 0, 2:10, 2:10]
        across, down = (inside.diff(dim=dim).abs().mean((1, 2)) for dim in (2, 1))
        corner = x[:, 0, *CORNER].mean((1, 2)) - x[:, 0, -2:, -2:].mean((1, 2))
        return self.head(torch.stack([across, down, corner], 1))


def reliance_of(repaired: Repair) -> Reliance:
    assert repaired.reliance is not None
    return repaired.reliance


def test_what_the_outline_of_a_pasted_object_tells_is_no_mended_model():
    """Pasted objects are told by their seams: the accuracy with other surroundings rises, and nothing is mended."""
    model = SeamsAndCorner()
    repaired = lrptrain.repair(model, loader(outlines(120, True)), max_samples=120)
    other = "with another class's surroundings"
    assert repaired.after[other] > repaired.before[other] + 0.3
    # The control rises with it, so that it is no gain of the exchange; and as they are, there are no seams to read.
    same = "with the same class's surroundings"
    assert repaired.after[same] - repaired.after[other] == pytest.approx(reliance_of(repaired).after)
    assert repaired.after["as they are"] < 0.65
    repaired.apply(model)
    without = outlines(120, False, seed=1)
    right = (model(without["image"]).argmax(1) == without["label"]).float().mean()
    assert right < 0.65
    text = " ".join(str(repaired).split())
    assert "Not tested: samples that come without the shortcut." in text
    assert "the outline of what is pasted, and a layer can learn to use those." in text
    assert "100.0 ± 0.0 points of accuracy lost before" in text


def test_a_repair_that_changes_nothing_says_so():
    data = images(80, 1.0)
    data["image"][:, 0, *CENTRE] = 0.1 * torch.randn(80, 4, 4)  # nothing but the corner tells the class
    repaired = lrptrain.repair(TwoPlaces(), loader(data), max_samples=80)
    assert reliance_of(repaired).before > 0.4
    assert repaired.after["as they are"] < 0.8
    alike = Reliance(0.3, 0.28, 0.05, 0.05, 0.06, 80)
    assert not alike.is_significant
    assert "no significant difference" in " ".join(str(replace(repaired, reliance=alike)).split())


def sample(index: int, label: int) -> Sample:
    image = torch.full((1, SIDE, SIDE), float(index))
    mask = torch.zeros(SIDE, SIDE, dtype=torch.uint8)
    mask[CENTRE] = 1
    return Sample(index, label, {"image": image, "mask": mask})


@pytest.mark.parametrize("batch_size", [2, 7, 32])
def test_sources_are_of_the_own_fold_and_of_the_class_that_is_asked_for(batch_size):
    label = np.array([0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 2])
    samples = [sample(i, int(label[i])) for i in range(len(label))]
    folds = [np.arange(0, 13, 2), np.arange(1, 13, 2)]
    swaps = Swaps(1, batch_size, 0)
    seen = []
    for batch in exchanged_batches(samples, folds, "outside", swaps, torch.device("cpu")):
        for row, same, other in zip(batch.rows, batch.same["image"], batch.other["image"], strict=True):
            seen.append(int(row))
            fold = next(each for each in folds if row in each)
            for given, is_same in ((same, True), (other, False)):
                assert (given[0, *CENTRE] == row).all()
                source = int(given[0, 0, 0])
                assert source in fold
                assert source != row
                assert (label[source] == label[row]) == is_same
    # The only one of its class has no source for the control.
    assert sorted(seen) == list(range(12))


def test_classes_of_two_samples_cannot_be_exchanged_within_their_folds():
    data = {name: x[:24] for name, x in images(80, 1.0).items()}
    data["label"] = torch.arange(24) % 12
    model = TwoPlaces(12)
    with torch.no_grad():
        model.head.bias.zero_()
    repaired = lrptrain.repair(model, loader(data), max_samples=24)
    assert repaired.reliance is None
    assert set(repaired.after) == {"as they are"}
    assert "Not tested: whether it relies on another class's surroundings" in " ".join(str(repaired).split())


@pytest.mark.parametrize("balance", ["colour", "spectrum", "light", "framing", "border", "background"])
def test_each_exchange_has_its_control(balance):
    generator = torch.Generator().manual_seed(0)
    label = torch.arange(40) % 2
    image = torch.randn(40, 3, SIDE, SIDE, generator=generator) + (label - 0.5)[:, None, None, None]
    repaired = lrptrain.repair(WholeImage(), loader({"image": image, "label": label}), max_samples=40, balance=balance)
    assert reliance_of(repaired).samples == 40
    assert len([title for title in repaired.before if title.startswith("with ")]) == 2
    lines = str(repaired).splitlines()
    assert max(map(len, lines)) <= 80
    # Brightness is what `colour` exchanges, and the spectrum leaves it as it is.
    expected = {"colour": 0.9, "spectrum": 0.0}
    assert reliance_of(repaired).before == pytest.approx(expected.get(balance, reliance_of(repaired).before), abs=0.15)


class WholeImage(nn.Module):
    """Reads how bright an image is."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[0.0, 0.0], [20.0, 0.0]]))
            self.head.bias.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.stack([x.mean((1, 2, 3)), x.std((1, 2, 3))], 1))
