"""What annotations mark is shown as it is read, before anything is trained."""

import re
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import StackDataset

import lrptrain
from lrptrain.render.image import OUTLINE


def images(value: int = 1) -> dict[str, Tensor]:
    mask = torch.zeros(4, 16, 16, dtype=torch.uint8)
    mask[:, 4:12, 4:12] = value
    mask[3] = 255
    return {"image": torch.rand(4, 3, 16, 16), "mask": mask, "label": torch.arange(4)}


def test_images_have_the_outline_of_their_masks(tmp_path):
    shown = lrptrain.preview([images(), images()], max_samples=6)
    assert str(shown).splitlines()[:2] == ["#0, label 0: 25 % marked", "#1, label 1: 25 % marked"]
    assert shown.lines[3] == "#3, label 3: all ignored (255)"
    assert len(shown.pictures) == 6
    line = (torch.from_numpy(shown.pictures[0]) == torch.tensor(OUTLINE)).all(-1)
    scale = line.shape[0] // 16
    rows, columns = line.nonzero().T
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (4 * scale, 12 * scale - 1) * 2
    assert not (torch.from_numpy(shown.pictures[3]) == torch.tensor(OUTLINE)).all(-1).any()
    with Image.open(shown.save(tmp_path / "masks.png")) as sheet:
        assert sheet.width > 4 * line.shape[1]
    assert "25 % marked" in shown.save(tmp_path / "masks.html").read_text()


def test_what_a_monitor_refuses_is_refused():
    with pytest.raises(ValueError, match="mask > 0"):
        lrptrain.preview([images(255)])
    with pytest.raises(ValueError, match=r"sample 0 of a batch cannot be used: .*mask"):
        lrptrain.preview([{**images(), "mask": images()["mask"] * 7}])
    with pytest.raises(ValueError, match="no samples"):
        lrptrain.preview([])


def test_a_data_set_is_taken_as_a_loader_of_it_and_a_data_module_is_refused():
    columns: Any = images()
    assert str(lrptrain.preview(StackDataset(**columns))) == str(lrptrain.preview([columns]))
    with pytest.raises(
        ValueError, match="a DataLoader, a Dataset or an iterable of batches, not a LightningDataModule"
    ):
        lrptrain.preview(pl.LightningDataModule())


def test_what_looks_odd_in_all_images_is_said(tmp_path):
    boxes = torch.tensor([[1.0, 1, 5, 6]]) + torch.arange(6)[:, None] / 8
    sizes = {"image": torch.rand(6, 3, 16, 16), "boxes": boxes[:, None], "label": torch.arange(6)}
    shown = lrptrain.preview([sizes])
    assert "are yours (x, y, width, height)?" in str(shown)
    assert shown.save(tmp_path / "boxes.png").exists()


def test_boxes_and_functions_are_drawn():
    columns = images()
    del columns["mask"]
    boxes = torch.tensor([[[0.0, 0.0, 8.0, 8.0]]]).expand(4, 1, 4)
    assert lrptrain.preview([{**columns, "boxes": boxes}]).lines[0] == "#0, label 0: 25 % marked"

    def left(image: Tensor, label: int) -> Tensor:
        mask = torch.zeros(16, 16)
        mask[:, :4] = 1
        return mask

    assert lrptrain.preview([columns], annotate=left).lines[1] == "#1, label 1: 25 % marked"
    assert lrptrain.preview([columns]).lines[1] == "#1, label 1: no annotation"


def test_words_of_texts_are_underlined(tmp_path):
    ids = torch.arange(5, 13).view(1, 8)
    rationale = torch.tensor([[255, 0, 1, 1, 0, 0, 0, 255]])
    shown = lrptrain.preview([{"input_ids": ids, "rationale": rationale, "label": torch.tensor([1])}])
    assert shown.lines == ["#0, label 1: 33 % marked, 25 % ignored"]
    assert len(re.findall("underline", shown.texts[0])) == 2
    with pytest.raises(ValueError, match=r"saved as \.html"):
        shown.save(tmp_path / "words.png")


def test_a_page_is_utf_8_whatever_the_machine_writes(tmp_path, monkeypatch):
    monkeypatch.setattr("io.text_encoding", lambda encoding, stacklevel=2: encoding or "ascii")
    sample = {"input_ids": torch.tensor([[5, 6]]), "label": torch.tensor([1]), "sample_id": ["größe"]}
    page = lrptrain.preview([sample]).save(tmp_path / "words.html")
    assert "größe" in page.read_text("utf-8")


def test_volumes_show_a_slice():
    mask = torch.zeros(2, 6, 8, 8, dtype=torch.uint8)
    mask[:, 3, 2:6, 2:6] = 1
    shown = lrptrain.preview([{"image": torch.rand(2, 1, 6, 8, 8), "mask": mask, "label": torch.arange(2)}])
    assert len(shown.pictures) == 2


@pytest.mark.parametrize("label", [torch.rand(4, 3).round(), torch.rand(4), torch.zeros(4, 16, 16).long()])
def test_labels_that_are_no_classes_are_not_asked_about(label):
    assert lrptrain.preview([{**images(), "label": label}]).lines[0] == "#0: 25 % marked"


def test_what_looks_odd_does_not_keep_pictures_from_a_file(tmp_path):
    columns = images()
    del columns["mask"]
    boxes = torch.tensor([[[1.0, 1.0, 3.0, 3.0 + i]] for i in range(4)] * 2)
    shown = lrptrain.preview([{"image": torch.rand(8, 3, 16, 16), "boxes": boxes}])
    shown.save(tmp_path / "boxes.png")
    shown.save(tmp_path / "boxes.html")
