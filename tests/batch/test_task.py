import pytest
import torch

import lrptrain
from lrptrain.batch import read_batch
from lrptrain.batch.logits import are_steps
from lrptrain.batch.task import CLASSES, Binary, EachLabel, Head, OneLabel, Ordinal, Regression, find_task
from lrptrain.relevance.output.outputs import read_logits

IMAGE = torch.zeros(3, 3, 4, 4)
NAN = float("nan")


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32, torch.float64])
def test_labels_of_two_classes_come_in_any_type(kind, shape):
    label = torch.tensor([1, 0, 1]).to(kind).view(shape)
    labels = read_batch({"image": IMAGE, "label": label})["label"]
    assert labels.tolist() == [1, 0, 1]
    assert not labels.is_floating_point()
    assert labels.dtype != torch.bool


def test_negative_labels_and_nan_are_none():
    assert (CLASSES.classes(torch.tensor([NAN, -1.0, 1.0, -100.0])) < 0).tolist() == [True, True, False, True]
    assert Binary().classes(torch.tensor([NAN, -1.0, 0.5, 0.6])).tolist() == [-1, -1, 0, 1]
    assert Regression(-2.0, 1.0).classes(torch.tensor([NAN, -3.0, -2.0, -1.0])).tolist() == [-1, 0, 0, 1]


@pytest.mark.parametrize("value", [0.3, 2.0, -0.0 + 1e-6])
def test_other_floats_are_refused_with_ways_out_that_work(value):
    batch = {"image": IMAGE, "label": torch.tensor([0.0, 1.0, value])}
    with pytest.raises(ValueError, match=r"holds the float .*task='binary' .*lrptrain.Regression\(mean, std\)"):
        read_batch(batch)
    assert read_batch(batch, task=find_task(lrptrain.Regression(mean=0.5, std=1.0)))["label"][:2].tolist() == [0, 1]
    if value <= 1:
        assert read_batch(batch, task=find_task("binary"))["label"].tolist() == [0, 1, 0]
    else:
        with pytest.raises(ValueError, match=r"holds 2: those of task='binary' lie in 0\.\.1"):
            read_batch(batch, task=find_task("binary"))


def test_a_regression_is_read_in_standard_deviations_from_the_mean():
    task = Regression(mean=40.0, std=5.0)
    with task.reading():
        logits = read_logits(torch.tensor([[40.0], [45.0], [30.0]], dtype=torch.float64), 3)
    deviations = torch.tensor([0.0, 1.0, -2.0], dtype=torch.float64)
    torch.testing.assert_close(logits.softmax(1)[:, 1], deviations.sigmoid())
    assert task.class_names == ["below 40", "above 40"]
    with pytest.raises(ValueError, match="std must be a positive number"):
        Regression(0.0, 0.0)


class Configured(torch.nn.Linear):
    def __init__(self, problem_type):
        super().__init__(2, 1)
        self.config = type("Config", (), {"problem_type": problem_type})()


def test_the_task_is_named_or_that_of_the_model():
    assert find_task(None) is CLASSES
    assert find_task(None, Configured(None)) is CLASSES
    assert find_task("binary", Configured("regression")) == Binary()
    with pytest.raises(ValueError, match=r"config.problem_type is 'regression': pass task=lrptrain.Regression"):
        find_task(None, Configured("regression"))
    with pytest.raises(ValueError, match="unknown task 'binari'; did you mean binary"):
        find_task("binari")  # type: ignore[arg-type]


SEVERAL = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, NAN, -1.0]])


def test_one_of_several_labels_is_there_or_not_or_unknown():
    batch = {"image": IMAGE, "label": SEVERAL}
    read = [read_batch(batch, task=OneLabel(column))["label"].tolist() for column in range(3)]
    assert read == [[1, 0, 1], [0, 0, -1], [1, 0, -1]]
    assert read_batch({**batch, "label": (SEVERAL > 0).int()}, task=OneLabel(2))["label"].tolist() == [1, 0, 0]
    assert OneLabel(1).class_names == ["no label 1", "label 1"]
    assert OneLabel(1, "edema").class_names == ["no edema", "edema"]
    with pytest.raises(ValueError, match="column must be 0 or more"):
        OneLabel(-1)
    with pytest.raises(ValueError, match=r"'label' \[3\] has no column 1"):
        read_batch({"image": IMAGE, "label": torch.ones(3)}, task=OneLabel(1))


