"""Of long histories a line has the end alone; read together, lines have all of it, also for a gate."""

import json
from dataclasses import replace
from typing import Any

import pytest

import lrptrain
from lrptrain.findings import Finding
from lrptrain.loggers import EpochRecord, read_events, read_findings
from lrptrain.loggers.local import write_record
from lrptrain.loggers.timeline import EVENTS, MOST_ENTRIES, UnreadableRunError, read_for_judgement

EVALUATIONS = 3 * MOST_ENTRIES


def found(epochs: int, name: str = "the corner", first: int = 0) -> Finding:
    verdicts: Any = ("relies",) * epochs
    return Finding(
        name, "place", "unreviewed", "relies", 0.5, (0.4, 0.6), 16,
        epoch=first + epochs - 1, first_epoch=first,
        history=tuple(0.5 + i / 1000 for i in range(epochs)), verdicts=verdicts,
        epochs=tuple(range(first, first + epochs)),
    )  # fmt: skip


def write(folder, epoch, *findings):
    write_record(folder, EpochRecord(epoch, epoch, {"relevance/samples": 8.0}, {}, findings=list(findings)))


@pytest.fixture
def folder(tmp_path):
    for epoch in range(EVALUATIONS):
        # Another one begins anew in the middle.
        other = [found(epoch - 29, "the border", 30)] if epoch >= 30 else []
        write(tmp_path, epoch, found(epoch + 1), *other)
    return tmp_path


def test_histories_are_whole_and_lines_do_not_grow(folder):
    lines = (folder / EVENTS).read_bytes().splitlines()
    assert len(lines[-1]) < 1.1 * len(lines[-MOST_ENTRIES])
    for epoch, event in enumerate(read_events(folder)):
        first = event["findings"][0]
        assert first["epochs"] == list(range(epoch + 1))
        assert first["history"] == [0.5 + i / 1000 for i in range(epoch + 1)]
        assert "past" not in first
    assert read_events(folder)[-1]["findings"][1]["epochs"] == list(range(30, EVALUATIONS))
    assert [len(each.verdicts) for each in read_findings(folder)] == [EVALUATIONS, EVALUATIONS - 30]


def test_a_gate_sees_the_whole_history_or_refuses_the_run(folder):
    judged = read_for_judgement(folder)
    assert judged is not None
    assert [len(each.verdicts) for each in judged.findings] == [EVALUATIONS, EVALUATIONS - 30]
    lines = (folder / EVENTS).read_text().splitlines()
    broken = json.loads(lines[-2])
    broken["findings"][0]["name"] = "of another name"
    (folder / EVENTS).write_text("\n".join([*lines[:-2], json.dumps(broken), lines[-1]]) + "\n")
    again = read_for_judgement(folder)
    assert again is not None
    assert [len(each.verdicts) for each in again.findings] == [MOST_ENTRIES, EVALUATIONS - 30]
    assert lrptrain.check(folder, fail_after=MOST_ENTRIES).fail_after == MOST_ENTRIES
    with pytest.raises(UnreadableRunError, match="the history of 'the corner' is not in the lines before"):
        lrptrain.check(folder, fail_after=MOST_ENTRIES + 1)


def test_a_history_that_begins_anew_stays_short(tmp_path):
    for epoch in range(MOST_ENTRIES + 5):
        write(tmp_path, epoch, found(epoch + 1))
    anew = replace(found(1), epoch=99, first_epoch=99, epochs=(99,))
    write(tmp_path, 99, anew)
    assert read_events(tmp_path)[-1]["findings"][0]["epochs"] == [99]
