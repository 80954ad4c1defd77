"""`lrptrain attribute` of a picture, a text, or the first samples of a loader."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import own_vision
import pytest
import torch
from hostile import png_of
from hugging_face import small_sizes
from PIL import Image
from transformers import BertConfig, BertForSequenceClassification
from word_pieces import saved_words

import lrptrain
from lrptrain.cli import main

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "what", "a", "lovely", "day"]


def transform(picture: Any) -> torch.Tensor:
    """What the validation images of `own_vision` go through."""
    pixels = torch.from_numpy(np.asarray(picture.resize((16, 16)), np.float32) / 255).permute(2, 0, 1)
    return (pixels - torch.tensor(own_vision.MEAN)[:, None, None]) / torch.tensor(own_vision.STD)[:, None, None]


def pictures() -> dict[str, Any]:
    model, loader = own_vision.untrained()
    return {"model": model, "loader": loader, "transform": transform, "class_names": ["red", "green", "blue"]}


def of_16_bits(picture: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(picture).astype(np.float32)).expand(3, 16, 16) / 65535


def deep() -> dict[str, Any]:
    return {**pictures(), "transform": of_16_bits}


def unfinished() -> dict[str, Any]:
    return {**pictures(), "transform": lambda picture: transform(picture)[None]}


def no_tensor() -> dict[str, Any]:
    return {**pictures(), "transform": np.asarray}


def sums(output: torch.Tensor) -> torch.Tensor:
    return output.sum(1)


def of_a_function() -> dict[str, Any]:
    return {**pictures(), "target": sums, "class_names": None}


def by_number() -> dict[str, Any]:
    return {**pictures(), "class_names": {0: "red", 1: "green", 2: "blue"}}


class WithDropout(torch.nn.Module):
    """Answers otherwise in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.net = own_vision.untrained()[0].backbone

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.net(torch.nn.functional.dropout(image, 0.5, self.training))


def dropping() -> dict[str, Any]:
    return {**pictures(), "model": WithDropout().train(), "method": "gradcam"}


def headless() -> tuple[Any, Any]:
    return own_vision.Headless(8), own_vision.loader()


def empty() -> tuple[Any, Any]:
    return own_vision.untrained()[0], []


