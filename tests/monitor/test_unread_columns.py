"""Annotations that a collator drops are read all the same, as of Hugging Face's `datasets`."""

from typing import Any

import numpy as np
import pytest
import torch
from hugging_face import quiet_arguments, small_sizes
from PIL import Image

import lrptrain
from lrptrain.batch import read_batch
from lrptrain.callbacks import RelevanceMonitorCallback
from lrptrain.monitor.unread_columns import WholeBatches


def pixels(columns: dict[str, Any]) -> dict[str, Any]:
    images = [torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255 for image in columns["image"]]
    masks = [torch.tensor(mask) for mask in columns["mask"]]
    return {"pixel_values": images, "labels": columns["label"], "mask": masks}


def collate(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    images = torch.stack([sample["pixel_values"] for sample in samples])
    return {"pixel_values": images, "labels": torch.tensor([sample["labels"] for sample in samples])}


def test_a_transform_makes_the_images_and_the_features_name_the_classes(tmp_path):
    datasets = pytest.importorskip("datasets")
    from transformers import Trainer, ViTConfig, ViTForImageClassification

    noise = np.random.default_rng(0).integers(0, 255, (8, 16, 16, 3), np.uint8)
    mask = np.zeros((16, 16), np.uint8)
    mask[:8] = 1
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "mask": datasets.Array2D((16, 16), "uint8"),
        }
    )
    columns = {"image": [Image.fromarray(each) for each in noise], "label": [0, 1] * 4, "mask": [mask] * 8}
    dataset = datasets.Dataset.from_dict(columns, features=features)
    dataset.set_transform(pixels)
    arguments = quiet_arguments(tmp_path, num_train_epochs=1, eval_strategy="epoch", remove_unused_columns=False)
    monitor = RelevanceMonitorCallback(budget=None, run=lrptrain.Run(on_error="raise"))
    Trainer(
        ViTForImageClassification(ViTConfig(image_size=16, patch_size=4, **small_sizes(16))),
        arguments,
        train_dataset=dataset,
        eval_dataset=dataset,
        data_collator=collate,
        callbacks=[monitor],
    ).train()
    assert monitor.core.recorder.scalars["relevance/chance"] == 0.5
    assert "relevance/label/energy_pointing_game_per_class/dog" in monitor.core.recorder.scalars


def rows(lengths):
    return [
        {"input_ids": torch.ones(n, dtype=torch.long), "rationale": [1] + [0] * (n - 1), "name": "x"} for n in lengths
    ]


def collator(side):
    def collate(samples):
        width = max(len(sample["input_ids"]) for sample in samples)
        assert all("rationale" not in sample for sample in samples)
        ids = torch.zeros(len(samples), width, dtype=torch.long)
        for row, sample in zip(ids, samples, strict=True):
            length = len(sample["input_ids"])
            row[slice(None, length) if side == "right" else slice(width - length, None)] = sample["input_ids"]
        return {"input_ids": ids, "attention_mask": ids}

    return collate


def test_columns_that_a_collator_drops_stand_where_its_tokens_do():
    for side, expected in (("right", [[1, 0, 255], [1, 0, 0]]), ("left", [[255, 1, 0], [1, 0, 0]])):
        batches = WholeBatches(rows([2, 3]), None, collator(side), ("rationale", "name"))
        batch = batches.collate_fn(rows([2, 3]))
        assert read_batch(batch)["rationale"].tolist() == expected
        assert batch["name"] == ["x", "x"]


def test_a_collator_gets_what_a_transform_makes_of_the_columns_that_a_dataset_names():
    # As after `datasets.Dataset.set_transform`: the dataset has the column "image", its samples have "pixel_values".
    samples = [{"pixel_values": torch.full((2,), float(i)), "mask": [i, 1]} for i in range(2)]
    batches = WholeBatches(
        samples, None, lambda batch: {"pixel_values": torch.stack([each["pixel_values"] for each in batch])}, {"mask"}
    )
    batch = batches.collate_fn(samples)
    assert batch["pixel_values"].tolist() == [[0, 0], [1, 1]]
    assert batch["mask"].tolist() == [[0, 1], [1, 1]]
