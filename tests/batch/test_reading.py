import pytest
import torch

from lrptrain.batch import Sample, batch_length, batched, collate, read_batch, take, token_annotations

IMAGE = torch.zeros(2, 3, 4, 4)


def test_known_entries_are_kept_and_renamed():
    known = read_batch({"image": IMAGE, "labels": [1, 0], "sample_id": ["a", "b"], "other": 3})
    assert set(known) == {"image", "label", "sample_id"}
    assert batch_length(known) == 2
    sample = take(known, 1, 9)
    assert (sample.sample_id, sample.label, sample.group) == ("b", 0, None)
    unnamed = take(read_batch({"image": IMAGE}), 1, 9)
    assert (unnamed.sample_id, unnamed.label) == (9, -1)


def test_what_is_taken_is_a_copy():
    image = torch.zeros(2, 3, 4, 4)
    sample = take(read_batch({"image": image}), 0, 0)
    image += 1
    assert sample.tensors["image"].sum() == 0


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"image": IMAGE, "label": torch.zeros(3, dtype=torch.long)}, "differ in length"),
        ({"image": IMAGE, "label": torch.zeros(2, 3, dtype=torch.long)}, "has several columns: of one-hot labels"),
        ({"image": IMAGE, "label": torch.tensor(1)}, "one number per sample"),
        ("text", "mapping or a tuple"),
        ({"x": IMAGE}, "no input in a batch with \\['x'\\]"),
    ],
)
def test_other_batches_say_what_to_change(batch, message):
    with pytest.raises(ValueError, match=message):
        read_batch(batch)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.int64, torch.float32])
def test_missing_annotations_are_ignored_whatever_the_dtype(dtype):
    with_mask = take(read_batch({"image": IMAGE, "mask": torch.ones(2, 4, 4, dtype=dtype)}), 0, 0)
    without = take(read_batch({"image": IMAGE}), 0, 1)
    stacked = collate([with_mask, without])
    assert stacked["mask"].tolist() == [[[1] * 4] * 4, [[255] * 4] * 4]


def test_boxes_and_texts_are_padded():
    boxes = [take(read_batch({"image": IMAGE, "boxes": torch.ones(2, n, 4, dtype=torch.long)}), 0, 0) for n in (1, 2)]
    assert collate(boxes)["boxes"].isnan().any(-1).tolist() == [[False, True], [False, False]]
    texts = [
        take(read_batch({"input_ids": torch.ones(1, n).long(), "attention_mask": torch.ones(1, n).long()}), 0, 0)
        for n in (2, 3)
    ]
    assert collate(texts)["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    bare = [take(read_batch({"input_ids": torch.ones(1, n).long()}), 0, 0) for n in (2, 3)]
    with pytest.raises(ValueError, match="need an attention_mask"):
        collate(bare)


def test_batches_of_samples_have_their_labels_and_need_no_padding_of_others():
    samples = [
        Sample(i, i % 3 - 1, {"input_ids": torch.ones(2 + i), "attention_mask": torch.ones(2 + i)}) for i in range(5)
    ]
    first, second, third = batched(samples, 2)
    assert [batch["label"].tolist() for batch in (first, second, third)] == [[-1, 0], [1, -1], [0]]
    assert [batch["input_ids"].shape for batch in (first, second, third)] == [(2, 3), (2, 5), (1, 6)]
    assert first["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]


def test_a_mask_with_a_channel_axis_is_the_mask():
    mask = torch.zeros(2, 1, 8, 8)
    mask[:, :, :4] = 1
    with_axis, regions = token_annotations({"image": torch.rand(2, 3, 8, 8), "mask": mask}, (2, 2))
    without, _ = token_annotations({"image": torch.rand(2, 3, 8, 8), "mask": mask[:, 0]}, (2, 2))
    assert with_axis is not None
    assert without is not None
    assert torch.equal(with_axis.evidence, without.evidence)
    assert regions == {}
    _, regions = token_annotations({"image": torch.rand(2, 3, 8, 8), "mask": mask}, (2, 2), ("object",))
    assert list(regions) == ["object"]


def test_each_image_may_have_its_own_number_of_boxes():
    """As collators of detection leave them: a list of tensors, of lists, or None."""
    images = {"image": torch.rand(3, 3, 8, 8), "label": torch.tensor([0, 1, 0])}
    one, two = [[1, 2, 3, 4]], [[0, 0, 2, 2], [4, 4, 8, 8]]
    for several in ([torch.tensor(one), torch.tensor(two), torch.zeros(0, 4)], [one, two, []], [one, two, None]):
        boxes = read_batch({**images, "boxes": several})["boxes"]
        assert boxes[0, 0].tolist() == one[0]
        assert boxes[1].tolist() == two
        assert boxes[0, 1].isnan().all()
        assert boxes[2].isnan().all()


def test_a_batch_whose_samples_have_none_of_an_entry_lacks_it():
    images = {"image": torch.rand(2, 3, 4, 4), "label": torch.tensor([0, 1])}
    assert read_batch({**images, "boxes": [None, None], "mask": None}).keys() == images.keys()
    assert read_batch({**images, "boxes": [[], []]})["boxes"].shape == (2, 0, 4)
    texts = {"input_ids": torch.ones(2, 5, dtype=torch.long), "label": torch.tensor([0, 1])}
    assert read_batch({**texts, "rationale": [None, None]}).keys() == texts.keys()


def test_masks_as_array_libraries_hold_them():
    """[batch, height, width, 1], and the unsigned integers of 16-bit PNG files."""
    mask = torch.randint(0, 2, (2, 4, 6))
    batch = {"image": torch.rand(2, 3, 4, 6), "mask": mask[..., None].to(torch.uint16)}
    assert torch.equal(read_batch(batch)["mask"], mask)
    # A named region of an image that is one pixel wide is not meant.
    narrow = {"image": torch.rand(2, 3, 4, 1), "mask": mask[:, :3, :4, None]}
    assert read_batch(narrow)["mask"].shape == (2, 3, 4, 1)
