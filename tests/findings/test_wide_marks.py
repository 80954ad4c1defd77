"""A word of six letters that gives a class away, in a small model that reads it: it is pasted, or taken away, whole."""

import copy
import functools
from typing import Any

import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer
from torch.nn import functional as F

import lrptrain
from lrptrain.findings import unfold

SIZE = 36
ROWS, COLUMNS = 6, 18
SAMPLES = 128
WORD = torch.from_numpy(np.random.default_rng(3).random((3, ROWS, COLUMNS)) < 0.5).float() * 4 - 2
"""Letters of 3 x 6 pixels in strong colours, half of the image wide: four and a half patches."""


def pictures(count, kind, seed):
    """Smooth noise, of two classes by its hue; the word on those of class 1, at one place or anywhere."""
    generator = torch.Generator().manual_seed(seed)
    images = F.interpolate(torch.randn(count, 3, 10, 10, generator=generator), (SIZE, SIZE), mode="bilinear")
    labels = torch.arange(count) % 2
    if kind == "clean":
        images[:, 0] += 1.5 * (labels - 0.5)[:, None, None]
        return images, labels
    for i in np.flatnonzero(labels):
        top = int(torch.randint(0, SIZE - ROWS, (), generator=generator)) if kind == "anywhere" else 29
        left = int(torch.randint(0, SIZE - COLUMNS, (), generator=generator)) if kind == "anywhere" else 1
        images[i, :, top : top + ROWS, left : left + COLUMNS] = WORD
    return images, labels


@functools.cache
def trained(kind):
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"img_size": SIZE, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2}
    model = VisionTransformer(num_classes=2, **sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(80):
        images, labels = pictures(32, kind, 1000 + step)
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def findings(kind, folder):
    images, labels = pictures(SAMPLES, kind, 0)
    batches = [{"image": a, "label": b} for a, b in zip(images.split(32), labels.split(32), strict=True)]
    model = copy.deepcopy(trained(kind))
    monitor = lrptrain.Monitor(model, batches, folder, budget=None, progress_bar=False)
    monitor.evaluate(0, 0)
    monitor.close()
    accuracy = monitor.scalars["relevance/accuracy"]
    return accuracy, {each.kind: each for each in reversed(unfold(monitor.findings)) if each.stands}


def test_a_word_anywhere_is_pasted_as_a_whole(tmp_path):
    accuracy, found = findings("anywhere", tmp_path)
    assert accuracy > 0.9
    mark = found["mark_anywhere"]
    assert mark.state == "confirmed"
    # With a rim of one pixel on every side; a piece alone has 5 x 5.
    assert mark.where == f"a mark of {ROWS + 2} x {COLUMNS + 2} pixels"
    assert mark.intervention is not None
    assert mark.intervention.effect > 0.5
    assert mark.intervention.reference < 0.1
    # Taken away from its images as a whole, it leaves nothing that tells the class.
    taken_away = found["mark_of_class"]
    assert taken_away.state == "confirmed"
    assert taken_away.intervention is not None
    assert taken_away.intervention.effect > 0.5


def test_a_word_at_a_place_is_taken_away_as_a_whole(tmp_path):
    accuracy, found = findings("fixed", tmp_path)
    assert accuracy > 0.9
    place = found["focus_at_position"]
    assert place.state == "confirmed"
    # Rows 29 to 34 and columns 1 to 18 lie on two rows and five columns of patches.
    assert place.where == "bottom centre, bottom left (10 of 81 patches)"
    assert place.intervention is not None
    assert place.intervention.samples == SAMPLES // 4  # a first look settles it


def test_pictures_without_a_word_have_no_mark(tmp_path):
    accuracy, found = findings("clean", tmp_path)
    assert accuracy > 0.9
    assert {"mark_anywhere", "mark_of_class", "focus_at_position", "relevance_cluster"}.isdisjoint(found)
