"""What is kept of the samples, and how they are drawn."""

import re

import numpy as np
import pytest
import torch
from examples import explained

from lrptrain.batch import Sample
from lrptrain.monitor.display import DisplayOptions, _title, highlights, inputs, pictures
from lrptrain.render import to_picture

LOOK = DisplayOptions(["cat", "dog"], lambda ids: [f"w{i}" for i in ids])


def image(**changes):
    return {"image": torch.rand(3, 8, 6, generator=torch.Generator().manual_seed(0)), **changes}


def made(tensors, grid=(4, 3), look=LOOK):
    return inputs([(Sample("s", 0, tensors), grid)], look)["s"]()


def test_an_image_is_as_it_was_before_it_was_normalised():
    pixels = torch.arange(3 * 8 * 6).reshape(3, 8, 6) / 255
    stored = made(
        {"image": (pixels - 0.5) / 0.25}, look=DisplayOptions(LOOK.class_names, LOOK.name_tokens, [0.5] * 3, [0.25] * 3)
    )
    assert (stored.sample_id, stored.grid, stored.annotation) == ("s", (4, 3), None)
    np.testing.assert_array_equal(stored.image, np.arange(3 * 8 * 6).reshape(3, 8, 6).transpose(1, 2, 0))


def test_annotations_of_images_are_masks_of_their_size():
    mask = torch.zeros(8, 6, dtype=torch.uint8)
    mask[2:5, 1:3], mask[7] = 1, 255
    np.testing.assert_array_equal(made(image(mask=mask)).annotation, mask.numpy())
    regions = torch.stack([mask, 1 - mask.clamp(max=1)])
    np.testing.assert_array_equal(made(image(mask=regions)).annotation, mask.numpy())  # the first is the evidence
    boxes = torch.tensor([[1.0, 2.0, 3.0, 5.0], [float("nan")] * 4])
    np.testing.assert_array_equal(made(image(boxes=boxes)).annotation, (mask == 1).numpy())
    assert made(image(mask=mask[:4])).annotation is None  # of another size


def test_texts_have_a_name_for_each_token_that_is_no_padding():
    ids, mask = torch.tensor([5, 6, 7, 0]), torch.tensor([1, 1, 1, 0])
    stored = made({"input_ids": ids, "attention_mask": mask, "rationale": torch.tensor([1, 0, 255, 255])}, grid=None)
    assert stored.tokens == ["w5", "w6", "w7", None]
    assert (stored.grid, stored.image) == (None, None)
    np.testing.assert_array_equal(stored.annotation, [1, 0, 255, 255])
    assert stored.scored == [False, True, False, False]  # the ends are special, the rest is ignored
    unmasked = made({"input_ids": ids}, grid=None)
    assert (unmasked.tokens, unmasked.annotation) == (["w5", "w6", "w7", "w0"], None)
    assert unmasked.scored == [False, True, True, False]


def test_a_text_is_coloured_by_its_scored_tokens():
    tensors = {"input_ids": torch.tensor([5, 6, 7, 8]), "attention_mask": torch.ones(4, dtype=torch.long)}
    relevance = {"label": torch.tensor([0.99995, 2e-5, 1e-5, 2e-5])}
    one = explained(Sample("s", 1, tensors), maps=relevance, grid=None, chance=float("nan"))
    (text,) = highlights([one], LOOK)
    assert re.findall(r",([\d.]+)\);border-radius:2px\" title=\"[^\"]*\">(\w+)<", text.html) == [
        ("0.75", "w6"),
        ("0.38", "w7"),
    ]
    assert "w5, w8, with more than 99.9 % of the relevance" in text.html
    assert text.text.startswith("w5 **w6** **w7** w8")


def test_a_separator_between_two_texts_is_grey_and_an_unknown_word_is_not():
    names = ["[CLS]", "good", "[SEP]", "[UNK]", "[SEP]"]
    look = DisplayOptions(LOOK.class_names, lambda ids: [names[i] for i in ids])
    tensors = {"input_ids": torch.arange(5), "attention_mask": torch.ones(5, dtype=torch.long)}
    scored = [False, True, False, True, False]
    assert made(tensors, grid=None, look=look).scored == scored
    relevance = {"label": torch.tensor([9.0, 0.5, 90.0, -1.0, 9.0])}
    one = explained(Sample("s", 1, tensors), maps=relevance, grid=None, chance=float("nan"))
    (text,) = highlights([one], look)
    assert re.findall(r",([\d.]+)\);border-radius:2px\" title=\"[^\"]*\">([^<]+)<", text.html) == [
        ("0.38", "good"),
        ("0.75", "[UNK]"),
    ]


