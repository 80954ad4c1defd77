"""`lrptrain inspect`: the report of `lrptrain.inspect`, printed."""

from pathlib import Path
from typing import Any

import own_vision
import pytest
import pytorch_lightning as pl
import torch
from hugging_face import small_sizes
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification
from word_pieces import saved_words

import lrptrain
from lrptrain.cli import main

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh"]


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory."""
    monkeypatch.chdir(tmp_path)


def bert() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**small_sizes(16), vocab_size=len(WORDS), initializer_range=1.0))
    ids = torch.randint(4, len(WORDS), (32, 9))
    ids[:, 0], ids[:, -1] = 2, 3
    rows: Any = [{"input_ids": row, "attention_mask": torch.ones_like(row), "label": int(row[1] > 7)} for row in ids]
    return model, torch.utils.data.DataLoader(rows, batch_size=8)


def texts() -> dict[str, Any]:
    model, loader = bert()
    return {
        "model": model,
        "samples": loader,
        "tokenizer": saved_words(WORDS, Path("words").resolve()),
        "max_samples": 16,
    }


def test_the_report_of_images_is_printed_and_written(capsys):
    main(["inspect", "own_vision:untrained", "--max-samples=12", "--html=report.html"])
    report = lrptrain.inspect(*own_vision.untrained(), max_samples=12)
    said = capsys.readouterr().out
    assert report.samples == 12
    assert said == f"{report}\n\nreport.html\n"
    page = Path("report.html").read_text(encoding="utf-8")
    assert report._repr_html_() in page


def test_the_dict_of_a_text_model_is_the_call(capsys):
    main(["inspect", f"{__name__}:texts"])
    report = lrptrain.inspect(**texts())
    assert capsys.readouterr().out == f"{report}\n"
    assert report.samples == 16
    main(["inspect", f"{__name__}:texts", "--max-samples=8"])  # what is typed counts first
    assert "8 samples, " in capsys.readouterr().out
    main(["inspect", f"{__name__}:bert", "--max-samples=8"])
    assert "8 samples, " in capsys.readouterr().out


def test_a_config_with_a_checkpoint_is_inspected(tmp_path, capsys):
    torch.manual_seed(0)
    module = own_vision.Saved(width=8)
    checkpoint = own_vision.checkpoint(module, tmp_path / "a.ckpt")
    Path("config.yaml").write_text(
        "model: {class_path: own_vision.Saved, init_args: {width: 8}}\ndata: own_vision.Data\n", encoding="utf-8"
    )
    main(["inspect", "--config", "config.yaml", "--ckpt-path", checkpoint, "--max-samples", "8"])
    report = lrptrain.inspect(module, own_vision.loader(), max_samples=8)
    assert capsys.readouterr().out == f"{report}\n"


class Texts(pl.LightningDataModule):
    """Knows its tokenizer, which its loader does not."""

    def setup(self, stage: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(saved_words(WORDS, Path("words").resolve()))

    def val_dataloader(self) -> Any:
        return bert()[1]


class Bert(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = bert()[0]


def test_the_tokenizer_of_a_datamodule_is_used(capsys):
    Path("config.yaml").write_text(f"model: {__name__}.Bert\ndata: {__name__}.Texts\n", encoding="utf-8")
    main(["inspect", "--config=config.yaml", "--max-samples=16"])
    said = capsys.readouterr().out.partition("\n")[2]
    assert said == f"{lrptrain.inspect(**texts())}\n"
    assert said != f"{lrptrain.inspect(**{**texts(), 'tokenizer': None})}\n"


def wrong() -> dict[str, Any]:
    return {**texts(), "class_names": ["a", "b"]}


def test_an_option_in_the_wrong_place_is_one_line():
    with pytest.raises(SystemExit) as ended:
        main(["inspect", f"{__name__}:wrong"])
    assert ended.value.code == (
        "lrptrain: inspect has no argument class_names: write show=lrptrain.Show(class_names=...)"
    )
