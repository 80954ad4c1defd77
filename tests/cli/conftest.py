import own_vision
import pytest
import torch

from lrptrain.data import PlantedDigits
from lrptrain.models import ImageClassifier

VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint of a small ViT after two steps, which knows the data that it was trained with."""
    torch.manual_seed(0)
    return own_vision.checkpoint(
        ImageClassifier(10, model_kwargs=VIT, schedule="constant"),
        tmp_path_factory.mktemp("digits") / "model.ckpt",
        PlantedDigits(train_size=64, val_size=40, batch_size=32),
        max_steps=2,
    )
