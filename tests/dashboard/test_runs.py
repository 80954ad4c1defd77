import json

import pytest

from lrptrain import loggers
from lrptrain.dashboard.runs import about_run, changed, file_in, find_runs, read_curves, read_last, read_new_events


def test_runs_are_found_at_and_below_a_folder(recorded):
    assert list(find_runs(recorded)) == ["relevance/run", "relevance/texts"]
    assert list(find_runs(recorded / "relevance" / "run")) == ["run"]
    assert find_runs(recorded / "relevance" / "run" / "inputs") == {}
    with pytest.raises(FileNotFoundError, match="is no folder"):
        find_runs(recorded / "nowhere")


def test_an_audit_or_an_export_is_no_run_and_hides_none(runs):
    for name in ("audit/results.json", "segmentation/index.jsonl", "segmentation/classes.json"):
        (runs / name).parent.mkdir(exist_ok=True)
        (runs / name).write_text("{}")
    assert list(find_runs(runs)) == ["run", "texts"]


def test_links_and_hidden_folders_are_passed_over(runs, tmp_path):
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "link").symlink_to(runs)
    (runs / "texts").rename(tmp_path / "given" / ".texts")
    assert find_runs(tmp_path / "given") == {}


def test_no_file_is_reached_through_a_link_or_a_path(runs, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (runs / "run" / "inputs" / "x.webp").symlink_to(tmp_path / "secret")
    assert file_in(runs / "run", "inputs", "x.webp") is None
    assert file_in(runs / "run", "..", "..", "secret") is None
    (runs / "run2").mkdir()
    (runs / "run2" / "near").write_text("the name of its folder begins alike")
    assert file_in(runs / "run", "..", "run2", "near") is None
    assert file_in(runs / "run", "x" * 5000) is None
    assert file_in(runs / "run", "nul\0") is None
    assert file_in(runs / "run", "run.json") is not None


def test_events_are_those_of_the_record_with_the_last_findings_complete(recorded):
    folder = recorded / "relevance" / "run"
    news, expected = read_new_events(folder), loggers.read_events(folder)
    assert [event["scalars"] for event in news["events"]] == [event["scalars"] for event in expected]
    assert news["events"][-1]["findings"] == expected[-1]["findings"]
    brief = [{key: fact[key] for key in news["events"][0]["findings"][0]} for fact in expected[0]["findings"]]
    assert news["events"][0]["findings"] == brief
    assert news["notes"] == []
    assert news["offset"] == (folder / "events.jsonl").stat().st_size == about_run(folder)["size"]


def test_only_what_is_new_and_complete_is_read(runs):
    path = runs / "run" / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:-5])
    first = read_new_events(runs / "run")
    assert [event["epoch"] for event in first["events"]] == [0]
    assert (first["offset"], first["anew"], first["notes"]) == (len(lines[0]), True, [])
    path.write_bytes(b"".join(lines))
    second = read_new_events(runs / "run", first["offset"])
    assert [event["epoch"] for event in second["events"]] == [1, 2]
    assert not second["anew"]
    path.write_bytes(lines[0])
    assert read_new_events(runs / "run", second["offset"])["anew"]


def test_the_list_of_runs_has_the_last_evaluation_with_its_findings_in_short(recorded):
    folder = recorded / "relevance" / "run"
    expected = loggers.read_events(folder)[-1]
    last = about_run(folder)["last"]
    assert last["scalars"] == expected["scalars"]
    assert last["findings"] == [{key: fact.get(key) for key in last["findings"][0]} for fact in expected["findings"]]
    assert "proof" not in last["findings"][0]
    assert last["findings"][0]["sentences"]["verdict"]


@pytest.mark.parametrize("after", [b"", b"{ broken }\n", b'{"epoch": 7'])
def test_a_broken_line_leaves_the_last_evaluation_before_it(runs, after):
    path = runs / "run" / "events.jsonl"
    path.write_bytes(path.read_bytes() + after)
    last = read_last(path)
    assert last is not None
    assert last["epoch"] == 2


