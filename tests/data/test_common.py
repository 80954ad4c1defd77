import numpy as np
import pytest

from lrptrain.data.common import class_names, read_csv, stratified_split


def test_read_table_reads_quoted_fields_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('\ufefftext,label\n"a, b\nc",x\n', encoding="utf-8")
    assert read_csv(path, ("text", "label", None)) == [{"text": "a, b\nc", "label": "x"}]


def test_read_table_names_what_is_missing(tmp_path):
    path = tmp_path / "table.csv"
    with pytest.raises(FileNotFoundError, match=r"table\.csv"):
        read_csv(path, ())
    path.write_text("text,label\n")
    with pytest.raises(ValueError, match="no rows"):
        read_csv(path, ("text",))
    path.write_text("text,label\na,b\nonly\n")
    with pytest.raises(ValueError, match=r"no column \['name'\]; it has \['text', 'label'\]"):
        read_csv(path, ("text", "name"))
    with pytest.raises(ValueError, match=r"data rows \[2\]"):
        read_csv(path, ("text",))


def test_class_names_sorts_numbers_as_numbers_and_words_as_words():
    assert class_names(["10", "9", "2", "9"]) == ["2", "9", "10"]
    assert class_names(["10", "b", "a"]) == ["10", "a", "b"]


def test_class_names_keeps_the_wanted_order_and_refuses_absent_or_lone_classes():
    assert class_names(["a", "b", "c"], ["c", "a"]) == ["c", "a"]
    with pytest.raises(ValueError, match=r"no row has the label \['d'\]"):
        class_names(["a", "b"], ["a", "d"])
    with pytest.raises(ValueError, match="at least two classes"):
        class_names(["a", "a"])


def test_stratified_split_is_disjoint_complete_seeded_and_keeps_the_shares():
    labels = np.repeat([0, 1, 2], [80, 40, 8])
    train, val = stratified_split(labels, 0.25, seed=3)
    assert np.array_equal(np.sort(np.concatenate([train, val])), np.arange(128))
    assert np.bincount(labels[val]).tolist() == [20, 10, 2]
    again, other = stratified_split(labels, 0.25, seed=3)[1], stratified_split(labels, 0.25, seed=4)[1]
    assert np.array_equal(val, again)
    assert not np.array_equal(val, other)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_stratified_split_refuses_an_empty_part(share):
    with pytest.raises(ValueError, match="val_share"):
        stratified_split([0, 1, 0, 1], share, seed=0)


@pytest.mark.parametrize("content", [b"text,label\n\xff\xfe,a\n", b"text,label\n" + b"x" * 200_000 + b",a\n"])
def test_what_is_no_csv_is_one_line(content, tmp_path):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.csv is no CSV file in UTF-8: "):
        read_csv(tmp_path / "a.csv", [])


def test_a_csv_file_keeps_line_breaks_within_quotes(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbftext,label\r\n"a\r\nb",c\r\n')
    assert read_csv(tmp_path / "a.csv", ["text"]) == [{"text": "a\r\nb", "label": "c"}]
