import csv
from pathlib import Path

import pytest
import torch
from word_pieces import saved_words

from lrptrain.data import TextSpans
from lrptrain.data.text_csv import find_span, read_span

TWEETS = Path(__file__).parents[3] / "shared" / "data" / "tweet_sentiment_spans" / "train.csv"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "what", "a", "lovely", "awful", "day", "it", "was"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Folder of a tokenizer of whole words."""
    return saved_words(WORDS, tmp_path_factory.mktemp("tokenizer"))


def written(path, rows, header=("text", "label", "part", "start", "end")):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


@pytest.fixture
def path(tmp_path):
    rows = [("it was a lovely day", "good", "lovely day", 9, 19), ("what a awful day", "bad", "awful", 7, 12)]
    return written(tmp_path / "texts.csv", rows * 10)


def ready(path, tokenizer, **arguments):
    data = TextSpans(path, tokenizer, **arguments)
    data.setup()
    return data


def by_length(batch):
    """Rows of a batch of two, the longer text first."""
    order = batch["attention_mask"].sum(1).argsort(descending=True)
    return {key: value[order] for key, value in batch.items()}


@pytest.mark.parametrize("source", [{"rationale_column": "part"}, {"span_columns": ("start", "end")}])
def test_a_batch_has_tokens_and_their_rationale(path, tokenizer, source):
    data = ready(path, tokenizer, val_share=0.1, **source)
    batch = by_length(next(iter(data.val_dataloader())))
    assert data.class_names == ["bad", "good"]
    assert [[WORDS[token] for token in row] for row in batch["input_ids"]] == [
        ["[CLS]", "it", "was", "a", "lovely", "day", "[SEP]"],
        ["[CLS]", "what", "a", "awful", "day", "[SEP]", "[PAD]"],
    ]
    assert batch["attention_mask"].tolist() == [[1] * 7, [1] * 6 + [0]]
    assert batch["rationale"].tolist() == [[255, 0, 0, 0, 1, 1, 255], [255, 0, 0, 1, 0, 255, 255]]
    assert batch["rationale"].dtype == torch.uint8
    assert batch["label"].tolist() == [1, 0]
    assert sorted(batch["sample_id"].tolist()) == [0, 1]


def test_no_column_an_empty_field_and_truncated_evidence_mean_no_annotation(tmp_path, path, tokenizer):
    assert (next(iter(ready(path, tokenizer).val_dataloader()))["rationale"] == 255).all()
    cut = by_length(next(iter(ready(path, tokenizer, rationale_column="part", max_length=5).val_dataloader())))
    assert cut["input_ids"].shape[1] == 5
    rows = {tuple(row) for row in cut["rationale"].tolist()}
    assert rows == {(255,) * 5, (255, 0, 0, 1, 255)}
    blank = written(tmp_path / "blank.csv", [("a day", "x", " ", "", ""), ("it was", "y", "was", 3, 6)] * 5)
    for source in ({"rationale_column": "part"}, {"span_columns": ("start", "end")}):
        batch = next(iter(ready(blank, tokenizer, **source).val_dataloader()))
        assert batch["rationale"][batch["label"] == 0].tolist() == [[255] * 4]
        assert batch["rationale"][batch["label"] == 1].tolist() == [[255, 0, 1, 255]]


def test_the_split_is_stratified_seeded_and_disjoint(tmp_path, tokenizer):
    rows = [(f"day {number}", "good" if number < 60 else "bad", "", "", "") for number in range(80)]
    path = written(tmp_path / "many.csv", rows)
    first, again, other = (ready(path, tokenizer, seed=seed) for seed in (0, 0, 1))
    train, val = ({example.text for example in first.splits[name]} for name in ("train", "val"))
    assert not train & val
    assert len(train | val) == 80
    assert [example.label for example in first.splits["val"]].count(1) == 12
    assert first.splits == again.splits
    assert first.splits["val"] != other.splits["val"]
    assert [len(part) for part in ready(path, tokenizer, limit=20).splits.values()] == [16, 4]


def test_labels_choose_and_order_the_classes(tmp_path, tokenizer):
    path = written(tmp_path / "three.csv", [("a day", label, "", "", "") for label in ("x", "y", "z")] * 4)
    data = ready(path, tokenizer, labels=["z", "x"], val_share=0.5)
    assert data.num_classes == 2
    assert [example.label for example in data.splits["train"]].count(0) == 2
    with pytest.raises(ValueError, match=r"no row has the label \['w'\]"):
        ready(path, tokenizer, labels=["w", "x"])


def test_rows_without_text_are_skipped_and_counted(tmp_path, tokenizer):
    path = written(
        tmp_path / "gaps.csv", [("a day", "x", "", "", ""), ("it", "y", "", "", ""), (" ", "x", "", "", "")] * 5
    )
    with pytest.warns(UserWarning, match="skipped 5 rows without text"):
        data = ready(path, tokenizer)
    assert sum(len(part) for part in data.splits.values()) == 10


def test_what_is_missing_is_named(path, tokenizer, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.csv"):
        ready(str(tmp_path / "absent.csv"), tokenizer)
    with pytest.raises(ValueError, match=r"no column \['sentiment'\]"):
        ready(path, tokenizer, label_column="sentiment")
    with pytest.raises(ValueError, match=r"no column \['from'\]"):
        ready(path, tokenizer, span_columns=("from", "end"))
    with pytest.raises(ValueError, match="not both"):
        TextSpans(path, tokenizer, rationale_column="part", span_columns=("start", "end"))


def test_spans():
    assert find_span("so so sad", " so ") == (0, 2)
    assert find_span("so sad", " ") is None
    with pytest.raises(ValueError, match="'glad' does not occur in the text 'so sad'"):
        find_span("so sad", "glad")
    assert read_span("so sad", "3", "6") == (3, 6)
    assert read_span("so sad", "", "") is None
    for wrong in (("3", "7"), ("3", "3"), ("-1", "2"), ("3", ""), ("a", "b")):
        with pytest.raises(ValueError, match="so sad"):
            read_span("so sad", *wrong)


@pytest.mark.skipif(not TWEETS.is_file(), reason="needs the tweets in ../shared/data/tweet_sentiment_spans")
def test_real_tweets(tokenizer):
    data = ready(
        str(TWEETS),
        tokenizer,
        label_column="sentiment",
        rationale_column="selected_text",
        labels=["negative", "positive"],
    )
    assert sum(len(part) for part in data.splits.values()) == 7781 + 8582
    batch = next(iter(data.train_dataloader()))
    judged = batch["rationale"] != 255
    assert (batch["rationale"] == 1).any(1).all()
    assert 0.1 < (batch["rationale"] == 1).sum() / judged.sum() < 0.6
