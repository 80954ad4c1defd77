from lrptrain.loggers.metrics import key_names


def test_names_are_the_last_part_of_a_key_and_differ():
    assert key_names(["cat", "cat/wild", "cat_wild", "c\\d", "", ".."]) == [
        "cat",
        "cat_wild_1",
        "cat_wild_2",
        "c_d",
        "__4",
        "__5",
    ]
