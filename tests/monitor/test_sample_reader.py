"""From a user's batches to the sample of a monitor."""

from typing import Any

import pytest
import torch
from grouped_options import grouped
from torch import nn

from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.model_input import InputListener
from lrptrain.monitor.sample_reader import SampleReader
from lrptrain.trainers.context import Moment, Output, TrainingContext


class Images(nn.Module):
    def forward(self, image, flipped=False):
        return image.mean((2, 3))


class Texts(nn.Module):
    def forward(self, input_ids, attention_mask=None):
        return input_ids.float()


def context(model: nn.Module) -> TrainingContext:
    return TrainingContext(
        model=model, module=model, device=torch.device("cpu"), moment=Moment(0, 0), output=Output("nowhere")
    )


def reader(**options: Any) -> tuple[SampleReader, list[str]]:
    said: list[str] = []
    return SampleReader(MonitorConfig.of("Monitor", grouped({"max_samples": 8, **options})), said.append), said


def images(**columns: Any) -> dict[str, Any]:
    return {"image": torch.rand(4, 3, 4, 4), "label": torch.arange(4) % 2, **columns}


def drawn(reading: SampleReader, model: nn.Module, *batches: Any) -> tuple[list[Any], list[tuple[str, Exception]]]:
    """The sample, and the failures that were noted."""
    noted: list[tuple[str, Exception]] = []
    for batch in batches:
        reading.add(context(model), batch, float("inf"))
    return reading.finish(lambda activity, error: noted.append((activity, error))), noted


def test_two_names_of_an_image_mean_the_same():
    reading, _ = reader()
    second = {("pixel_values" if name == "image" else name): x for name, x in images().items()}
    samples, _ = drawn(reading, Images(), images(), second)
    assert len(samples) == 8
    assert {tuple(each.tensors) for each in samples} == {("image",)}


def test_entries_that_the_model_takes_go_along_and_what_is_missing_is_named():
    reading, _ = reader()
    assert "argument:age" not in reading.read(context(Images()), images(age=torch.rand(4, 1)))

    class Needy(nn.Module):
        def forward(self, image, age):
            return image

    assert "argument:age" in reading.read(context(Needy()), images(age=torch.rand(4, 1)))
    with pytest.raises(ValueError, match=r"forward of Needy needs 'age'.*Let validation_step call the model"):
        reading.read(context(Needy()), images())


def test_a_flag_that_differs_between_batches_is_no_row_of_a_sample():
    reading, _ = reader()
    model, batch = Images(), images()
    for flipped in (True, True, False):
        listener = InputListener(model, batch)
        model(batch["image"], flipped=flipped)
        listener.stop()
        if flipped:
            reading.read(context(model), batch, listener)
            continue
        with pytest.raises(ValueError, match="another 'flipped' in each batch"):
            reading.read(context(model), batch, listener)


@pytest.mark.parametrize("is_padded", [False, True])
def test_texts_without_a_mask_are_full_unless_one_is_filled_up(is_padded):
    ids = torch.randint(5, 50, (4, 6))
    if is_padded:
        ids[2, 4:] = 0
    samples, _ = drawn(reader()[0], Texts(), {"input_ids": ids, "label": torch.arange(4) % 2})
    assert all(("attention_mask" in each.tensors) != is_padded for each in samples)


def test_what_no_sample_can_have_is_named_before_the_first_step():
    reading, _ = reader()
    reading.limit_classes(2)
    assert len(reading.check(context(Images()), images())["image"]) == 4
    with pytest.raises(ValueError, match="Monitor cannot use the sample 7: the label 5"):
        reading.check(context(Images()), images(label=torch.tensor([0, 5, 1, 0]), sample_id=torch.tensor([6, 7, 8, 9])))
    with pytest.raises(ValueError, match="sample 1 of its batch: 'image' holds NaN"):
        reading.check(context(Images()), images(image=torch.rand(4, 3, 4, 4).index_fill(0, torch.tensor(1), torch.nan)))


def test_ids_that_repeat_are_told_and_the_samples_stay_apart():
    reading, said = reader()
    samples, _ = drawn(reading, Images(), images(sample_id=torch.tensor([0, 1, 1, 2])))
    assert len({each.sample_id for each in samples}) == 4
    assert len(said) == 1
    assert "4 samples have 3 different ids" in said[0]


def test_masks_that_are_misread_are_a_failure_and_not_used():
    mask = torch.full((4, 4, 4), 255, dtype=torch.uint8)
    mask[:, 1:3, 1:3] = 0
    reading, _ = reader()
    samples, noted = drawn(reading, Images(), images(mask=mask))
    ((activity, error),) = noted
    assert activity == "reading the masks"
    assert "The annotations are not used" in str(error)
    assert reading.misread
    assert not any("mask" in each.tensors for each in samples)


def test_a_sample_that_cannot_be_annotated_is_left_out():
    batch = images()

    def annotate(image, label):
        return torch.zeros(1, 2) if torch.equal(image, batch["image"][2]) else torch.ones(4, 4)

    reading, _ = reader(annotate=annotate)
    samples, _ = drawn(reading, Images(), batch)
    assert sorted(each.sample_id for each in samples) == [0, 1, 3]
    assert "it must return a mask" in reading.sample.left_out[2]
    assert all(each.tensors["mask"].sum() == 16 for each in samples)


def test_indices_of_a_shuffled_set_are_none():
    reading, _ = reader()
    reading.in_order = False
    reading.start()
    assert not reading.counts_its_pass
    samples, _ = drawn(reading, Images(), images())
    assert {each.sample_id for each in samples} == {f"pass-{place}" for place in range(4)}
    assert reading.counts_its_pass
