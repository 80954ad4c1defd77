import json
from pathlib import Path

import pytest
from word_pieces import saved_words

from lrptrain.data import EraserDocuments
from lrptrain.data.common import SPLITS

MOVIES = Path(__file__).parents[3] / "shared" / "data" / "eraser_movies"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "it", "was", "n't", "a", "good", "film", "."]
IT_WAS_BAD = "it was n't a good film .\nit was n't ."  # lines are sentences


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Folder of a tokenizer that splits `n't` into three unknown ones and knows the other words."""
    return saved_words(WORDS, tmp_path_factory.mktemp("tokenizer"))


def record(name, label, *spans, **changes):
    evidence = [{"docid": name, "start_token": start, "end_token": end} | changes for start, end in spans]
    return {"annotation_id": name, "classification": label, "evidences": [[part] for part in evidence]}


def written(folder, records, texts=IT_WAS_BAD):
    """An ERASER folder with the same records in every split."""
    (folder / "docs").mkdir()
    for found in records:
        (folder / "docs" / found["annotation_id"]).write_text(texts, encoding="utf-8")
    for split in SPLITS:
        lines = "\n".join(json.dumps(found) for found in records)
        (folder / f"{split}.jsonl").write_text(lines + "\n", encoding="utf-8")
    return str(folder)


def ready(path, tokenizer, **arguments):
    data = EraserDocuments(path, tokenizer, **arguments)
    data.setup()
    return data


RECORDS = [record("n", "NEG", (2, 3), (3, 5)), record("p", "POS", (8, 10), (4, 4)), record("q", "POS")]


def test_a_batch_has_tokens_and_the_union_of_their_evidence(tmp_path, tokenizer):
    data = ready(written(tmp_path, RECORDS), tokenizer)
    batch = next(iter(data.test_dataloader()))
    assert data.class_names == ["NEG", "POS"]
    assert data.num_classes == 2
    #                      it was n ' t a good film . it was n ' t .
    assert batch["rationale"].tolist() == [
        [255, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 255],
        [255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 255],
        [255] * 17,
    ]
    assert batch["attention_mask"].all()
    assert batch["label"].tolist() == [0, 1, 1]
    assert batch["sample_id"].tolist() == [0, 1, 2]


def test_the_splits_are_those_of_the_files_and_only_training_is_shuffled(tmp_path, tokenizer):
    path = written(tmp_path, RECORDS)
    (tmp_path / "test.jsonl").write_text(json.dumps(RECORDS[1]) + "\n", encoding="utf-8")
    data = ready(path, tokenizer, batch_size=2)
    assert {split: len(found) for split, found in data.splits.items()} == {"train": 3, "val": 3, "test": 1}
    assert [batch["label"].tolist() for batch in data.val_dataloader()] == [[0, 1], [1]]
    orders = {tuple(int(i) for batch in data.train_dataloader() for i in batch["sample_id"]) for _ in range(30)}
    assert len(orders) > 1


def test_evidence_behind_the_cut_is_no_annotation(tmp_path, tokenizer):
    batch = next(iter(ready(written(tmp_path, RECORDS), tokenizer, max_length=8).val_dataloader()))
    assert batch["rationale"].tolist() == [[255, 0, 0, 1, 1, 1, 1, 255], [255] * 8, [255] * 8]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (record("n", "NEG", (9, 12)), r"n: evidence is 0 <= start_token <= end_token <= 11, got \(9, 12\)"),
        (record("n", "NEG", (3, 2)), r"got \(3, 2\)"),
        (record("n", "NEG", (1, 2), docid="p"), "n: evidence in the document 'p'"),
        ({"annotation_id": "n", "evidences": []}, r"train.jsonl, line 1 lacks \['classification'\]"),
    ],
)
def test_a_wrong_record_is_named(tmp_path, tokenizer, wrong, message):
    with pytest.raises(ValueError, match=message):
        ready(written(tmp_path, [wrong, *RECORDS[1:]]), tokenizer)


def test_what_is_missing_or_no_json_is_named(tmp_path, tokenizer):
    path = written(tmp_path, RECORDS)
    (tmp_path / "val.jsonl").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"val\.jsonl, line 1 is no JSON"):
        ready(path, tokenizer)
    (tmp_path / "val.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match=r"val\.jsonl has no records"):
        ready(path, tokenizer)
    (tmp_path / "val.jsonl").write_text(json.dumps(record("p", "NEUTRAL")), encoding="utf-8")
    with pytest.raises(ValueError, match="p: the class 'NEUTRAL' does not occur in the training split"):
        ready(path, tokenizer)
    (tmp_path / "docs" / "q").unlink()
    with pytest.raises(FileNotFoundError, match=r"no document at .*q"):
        ready(path, tokenizer)
    (tmp_path / "val.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match=r"no annotations at .*val\.jsonl"):
        ready(path, tokenizer)


@pytest.mark.skipif(not MOVIES.is_dir(), reason="needs the reviews in ../shared/data/eraser_movies")
def test_real_movie_reviews(tokenizer):
    data = ready(str(MOVIES), tokenizer)
    assert {split: len(found) for split, found in data.splits.items()} == {"train": 1600, "val": 200, "test": 199}
    assert sum(found.spans is None for found in data.splits["train"]) == 1
    marked = "".join(f"[{data.splits['test'][0].text[start:end]}]" for start, end in data.splits["test"][0].spans)
    assert marked.startswith("[i even giggled][something about these films causes")
    words = sum(found.text[start:end].count(" ") + 1 for found in data.splits["test"] for start, end in found.spans)
    assert 0.25 < words / sum(found.text.count(" ") + 1 for found in data.splits["test"]) < 0.4


@pytest.mark.parametrize("name", ["../secret", "docs/../../secret", "..", "", "a\\b", 3, None])
def test_a_record_names_no_file_of_another_folder(name, tmp_path, tokenizer):
    folder = tmp_path / "task"
    folder.mkdir()
    (tmp_path / "secret").write_text("a secret", encoding="utf-8")
    path = written(folder, [record("a", "bad"), record("b", "good")])
    lines = [json.dumps({**record("a", "bad"), "annotation_id": name}), json.dumps(record("b", "good"))]
    (folder / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match="is no name of a document"):
        ready(path, tokenizer)


@pytest.mark.parametrize("line", ["[" * 100_000, "3", "[]", "null", '"annotation_id classification evidences"'])
def test_a_line_of_another_form_is_named(line, tmp_path, tokenizer):
    path = written(tmp_path, [record("a", "bad"), record("b", "good")])
    (tmp_path / "train.jsonl").write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1 is no JSON"):
        ready(path, tokenizer)
