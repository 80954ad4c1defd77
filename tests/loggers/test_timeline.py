"""Which evaluations of a run stand."""

import errno
import json

import pytest

from lrptrain.loggers import EpochRecord, local, read_events, read_samples, write_record
from lrptrain.loggers.timeline import continued_after, read_dropped, read_timeline, timeline_of


def line(epoch, value=0.0, **others):
    event = {"epoch": epoch, "step": 10 * epoch, "scalars": {"a": value}, "findings": [], **others}
    return json.dumps(event).encode()


def record(epoch):
    return EpochRecord(epoch, 10 * epoch, {"relevance/a": 1.0}, {"sample_id": ["a", "b"]})


def going_on(moment):
    return json.dumps(continued_after(moment)).encode()


def standing(*lines):
    return [(event["epoch"], event["scalars"]["a"]) for event in timeline_of(lines).events]


def test_of_one_moment_the_later_line_counts():
    assert standing(line(1), line(0), line(1, 2.0)) == [(0, 0.0), (1, 2.0)]


def test_what_came_after_the_checkpoint_is_dropped_until_it_is_evaluated_anew():
    first = [line(epoch) for epoch in range(4)]
    timeline = timeline_of([*first, going_on((1, 10)), line(2, 5.0)])
    assert [event["epoch"] for event in timeline.events] == [0, 1, 2]
    assert timeline.events[-1]["scalars"] == {"a": 5.0}
    assert timeline.dropped == {(3, 30)}
    assert timeline.unreadable == 0


def test_a_run_may_go_on_twice_and_from_its_start():
    lines = [line(0), line(1), going_on((0, 0)), line(1, 1.0), line(2, 1.0), going_on((0, 0)), line(1, 2.0)]
    assert standing(*lines) == [(0, 0.0), (1, 2.0)]
    assert standing(*lines, going_on(None)) == []
    assert standing(*lines, going_on(None), line(0, 3.0)) == [(0, 3.0)]


@pytest.mark.parametrize("wrong", [b"[]", b"3", b'{"epoch": 1}', b'{"continued_after": "x"}', b"{", b"[" * 100_000])
def test_what_is_neither_is_counted_and_drops_nothing(wrong):
    timeline = timeline_of([line(0), wrong, b"", line(1)])
    assert [event["epoch"] for event in timeline.events] == [0, 1]
    assert timeline.unreadable == 1


def test_what_is_of_another_form_is_left_out():
    findings = [3, {"kind": "focus_outside_annotation"}]
    (event,) = timeline_of([line(0, scalars={"a": 1, "b": "text", "c": float("nan")}, findings=findings)]).events
    assert event == {"epoch": 0, "step": 0, "scalars": {"a": 1, "c": None}, "findings": []}


def test_tables_of_dropped_evaluations_are_not_read(tmp_path):
    for epoch in (0, 1, 2):
        write_record(tmp_path, record(epoch))
    assert read_dropped(tmp_path) == frozenset()
    local.append_json_line(tmp_path / "events.jsonl", continued_after((0, 0)))
    write_record(tmp_path, record(1))
    assert read_dropped(tmp_path) == {(2, 20)}
    assert read_samples(tmp_path)["epoch"] == [0, 0, 1, 1]
    assert len(read_timeline(tmp_path).events) == 2


def test_on_a_full_disk_the_table_makes_room_for_the_line(tmp_path, monkeypatch):
    append = local.append_json_line

    def append_if_there_is_room(path, value):
        if (tmp_path / "samples" / "epoch_0001_step_000010.parquet").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        append(path, value)

    monkeypatch.setattr(local, "append_json_line", append_if_there_is_room)
    write_record(tmp_path, record(0))
    with pytest.raises(OSError, match="No space left"):
        write_record(tmp_path, record(1))
    assert [event["epoch"] for event in read_events(tmp_path)] == [0, 1]
    assert set(read_samples(tmp_path)["epoch"]) == {0}
