import io
from dataclasses import replace

import numpy as np
import pytest
from examples import OPEN, board_of, finding
from PIL import Image
from pytorch_lightning.loggers import TensorBoardLogger

from lrptrain.loggers import EpochRecord, Highlight, Picture, send

FINDING = finding()
PIXELS = np.full((170, 180, 3), (0, 255, 0), np.uint8)


@pytest.fixture
def written(tmp_path):
    """Two epochs, the finding new in the first, read back by TensorBoard."""
    logger = TensorBoardLogger(tmp_path)
    first = EpochRecord(
        epoch=0,
        step=7,
        scalars={"relevance/epg": 0.5},
        pictures=[Picture(17, "digit 17", PIXELS), Picture("b", "digit b", PIXELS)],
        texts=[Highlight("t", "label 0", "<b>good</b>", "**good**")],
        findings=[FINDING],
        new_findings=[FINDING, OPEN],
    )
    for record in (first, replace(first, step=14, new_findings=[])):
        send(logger, record)
    logger.finalize("success")
    return board_of(logger.log_dir)


def test_each_sample_has_its_pictures_over_the_epochs(written):
    assert written.Tags()["images"] == ["relevance/overlays/17", "relevance/overlays/b"]
    images = written.Images("relevance/overlays/17")
    assert [image.step for image in images] == [7, 14]
    pixels = np.asarray(Image.open(io.BytesIO(images[0].encoded_image_string)).convert("RGB"))
    assert np.all(pixels == (0, 255, 0), axis=-1).sum() == 170 * 180
    assert (pixels[176:] < 80).any()  # the caption


def text(written, tag):
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in written.Tensors(f"{tag}/text_summary")]


def test_texts_are_markdown(written):
    assert text(written, "relevance/highlights/t") == [(7, "label 0\n\n**good**"), (14, "label 0\n\n**good**")]


def test_findings_are_told_when_they_are_new(written):
    assert text(written, "relevance/findings") == [(7, f"- {FINDING}\n- {OPEN}")]


def test_the_findings_that_stand_are_a_table_in_each_epoch(written):
    (first, table), (second, again) = text(written, "relevance/findings_table")
    assert (first, second, again) == (7, 14, table)
    heading, line, row = table.splitlines()
    assert len(heading.split("|")) == len(line.split("|")) == len(row.split("|"))
    assert "| relies | shortcut | place | the top left corner | 0.4 | 0.3 | 0.5 | 24 |" in row


def test_scalars_are_left_to_lightning(written):
    assert written.Tags()["scalars"] == []
