import json
from pathlib import Path

import pytest

from experiments.eraser import read_split

MOVIES = Path(__file__).parents[3] / "shared" / "data" / "eraser_movies"


def test_evidence_is_characters_of_the_joined_tokens(tmp_path):
    def record(name, label, *spans):
        evidence = [{"docid": name, "start_token": start, "end_token": end} for start, end in spans]
        return json.dumps({"annotation_id": name, "classification": label, "evidences": [[part] for part in evidence]})

    (tmp_path / "docs").mkdir()
    for name in "npq":
        (tmp_path / "docs" / name).write_text("it was n't a good film .\nit was n't .", encoding="utf-8")
    records = [record("n", "NEG", (2, 3), (3, 5)), record("p", "POS", (8, 10), (4, 4)), record("q", "POS")]
    (tmp_path / "val.jsonl").write_text("\n".join(records), encoding="utf-8")
    found = read_split(tmp_path, "val")
    assert [each.label for each in found] == [0, 1, 1]
    assert [[each.text[start:end] for start, end in each.spans or ()] for each in found] == [
        ["n't", "a good"], ["was n't"], [],
    ]  # fmt: skip
    assert found[2].spans is None


@pytest.mark.skipif(not MOVIES.is_dir(), reason="needs the reviews in ../shared/data/eraser_movies")
def test_real_movie_reviews():
    train, test = read_split(MOVIES, "train"), read_split(MOVIES, "test")
    assert (len(train), len(test)) == (1600, 199)
    assert sum(found.spans is None for found in train) == 1
    marked = "".join(f"[{test[0].text[start:end]}]" for start, end in test[0].spans or ())
    assert marked.startswith("[i even giggled][something about these films causes")
    words = sum(found.text[start:end].count(" ") + 1 for found in test for start, end in found.spans or ())
    assert 0.25 < words / sum(found.text.count(" ") + 1 for found in test) < 0.4
