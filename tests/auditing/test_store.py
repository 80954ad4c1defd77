import math

from lrptrain.auditing.store import Store


def test_a_second_store_continues_the_first(tmp_path):
    path = tmp_path / "audit" / "units.jsonl"
    first = Store(path)
    first.add("one", {"gain": [0.5, math.nan], "per": {"x": 1.0}})
    first.add("one", {"gain": [0.25]})
    first.add("two", {"seconds": 2.0})
    second = Store(path)
    assert second.get("one") == {"gain": [0.25]}
    assert second.get("two") == {"seconds": 2.0}
    assert second.get("three") is None
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3


def test_what_is_not_finite_is_kept_as_nan(tmp_path):
    Store(tmp_path / "units.jsonl").add("one", {"gain": [1.0, math.nan], "low": math.inf})
    found = Store(tmp_path / "units.jsonl").get("one")
    assert found is not None
    assert found["gain"][0] == 1.0
    assert math.isnan(found["gain"][1])
    assert math.isnan(found["low"])
    assert "NaN" not in (tmp_path / "units.jsonl").read_text(encoding="utf-8")


def test_a_line_that_was_cut_off_costs_itself_alone(tmp_path):
    path = tmp_path / "units.jsonl"
    Store(path).add("one", {"x": 1.0})
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole + whole[:12], encoding="utf-8")
    store = Store(path)
    store.add("two", {"x": 2.0})
    again = Store(path)
    assert again.get("one") == {"x": 1.0}
    assert again.get("two") == {"x": 2.0}


def test_without_a_path_all_is_in_memory():
    store = Store()
    store.add("one", {"x": 1.0})
    assert store.get("one") == {"x": 1.0}
