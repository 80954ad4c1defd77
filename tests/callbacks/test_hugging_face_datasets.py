"""Evaluation sets of Hugging Face's `datasets`, as its tutorials make them."""

from typing import Any

import numpy as np
import pytest
import torch
from hugging_face import quiet_arguments, small_sizes
from PIL import Image

import lrptrain
from lrptrain.callbacks import RelevanceMonitorCallback

datasets = pytest.importorskip("datasets")


def pixels(columns: dict[str, Any]) -> dict[str, Any]:
    images = [torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255 for image in columns["image"]]
    masks = [torch.tensor(mask) for mask in columns["mask"]]
    return {"pixel_values": images, "labels": columns["label"], "mask": masks}


def collate(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    images = torch.stack([sample["pixel_values"] for sample in samples])
    return {"pixel_values": images, "labels": torch.tensor([sample["labels"] for sample in samples])}


def test_a_transform_makes_the_images_and_the_features_name_the_classes(tmp_path):
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