def test_the_last_evaluation_of_a_run_that_went_back_is_the_one_that_stands(runs):
    path = runs / "run" / "events.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    back = {
        **lines[1],
        "scalars": {"relevance/accuracy": 0.5},
        "continued_after": {"epoch": 0, "step": lines[0]["step"]},
    }
    path.write_text("".join(json.dumps(line) + "\n" for line in (*lines, back)), encoding="utf-8")
    last = read_last(path)
    assert last is not None
    assert (last["epoch"], last["scalars"]) == (1, {"relevance/accuracy": 0.5})
    assert [row[2] for row in read_curves(runs / "run", ["accuracy"])["accuracy"]][-1] == 0.5
    assert len(read_curves(runs / "run", ["accuracy"])["accuracy"]) == 2


def test_curves_are_the_scalars_of_all_evaluations(recorded):
    folder = recorded / "relevance" / "run"
    events = loggers.read_events(folder)
    curves = read_curves(folder, ["accuracy", "label/energy_pointing_game", "nothing"])
    for name in ("accuracy", "label/energy_pointing_game"):
        rows = [[event["epoch"], event["step"], event["scalars"][f"relevance/{name}"]] for event in events]
        assert curves[name] == rows
    assert curves["nothing"] == []


def test_what_was_written_is_newer_than_all_before(runs):
    before = changed(runs / "run")
    assert before > 0
    (runs / "run" / "run.json").write_text("{}")
    assert changed(runs / "run") > before
    assert changed(runs) == 0


FOREIGN = [
    b"\xff\xfe not text",
    b"[1, 2]",
    b'{"epoch": "three", "step": 1}',
    b"{" * 100_000,
    b'{"epoch": 1',
]


def test_foreign_lines_are_passed_over_with_a_note(runs):
    path = runs / "run" / "events.jsonl"
    scalars = {"a": "text", "b": 1.5, "c": float("nan")}
    odd = {"epoch": 9, "step": 9, "format": 2, "scalars": scalars, "findings": ["x", {"kind": 3}]}
    path.write_bytes(path.read_bytes() + b"\n".join([*FOREIGN, json.dumps(odd).encode()]) + b"\n")
    news = read_new_events(runs / "run")
    assert [event["epoch"] for event in news["events"]] == [0, 1, 2, 9]
    assert news["events"][-1] == {"epoch": 9, "step": 9, "format": 2, "scalars": {"b": 1.5, "c": None}, "findings": []}
    assert news["notes"] == ["5 of 9 lines of events.jsonl are no evaluations and were passed over."]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_settings_that_cannot_be_read_leave_a_note(runs, content):
    (runs / "run" / "run.json").write_bytes(content)
    about = about_run(runs / "run")
    assert about["settings"] == {}
    assert len(about["notes"]) == 1


def test_a_run_without_an_evaluation_is_a_run(tmp_path):
    (tmp_path / "run.json").write_text('{"method": "attnlrp"}')
    about = about_run(find_runs(tmp_path)[tmp_path.name])
    assert about["settings"] == {"method": "attnlrp"}
    assert about["notes"] == ["No evaluation was written yet."]
    assert read_new_events(tmp_path)["events"] == []


def test_a_run_of_another_format_says_so_and_hides_no_other(runs):
    path = runs / "run" / "events.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace('"format": 2, ', ""), encoding="utf-8")
    assert list(find_runs(runs)) == ["run", "texts"]
    (note,) = about_run(runs / "run")["notes"]
    assert "is a run in an older format without a number, written by another version of lrptrain" in note
    news = read_new_events(runs / "run")
    assert (news["events"], news["notes"]) == ([], [])
    assert read_new_events(runs / "texts")["events"]


def test_a_branch_names_its_parent(tmp_path):
    parent = {"run": "first", "id": "1", "evaluation": {"epoch": 2, "step": 30}}
    (tmp_path / "run.json").write_text(json.dumps({"parent": parent}))
    (tmp_path / "events.jsonl").write_text("")
    note = "This run is a branch of first: up to epoch 2, its evaluations are those of that run."
    assert about_run(tmp_path)["notes"] == [note]
    for odd in (3, {"run": 3}, {"run": "first", "evaluation": 3}):
        (tmp_path / "run.json").write_text(json.dumps({"parent": odd}))
        assert "up to" not in " ".join(about_run(tmp_path)["notes"])
