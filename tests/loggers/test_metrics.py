import json

import pytest

from lrptrain.loggers import read_events
from lrptrain.loggers.metrics import current_key, key_names

RENAMED = {
    "relevance/label/energy_pointing_game/dog": "relevance/label/energy_pointing_game_per_class/dog",
    "relevance/b/predicted/energy_pointing_game/a/b": "relevance/b/predicted/energy_pointing_game_per_class/a/b",
    "relevance/accuracy/group_3": "relevance/accuracy_per_group/3",
}
KEPT = ("relevance/label/energy_pointing_game", "relevance/findings", "relevance/label/region/accuracy")


def test_names_are_the_last_part_of_a_key_and_differ():
    assert key_names(["cat", "cat/wild", "cat_wild", "c\\d", "", ".."]) == [
        "cat",
        "cat_wild_1",
        "cat_wild_2",
        "c_d",
        "__4",
        "__5",
    ]


@pytest.mark.parametrize(("earlier", "present"), [*RENAMED.items(), *((key, key) for key in KEPT)])
def test_keys_of_earlier_versions_have_their_present_names(earlier, present):
    assert current_key(earlier) == present
    assert current_key(present) == present


def test_records_of_earlier_versions_are_read_by_their_present_keys(tmp_path):
    line = {"epoch": 0, "step": 5, "scalars": dict.fromkeys(RENAMED, 0.5), "findings": []}
    (tmp_path / "events.jsonl").write_text(json.dumps(line) + "\n")
    (event,) = read_events(tmp_path)
    assert event["scalars"] == dict.fromkeys(RENAMED.values(), 0.5)