def test_one_hot_labels_are_classes_on_request_alone():
    one_hot = torch.eye(4)[[2, 0, 3]]
    for label in (one_hot, one_hot.long(), one_hot.bool()):
        with pytest.raises(ValueError, match="has several columns: of one-hot labels say task='classes'"):
            read_batch({"image": IMAGE, "label": label})
        assert read_batch({"image": IMAGE, "label": label}, task=find_task("classes"))["label"].tolist() == [2, 0, 3]
    one_hot[1] = 0
    assert find_task("classes").classes(one_hot).tolist() == [2, -1, 3]
    for other in (SEVERAL.nan_to_num(0.0).clamp(min=0), one_hot * 0.9):
        with pytest.raises(
            ValueError, match=r"is not one-hot: .*EachLabel\(\) .*lrptrain.OneLabel\(column\) .*label.argmax\(1\)"
        ):
            find_task("classes").classes(other)


@pytest.mark.parametrize("task", [None, "classes"])
def test_labels_of_mixed_images_are_refused_with_a_line_to_paste(task):
    one_hot = torch.eye(4)[[2, 0, 3]]
    mixed = 0.7 * one_hot + 0.3 * one_hot[[1, 2, 0]]
    for label in (mixed, mixed.half(), 0.9 * one_hot + 0.025, mixed.softmax(1)):
        with pytest.raises(ValueError, match=r"add up to 1 .MixUp, CutMix, .*batch_adapter=lambda batch: ") as refused:
            read_batch({"image": IMAGE, "label": label}, task=find_task(task))
    adapter = eval(str(refused.value).partition("batch_adapter=")[2])
    assert read_batch({"image": IMAGE, "label": mixed}, adapter)["label"].tolist() == [2, 0, 3]


def test_labels_of_tokens_and_pixels_are_refused_with_what_explains_them():
    with pytest.raises(ValueError, match=r"of a token's class task=lrptrain.Head\(lambda output"):
        read_batch({"input_ids": torch.ones(2, 5, dtype=torch.long), "labels": torch.zeros(2, 5, dtype=torch.long)})
    with pytest.raises(ValueError, match=r"Of a region, .* task=lrptrain.Head\(lambda output"):
        read_batch({"image": IMAGE, "label": torch.zeros(3, 4, 4, dtype=torch.long)})


def test_a_model_of_several_labels_asks_for_one():
    with pytest.raises(
        ValueError, match=r"'multi_label_classification': pass task=lrptrain.OneLabel\(column\) for one"
    ):
        find_task(None, Configured("multi_label_classification"))
    assert find_task(OneLabel(1), Configured("multi_label_classification")) == OneLabel(1)


def first(output):
    return output[0]


@pytest.mark.parametrize(
    ("task", "written"),
    [
        (None, "classes"),
        ("classes", "classes"),
        ("binary", "binary"),
        (Binary(0.25), "lrptrain.batch.task.Binary(threshold=0.25)"),
        (OneLabel(2, "edema"), "lrptrain.OneLabel(column=2, title='edema')"),
        (Regression(3.5, 1.0), "lrptrain.Regression(mean=3.5, std=1.0)"),
        (Head("mood", OneLabel(1)), "lrptrain.Head(output='mood', task=lrptrain.OneLabel(column=1))"),
        (Head(1, Binary()), "lrptrain.Head(output=1, task=lrptrain.batch.task.Binary())"),
        (Head(first), "lrptrain.Head(output=<function first>)"),
    ],
)
def test_a_task_is_described_as_it_is_written(task, written):
    assert find_task(task).description == written