def test_nothing_is_made_before_it_is_asked_for():
    broken = Sample("broken", 0, {"image": torch.rand(2, 8, 6)})
    stored = inputs([(broken, (4, 3)), (Sample(7, 0, image()), (4, 3))], LOOK)
    assert list(stored) == ["broken", 7]
    pixels = stored[7]().image
    assert pixels is not None
    assert pixels.shape == (8, 6, 3)
    with pytest.raises(
        ValueError,
        match=r"an image has the shape .*, not \(2, 8, 6\): show=lrptrain.Show\(max_pictures=0\) continues without",
    ):
        stored["broken"]()


def test_a_picture_has_its_mask_at_its_own_size():
    mask = torch.zeros(8, 6, dtype=torch.uint8)
    mask[:4] = 1
    sample = Sample("s", 1, image(mask=mask))
    one = explained(sample, maps={"label": torch.ones(12)}, grid=(4, 3), values={"label/energy_pointing_game": 0.25})
    assert _title(one, "label", LOOK.class_names) == "target 'dog', p = 0.25"
    assert _title(one, "predicted", LOOK.class_names) == "target 'cat', p = 0.75"
    (picture,) = pictures([one], LOOK)
    assert picture.mask is not None
    assert picture.mask.shape == picture.image.shape[:2]
    # The image (160 x 120) as it is and its map, with the mask over both: [160, 120 + gap + 120], below a title.
    assert picture.image.shape[1] == 2 * 120 + 8
    covered = np.argwhere(picture.mask)
    assert len(covered) == 2 * 80 * 120
    top = covered[0][0]
    np.testing.assert_array_equal(picture.image[top : top + 160, :120], to_picture(sample.tensors["image"]))
    assert top > 0  # the title
    assert picture.image.shape[0] > top + 160  # the scale
    assert picture.caption == "#s, dog predicted as cat (75%), 25% on the annotation (50% of the area)"


def test_what_is_neither_an_image_nor_a_text_is_left_out():
    series = Sample(0, 0, {"image": torch.rand(10, 3)})
    assert inputs([(series, None), (series, (1, 1))], LOOK).keys() == {0}
    assert inputs([(series, None)], LOOK) == {}


def test_rows_are_shown_by_their_numbers_without_padding():
    tensors = {"image": torch.rand(4, 3), "rationale": torch.tensor([0, 1, 0, 255])}
    bag = Sample(0, 0, tensors | {"argument:pixel_attention_mask": torch.tensor([1, 1, 1, 0])})
    shown = inputs([(bag, None)], LOOK, are_rows=True)[0]()
    assert (shown.tokens, shown.scored) == (["0", "1", "2", None], [True, True, True, False])
    assert shown.annotation is not None
    assert shown.annotation.tolist() == [0, 1, 0, 255]


def test_chosen_channels_are_drawn():
    """Of 13 bands three are red, green and blue, and the picture is theirs."""
    bands = torch.rand(13, 8, 8)
    look = DisplayOptions(LOOK.class_names, LOOK.name_tokens, channels=(3, 2, 1))
    picked, plain = (
        inputs([(Sample(0, 0, {"image": image}), (2, 2))], options)[0]().image
        for image, options in ((bands, look), (bands[[3, 2, 1]], LOOK))
    )
    assert picked is not None
    assert plain is not None
    assert np.array_equal(picked, plain)
    with pytest.raises(ValueError, match=r"not \(13, 8, 8\): .*Show\(channels=\(3, 2, 1\)\) draws three"):
        inputs([(Sample(0, 0, {"image": bands}), (2, 2))], LOOK)[0]()
    # Of an image that has not so many, all are drawn.
    assert torch.equal(look.drawn(bands[:3]), bands[:3])
