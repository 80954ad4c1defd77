"""All stages, from a trained classifier and its data, on the command line."""

from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from classified import squares as drawn
from PIL import Image

from lrptrain.cli import main
from lrptrain.data import ImageMaskFolder
from lrptrain.models import ImageClassifier
from lrptrain.segmentation import export_files

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning"),
]
NET = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2}


@pytest.fixture
def squares(tmp_path):
    """A folder of red and green squares, as `ImageMaskFolder` reads it."""
    given = drawn(30)
    (tmp_path / "images").mkdir(), (tmp_path / "masks").mkdir()
    lines = ["name,label,split"]
    for row, (image, mask) in enumerate(zip(given["image"], given["mask"], strict=True)):
        pixels = (image.clamp(0, 1) * 255).to(torch.uint8).permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(tmp_path / "images" / f"{row:02d}.png")
        Image.fromarray(mask.numpy()).save(tmp_path / "masks" / f"{row:02d}.png")
        split = "train" if row < 18 else "val" if row < 24 else "test"
        lines.append(f"{row:02d},{('red', 'green')[row % 2]},{split}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    return tmp_path


def test_the_command(squares, tmp_path, capsys):
    config, out = tmp_path / "fit.yaml", tmp_path / "out"
    config.write_text(f"""
model:
  class_path: lrptrain.models.ImageClassifier
  init_args: {{num_classes: 2, model_kwargs: {NET}, lr: 3.0e-3}}
data:
  class_path: lrptrain.data.ImageMaskFolder
  init_args: {{root: {squares}, size: 16, batch_size: 9}}
""")
    data = ImageMaskFolder(str(squares), size=16, batch_size=9)
    classifier = ImageClassifier(2, model_kwargs=NET, lr=3e-3)
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", enable_model_summary=False, **options)
    trainer.fit(classifier, data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    given = ["segment", f"--config={config}", f"--ckpt_path={tmp_path / 'model.ckpt'}", f"--output={out}"]
    given += ["--masks.scales=[1]", "--masks.refine_options={'dilations': [1, 2]}", "--training.max_epochs=1"]
    main(given)
    said = capsys.readouterr().out
    assert "30 of 30 images done" in said
    assert "| mean IoU | seeds | refined | pseudo-masks | segmenter |" in said
    assert "% of the pixels" in said
    results = export_files.read_json_file(out / "results.json")
    assert results.keys() == {"train", "val", "test", "segmenter"}
    assert results["segmenter"].keys() == {"val", "test"}
    assert 0 <= results["segmenter"]["test"]["mean_iou"] <= 1
    assert results["train"]["images"] == 18
    assert export_files.read_classes(out) == ["green", "red"]
    written = (out / "segmenter" / "segmenter.ckpt").stat().st_mtime_ns
    # Nothing is made again; and of the segmenter's file the weights alone are read, whatever it says that it is of.
    saved = torch.load(out / "segmenter" / "segmenter.ckpt", weights_only=True)
    about = {"_class_path": "os.path.join", "_instantiator": "os.system"}
    torch.save({**saved, "hyper_parameters": about, "hparams": about}, out / "segmenter" / "segmenter.ckpt")
    written = (out / "segmenter" / "segmenter.ckpt").stat().st_mtime_ns
    main(given)
    assert export_files.read_json_file(out / "results.json") == results
    assert (out / "segmenter" / "segmenter.ckpt").stat().st_mtime_ns == written