@pytest.mark.parametrize(
    ("task", "written"),
    [
        (None, 'Guidance("swap")'),
        ("classes", "Guidance(\"swap\", task='classes')"),
        (EachLabel(), 'Guidance("swap", task=lrptrain.EachLabel())'),
        (OneLabel(2), 'Guidance("swap", task=lrptrain.EachLabel())'),
        (Head("mood"), "Guidance(\"swap\", task=lrptrain.Head(output='mood'))"),
        (Head(lambda output: output[1]), 'Guidance("swap", task=task)'),
    ],
)
def test_guidance_is_told_the_task_where_it_has_to_be(task, written):
    assert find_task(task, several=True).in_guidance('Guidance("swap")') == written


def test_logits_of_steps_are_read_as_those_of_the_grades():
    """The answer is the number of steps above 0, and between two grades the odds are those of their step."""
    steps = torch.tensor(
        [[3.0, 1.0, -2.0], [-1.0, -2.0, -3.0], [4.0, 3.0, 2.0], [0.5, -0.5, -1.0]], dtype=torch.float64
    )
    with Ordinal().reading():
        grades = read_logits(steps, 4)
    assert grades.shape == (4, 4)
    assert grades.argmax(1).tolist() == (steps > 0).sum(1).tolist() == [2, 0, 3, 1]
    probabilities = grades.softmax(1)
    torch.testing.assert_close(probabilities[:, 1:] / (probabilities[:, 1:] + probabilities[:, :-1]), steps.sigmoid())


def test_labels_of_grades_are_numbers_or_steps():
    assert Ordinal().classes(torch.tensor([0, 4, -1])).tolist() == [0, 4, -1]
    assert Ordinal().classes(torch.tensor([2.0, NAN])).tolist() == [2, -1]
    assert Ordinal().classes(torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]])).tolist() == [2, 0, 4]
    with pytest.raises(ValueError, match="must be 1 up to a step"):
        Ordinal().classes(torch.tensor([[0, 1, 0]]))
    with pytest.raises(ValueError, match="parts of grades"):
        Ordinal().classes(torch.tensor([0.5]))


def test_a_map_of_a_grade_is_that_of_the_sum_of_its_steps():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    ).double()
    images = torch.randn(2, 3, 2, 2, dtype=torch.float64)
    with Ordinal().reading():
        found = lrptrain.attribute(model, images, 2, "input_x_gradient")
    images.requires_grad_()
    (gradient,) = torch.autograd.grad(model(images)[:, :2].sum(), images)
    torch.testing.assert_close(found.input, (images * gradient).sum(1).detach())
    with Ordinal().reading():
        explained = lrptrain.attribute(model, images.detach(), 2, "attnlrp")
    torch.testing.assert_close(explained.logits[:, 2], model(images)[:, :2].sum(1).detach())


def test_a_task_that_nobody_called_is_refused():
    with pytest.raises(ValueError, match=r"lrptrain.EachLabel is a class: call it, lrptrain.EachLabel\(...\)"):
        find_task(lrptrain.EachLabel, several=True)  # type: ignore[arg-type]


def test_steps_between_grades_are_no_classes():
    generator = torch.Generator().manual_seed(0)
    common, biases = torch.randn(8, 1, generator=generator), torch.tensor([2.0, 0.5, -0.7, -3.0])
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        assert are_steps(common.to(dtype) + biases.to(dtype))
    assert not are_steps(torch.randn(8, 4, generator=generator))
    assert not are_steps(common + biases + 1e-3 * torch.randn(8, 4, generator=generator))
    assert not are_steps(biases.expand(8, 4)), "a head that begins with zeros, or one that has collapsed"
    assert not are_steps(common)
    assert not are_steps(common[:1] + biases), "one sample tells nothing"


@pytest.mark.parametrize(("label", "is_said"), [([[1, 1, 0], [1, 0, 0]], True), ([[1, 0, 1], [1, 1, 0]], False)])
def test_levels_of_grades_are_told_how_they_are_read(label, is_said):
    with pytest.raises(ValueError, match="has several columns") as error:
        find_task(None).classes(torch.tensor(label))
    assert ("of grades, 1 up to a step, task=lrptrain.Ordinal()" in str(error.value)) == is_said
    assert lrptrain.Ordinal().classes(torch.tensor([[1, 1, 0], [1, 0, 0]])).tolist() == [2, 1]