def bert(**others: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    config = BertConfig(**small_sizes(16, layers=2), vocab_size=len(WORDS))
    config.id2label = {0: "bad", 1: "good"}
    rows: Any = [{"input_ids": torch.tensor([2, 4, 5, 6, 7, 3]), "label": 1}]
    return {"model": BertForSequenceClassification(config), "loader": torch.utils.data.DataLoader(rows), **others}


def texts() -> dict[str, Any]:
    return bert(tokenizer=saved_words(WORDS, Path("words").resolve()))


def of_another_vocabulary() -> dict[str, Any]:
    return bert(tokenizer=saved_words([*WORDS, "dreadful"], Path("other").resolve()))


@pytest.fixture(autouse=True)
def picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory, and in it a picture of a class."""
    monkeypatch.chdir(tmp_path)
    image = own_vision.pixels(2, 5)[0][1]
    Image.fromarray((image.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)).save("green.png")


def refused(*typed: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["attribute", *typed])
    assert "\n" not in str(ended.value.code)
    return str(ended.value.code)


def number_behind(words: str, said: str) -> float:
    """A number that is printed behind some words, with two decimals or three digits."""
    return float(said.partition(words)[2].split()[0].rstrip(","))


@pytest.mark.parametrize("target", ["2", "blue"])
def test_a_picture_is_written_beside_its_map(target, capsys):
    main(["attribute", f"{__name__}:pictures", "green.png", "--target", target, "--method=rollout"])
    model, pixels = pictures()["model"].eval(), transform(Image.open("green.png"))[None]
    with torch.no_grad():
        logit = float(model(pixels)[0, 2])
    said = capsys.readouterr().out
    assert number_behind("target 'blue', logit ", said) == pytest.approx(logit, abs=0.0051)
    assert said.endswith("\nrelevance.png\n")
    with Image.open("relevance.png") as written:
        assert written.width > 2 * 160  # the image beside its map
    main(["attribute", "--target=2", "--output=map.json", f"{__name__}:pictures", "--method", "rollout", "green.png"])
    (sample,) = json.loads(Path("map.json").read_text(encoding="utf-8"))["samples"]
    expected = lrptrain.attribute(model, pixels, 2, "rollout")
    assert sample["target"] == 2
    assert sample["scores"] == pytest.approx(expected.scores[0].tolist(), rel=1e-4, abs=1e-7)


def test_the_first_samples_of_the_loader_are_explained(capsys):
    main(["attribute", "own_vision:adapted", "--method=random", "--max-samples=3", "--output=map.json"])
    samples = json.loads(Path("map.json").read_text(encoding="utf-8"))["samples"]
    assert [each["title"].partition(":")[0] for each in samples] == ["sample 0", "sample 1", "sample 2"]
    model, images = own_vision.untrained()[0].eval(), own_vision.samples(24, 1).tensors[0][:3]
    with torch.no_grad():
        assert [each["target"] for each in samples] == model(images).argmax(1).tolist()
    assert "more samples" not in capsys.readouterr().out
    assert "max_samples must be at least 1" in refused("own_vision:adapted", "--max-samples=0")
    assert "the loader has no sample" in refused(f"{__name__}:empty")


def test_a_dict_may_have_any_target_and_names_by_number(capsys):
    main(["attribute", f"{__name__}:by_number", "green.png", "--target=blue"])
    assert "target 'blue', logit" in capsys.readouterr().out
    main(["attribute", f"{__name__}:of_a_function", "green.png"])
    with torch.no_grad():
        total = float(pictures()["model"].eval()(transform(Image.open("green.png"))[None]).sum())
    assert number_behind("output ", capsys.readouterr().out) == pytest.approx(total, rel=0.0051)


def test_the_model_answers_as_in_evaluation(capsys):
    main(["attribute", f"{__name__}:dropping", "green.png"])
    with torch.no_grad():
        logit = float(WithDropout().eval()(transform(Image.open("green.png"))[None]).max())
    assert number_behind("logit ", capsys.readouterr().out) == pytest.approx(logit, abs=0.0051)


def test_a_text_is_shown_in_the_colours_of_its_words(monkeypatch, capsys):
    main(["attribute", f"{__name__}:texts", "what a lovely day", "--target=good", "--method=rollout"])
    said = capsys.readouterr().out
    assert "target 'good', " in said
    assert "lovely" in said
    assert "\x1b" not in said
    assert not Path("relevance.png").exists()
    monkeypatch.setattr("lrptrain.relevance.shown.showing.takes_color", lambda: True)
    main(["attribute", f"{__name__}:texts", "what a lovely day", "--output=text.html"])
    assert ";48;2;" in capsys.readouterr().out
    assert "lovely" in Path("text.html").read_text(encoding="utf-8")
    main(["attribute", f"{__name__}:texts"])
    assert "lovely" in capsys.readouterr().out


def test_pictures_are_opened_as_those_of_a_folder(capsys):
    picture = Image.open("green.png")
    picture.convert("RGBA").save("alpha.png")
    said = []
    for name in ("green.png", "alpha.png"):
        main(["attribute", f"{__name__}:pictures", name])
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    values = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257
    Image.fromarray(values).save("deep.png")
    main(["attribute", f"{__name__}:deep", "deep.png", "--target=0"])
    with torch.no_grad():
        logit = float(pictures()["model"].eval()(torch.from_numpy(values / 65535).float().expand(1, 3, 16, 16))[0, 0])
    assert number_behind("logit ", capsys.readouterr().out) == pytest.approx(logit, abs=0.0051)
    assert "the transform makes [1, 3, 16, 16] of green.png: it must make" in refused(
        f"{__name__}:unfinished", "green.png"
    )
    assert "the transform makes a ndarray of green.png" in refused(f"{__name__}:no_tensor", "green.png")


PICTURES: dict[str, tuple[bytes, str]] = {
    "nothing.png": (b"", "cannot read the picture nothing.png: "),
    "large.png": (png_of(60_000, 60_000), "cannot read the picture large.png: "),
    "text.jpg": (b"%!PS-Adobe-3.0 EPSF-3.0\n", "cannot read the picture text.jpg: "),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_that_cannot_be_read_is_one_line(name):
    content, says = PICTURES[name]
    if content:
        Path(name).write_bytes(content)
    assert says in refused(f"{__name__}:pictures", name)


def test_what_is_missing_is_one_line(capsys):
    assert '"transform": transform}, which makes [channels, height, width]' in refused("own_vision:untrained", "a.png")
    assert "there is no class 'pink'; there are red, green, blue" in refused(
        f"{__name__}:pictures", "green.png", "--target=pink"
    )
    assert "target 'pink' is a name, but the model has no config.label2id" in refused(
        "own_vision:untrained", "--target=pink"
    )
    assert "the inputs are text, with no tokenizer: pass tokenizer=" in refused(f"{__name__}:bert", "a day")
    assert "the tokenizer gives token 8, and the model has 8" in refused(
        f"{__name__}:of_another_vocabulary", "dreadful"
    )
    assert "could be any of ['backbone', 'other']: pass the model itself" in refused(f"{__name__}:headless")
    assert "unknown method 'gradcam++'; did you mean gradcam?" in refused("own_vision:untrained", "--method=gradcam++")
