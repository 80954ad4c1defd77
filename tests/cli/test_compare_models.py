"""`lrptrain compare-models`: checkpoints beside each other."""

import own_vision
import pytest
import torch

import lrptrain
from lrptrain.cli import main
from lrptrain.cli.compare_models import named_paths
from lrptrain.data import PlantedDigits
from lrptrain.models import ImageClassifier

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*logging interval:UserWarning"),
]
VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Two models after one step, from other seeds; with the data that they were trained on."""
    folder = tmp_path_factory.mktemp("models")
    paths = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = ImageClassifier(10, model_kwargs=VIT)
        data = PlantedDigits(train_size=64, val_size=60)
        paths.append(own_vision.checkpoint(model, folder / f"{seed}.ckpt", data, max_steps=1))
    return paths


def test_the_table_is_that_of_the_function(checkpoints, capsys):
    first, second = checkpoints
    main(["compare-models", f"plain={first},swap={second}", "--max-samples=40", "--device=cpu"])
    said = capsys.readouterr().out.strip()
    data = PlantedDigits(train_size=64, val_size=60)
    data.prepare_data()
    data.setup("validate")
    models = {
        name: ImageClassifier.load_from_checkpoint(path).eval()
        for name, path in zip(("plain", "swap"), checkpoints, strict=True)
    }
    expected = str(lrptrain.compare_models(models, data.val_dataloader(), max_samples=40))
    assert said.endswith(expected)
    assert "In points above 'plain'" in said


def test_paths_have_names_or_are_their_own():
    assert named_paths("plain=a.ckpt, b.ckpt") == {"plain": "a.ckpt", "b.ckpt": "b.ckpt"}
    with pytest.raises(ValueError, match=r"two checkpoints are called 'a\.ckpt'"):
        named_paths("a.ckpt,a.ckpt")
    for wrong in ("a.ckpt,", "=a.ckpt", "plain="):
        with pytest.raises(ValueError, match="paths separated by commas"):
            named_paths(wrong)
