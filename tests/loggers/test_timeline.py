"""Which evaluations of a run stand."""

import errno
import json

import pytest
from examples import finding

from lrptrain.loggers import EpochRecord, local, read_events, read_samples, write_record
from lrptrain.loggers.timeline import (
    FORMAT,
    UnreadableRunError,
    continued_after,
    parse_event,
    read_timeline,
    refusal,
    stands,
    timeline_of,
)


def line(epoch, value=0.0, **others):
    event = {"epoch": epoch, "step": 10 * epoch, "format": FORMAT, "scalars": {"a": value}, "findings": [], **others}
    return json.dumps(event).encode()


def after(moment, epoch, value):
    """The line of a run that goes on after a moment."""
    return line(epoch, value, **continued_after(moment))


def standing(*lines):
    return [(event["epoch"], event["scalars"]["a"]) for event in timeline_of(lines).events]


def record(epoch):
    return EpochRecord(epoch, 10 * epoch, {"relevance/a": 1.0}, {"sample_id": ["a", "b"]})


def test_of_one_moment_the_later_line_counts():
    assert standing(line(1), line(0), line(1, 2.0)) == [(0, 0.0), (1, 2.0)]


def test_what_came_after_the_checkpoint_is_dropped():
    first = [line(epoch) for epoch in range(4)]
    timeline = timeline_of([*first, after((1, 10), 2, 5.0)])
    assert [event["epoch"] for event in timeline.events] == [0, 1, 2]
    assert timeline.events[-1]["scalars"] == {"a": 5.0}
    assert timeline.unreadable == 0


def test_a_run_may_go_on_twice_and_from_its_start():
    lines = [line(0), line(1), after((0, 0), 1, 1.0), line(2, 1.0), after((0, 0), 1, 2.0)]
    assert standing(*lines) == [(0, 0.0), (1, 2.0)]
    assert standing(*lines, after(None, 0, 3.0)) == [(0, 3.0)]


def test_what_stood_when_an_evaluation_was_written_can_be_read_later():
    lines = [line(0, id="a"), line(1, id="b"), line(2, id="c"), after((0, 0), 1, 9.0)]
    assert timeline_of(lines).ids == {(0, 0): "a", (1, 10): ""}
    assert timeline_of(lines, until="c").ids == {(0, 0): "a", (1, 10): "b", (2, 20): "c"}


@pytest.mark.parametrize("wrong", [b"[]", b"3", b'{"epoch": 1}', b'{"continued_after": null}', b"{", b"[" * 100_000])
def test_what_is_no_evaluation_is_counted_and_drops_nothing(wrong):
    timeline = timeline_of([line(0), wrong, b"", line(1, continued_after="x")])
    assert [event["epoch"] for event in timeline.events] == [0, 1]
    assert timeline.unreadable == 1


def test_what_is_of_another_form_is_left_out():
    findings = [3, {"kind": "place"}, {**finding().to_dict(), "is_fault": False}]
    (event,) = timeline_of([line(0, scalars={"a": 1, "b": "text", "c": float("nan")}, findings=findings)]).events
    assert event == {"epoch": 0, "step": 0, "format": FORMAT, "scalars": {"a": 1, "c": None}, "findings": []}


def test_tables_of_dropped_evaluations_are_not_read(tmp_path):
    for epoch in (0, 1, 2):
        write_record(tmp_path, record(epoch))
    assert stands(tmp_path, (2, 20))
    write_record(tmp_path, record(1), marks=continued_after((0, 0)))
    assert [stands(tmp_path, (epoch, 10 * epoch)) for epoch in (0, 1, 2)] == [True, True, False]
    assert read_samples(tmp_path)["epoch"] == [0, 0, 1, 1]
    assert len(read_timeline(tmp_path).events) == 2
    assert stands(tmp_path / "nowhere", (7, 7))


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


@pytest.mark.parametrize(
    ("power", "kept"),
    [
        ({"tells": True, "text": "much"}, {"power": {"tells": True, "text": "much"}}),
        ({"tells": "yes", "text": "much"}, {}),
        ({"tells": True}, {}),
        ("much", {}),
    ],
)
def test_what_could_have_been_found_is_read_where_it_is_of_its_form(power, kept):
    (event,) = timeline_of([line(0, power=power)]).events
    assert {key: value for key, value in event.items() if key == "power"} == kept


def test_what_could_have_been_found_is_written_where_it_is_said(tmp_path):
    power = {"tells": False, "text": "nothing yet"}
    write_record(tmp_path, EpochRecord(0, 0))
    write_record(tmp_path, EpochRecord(1, 1, power=power))
    assert [event.get("power") for event in read_events(tmp_path)] == [None, power]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"epoch": 1, "step": 5}, True),
        ({"epoch": None, "step": None}, True),
        ({"epoch": 1}, False),
        ("epoch 1", False),
        ([1, 5], False),
        (None, False),
    ],
)
def test_whose_weights_an_evaluation_is_of_is_read_if_it_is_a_moment(written, read):
    event = parse_event({"epoch": 4, "step": 20, "format": FORMAT, "weights": written})
    assert event is not None
    assert event.get("weights") == (written if read else None)
    assert ("weights" in event) == read


@pytest.mark.parametrize(
    ("number", "says"), [(None, "an older format without a number"), (FORMAT + 1, f"in format {FORMAT + 1}")]
)
def test_a_run_of_another_format_is_refused(number, says, tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(line(0, format=number) + b"\n" + line(1) + b"\n")
    assert says in refusal(tmp_path)
    with pytest.raises(UnreadableRunError, match="another version of lrptrain"):
        read_events(tmp_path)
    assert timeline_of([line(0, format=number)]).events == []
    path.write_bytes(line(0) + b"\n" + line(1, format=number) + b"\n")
    assert refusal(tmp_path) == ""
    assert [event["epoch"] for event in read_events(tmp_path)] == [0]
    assert refusal(tmp_path / "nowhere") == ""
