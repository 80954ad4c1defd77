from typing import Any

import numpy as np
import pytest
from examples import finding

from lrptrain.loggers import EpochRecord, Highlight, Picture
from lrptrain.loggers.other import log_to_other
from lrptrain.loggers.record_tables import findings_markdown, findings_table

RECORD = EpochRecord(
    epoch=1,
    step=7,
    samples={"sample_id": [17]},
    pictures=[
        Picture(17, "digit 17", np.zeros((4, 4, 3), np.uint8)),
        Picture(4, "digit 4", np.ones((4, 4, 3), np.uint8)),
    ],
    texts=[Highlight("t", "label 0", "<b>good</b>", "**good**")],
    findings=[finding()],
)


class Keeps:
    def __init__(self) -> None:
        self.calls: list[Any] = []


class Like(Keeps):
    """With `WandbLogger`'s methods."""

    def log_image(self, key, images, step=None, **kwargs):
        self.calls.append((key, len(images), step, kwargs))

    def log_table(self, key, columns=None, data=None, dataframe=None, step=None):
        self.calls.append((key, columns, len(data), step))

    def log_text(self, key, columns=None, data=None, dataframe=None, step=None):
        self.calls.append((key, columns, data, step))


class Plain(Keeps):
    """With as little as there can be."""

    def log_image(self, key, images):
        self.calls.append((key, len(images)))

    def log_text(self, key, text):
        self.calls.append((key, text))


class Open(Keeps):
    def log_text(self, *arguments, **options):
        self.calls.append((*arguments, options))


def test_methods_like_wandbs_get_tables_and_captions():
    logger = Like()
    log_to_other(logger, RECORD)
    assert logger.calls == [
        ("relevance/overlays", 2, 7, {"caption": ["digit 17", "digit 4"]}),
        ("relevance/highlights", ["sample_id", "caption", "text"], [["t", "label 0", "**good**"]], 7),
        ("relevance/findings_table", list(findings_table([])), 1, 7),
    ]


def test_what_a_method_does_not_take_is_left_out():
    logger = Plain()
    log_to_other(logger, RECORD)
    assert logger.calls == [
        ("relevance/overlays", 2),
        ("relevance/highlights/t", "label 0\n\n**good**"),
        ("relevance/findings_table", findings_markdown(RECORD.findings)),
    ]


def test_a_method_that_takes_anything_is_given_the_step():
    logger = Open()
    log_to_other(logger, RECORD)
    assert [call[-1] for call in logger.calls] == [{"step": 7}] * 2


@pytest.mark.parametrize("logger", [object(), type("Odd", (), {"log_image": "no method", "log_text": None})()])
def test_without_methods_nothing_is_called(logger):
    log_to_other(logger, RECORD)


def test_an_empty_record_calls_nothing():
    logger = Plain()
    log_to_other(logger, EpochRecord(0, 0))
    assert logger.calls == []
