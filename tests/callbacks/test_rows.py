"""Samples as they are: bags of any size, patches that are cut out already, texts in chunks, images of several sizes.

Each model reads what is planted, and the finding must name it, in whichever trainer.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from grouped_options import grouped
from hugging_face import quiet_arguments, small_sizes
from own_trainers import answered
from setting import learn, trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import (
    BertConfig,
    BertModel,
    Siglip2Config,
    Siglip2ForImageClassification,
    Trainer,
)

import lrptrain
from lrptrain.callbacks import RelevanceMonitor, RelevanceMonitorCallback
from lrptrain.loggers.record import Highlight

N = 48
WIDTH = 16
OPTIONS: dict[str, Any] = {"max_samples": N, "on_error": "raise"}


class Slides(Dataset):
    """Slides of 5 to 20 patches, each some numbers; a pen mark, and a tumour, are on those of class 1."""

    def __init__(self, seed: int = 0, annotated: bool = True):
        rng = np.random.default_rng(seed)
        self.bags, self.tumour, self.pen = [], [], []
        self.annotated = annotated
        for i in range(N):
            rows = torch.from_numpy(rng.normal(size=(int(rng.integers(5, 20)), WIDTH))).float() * 0.5
            tumour, pen = rng.choice(len(rows), 2, replace=False)
            if i % 2:
                rows[tumour, :4] += 3
                rows[pen, 8:12] += 3
            self.bags.append(rows)
            self.tumour.append(int(tumour))
            self.pen.append(int(pen))

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> dict[str, Any]:
        labels = torch.zeros(len(self.bags[i]), dtype=torch.long)
        labels[self.tumour[i]] = i % 2
        return {"features": self.bags[i], "label": i % 2, **({"rationale": labels} if self.annotated else {})}


class Pooled(nn.Module):
    """Sums what each patch says: of the tumour, or of the pen."""

    def __init__(self, column: int):
        super().__init__()
        self.of_patch = nn.Linear(WIDTH, 1)
        self.head = nn.Linear(1, 2)
        nn.init.zeros_(self.of_patch.weight)
        nn.init.constant_(self.of_patch.weight[:, column : column + 4], 0.5)
        nn.init.constant_(self.of_patch.bias, -3.0)
        self.head.weight.data = torch.tensor([[-3.0], [3.0]])
        self.head.bias.data = torch.tensor([3.0, -3.0])

    def forward(self, bag):
        return self.head(self.of_patch(bag).relu().sum(1))


TUMOUR, PEN = 0, 8


class OfSlides(pl.LightningModule):
    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.net(batch["features"]), batch["label"])

    def validation_step(self, batch, batch_idx):
        self.log("loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6)


@pytest.fixture(scope="module")
def of_slides(tmp_path_factory):
    """Monitors of models that read the tumour or the pen, each trained once."""
    return cache(lambda column, annotated: watched_slides(tmp_path_factory.mktemp("slides"), column, annotated))


def watched_slides(folder: Any, column: int, annotated: bool) -> RelevanceMonitor:
    watching = RelevanceMonitor(budget=None, **grouped(OPTIONS))
    loader = DataLoader(Slides(annotated=annotated), 1)
    trainer(folder, watching, max_epochs=1).fit(OfSlides(Pooled(column)), loader, loader)
    return watching


def test_of_bags_of_any_size_the_row_that_decides_is_named(of_slides):
    watching = of_slides(TUMOUR, False)
    assert watching.scalars["relevance/samples"] == N
    assert watching.scalars["relevance/left_out"] == 0
    (found,) = (each for each in watching.findings if each.relies)
    words = found.name.split()
    row, sample = int(words[3]), int(words[-1])
    assert words[:3] == ["rows", "like", "row"]
    assert Slides().tumour[sample] == row
    assert sample % 2 == 1
    assert found.effect > 0.9
    assert (found.relevance or 0) > 0.8


def is_a_pen_mark(found):
    """Rows like row <row> of sample <sample>."""
    row, sample = (int(word.strip(",")) for word in found.name.split() if word.strip(",").isdigit())
    return Slides().pen[sample] == row


def test_what_lies_outside_of_labelled_instances_is_a_fault(of_slides):
    watching = of_slides(PEN, True)
    fault = watching.faults[0]
    assert fault.kind == "row mark"
    assert fault.name.endswith("outside the annotation")
    assert is_a_pen_mark(fault)
    assert watching.scalars["relevance/label/energy_pointing_game"] < 0.1


def test_a_proof_says_which_rows_were_exchanged(of_slides):
    proof = of_slides(PEN, True).faults[0].proof
    assert proof is not None
    assert proof.path.endswith(".html")
    slides = Slides()
    for each in proof.samples:
        sample = int(each.sample_id)
        gone = {word for word, mark in each.words if mark == "gone"}
        if sample % 2:  # its pen mark is taken away, and with it the answer
            assert f"row {slides.pen[sample]}" in gone
        assert f"row {slides.tumour[sample]}" not in gone, "which is annotated"
        assert each.changed < 0.1 < 0.9 < each.control


def test_a_model_of_the_labelled_instances_has_no_fault(of_slides):
    watching = of_slides(TUMOUR, True)
    assert not watching.faults
    assert watching.scalars["relevance/label/energy_pointing_game"] > 0.9


def test_the_page_shows_bags_by_the_numbers_of_their_rows(of_slides):
    watching = of_slides(TUMOUR, True)
    shown = {each.sample_id: each for each in watching.core.recorder.drawn}
    sample = next(i for i in shown if isinstance(i, int) and i % 2)
    text = shown[sample]
    assert isinstance(text, Highlight)
    assert f"「**{Slides().tumour[sample]}**」" in text.text


def padded(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """A collator that fills bags up, and says by a mask which patches are there."""
    bags = [each["features"] for each in samples]
    return {
        "bag": nn.utils.rnn.pad_sequence(bags, batch_first=True),
        "mask": nn.utils.rnn.pad_sequence([torch.ones(len(each)) for each in bags], batch_first=True),
        "rationale": nn.utils.rnn.pad_sequence(
            [each["rationale"] for each in samples], batch_first=True, padding_value=255
        ),
        "label": torch.tensor([each["label"] for each in samples]),
    }


class Masked(Pooled):
    def forward(self, bag, mask=None):
        assert mask is not None
        return self.head((self.of_patch(bag).relu() * mask[..., None]).sum(1))


def test_bags_that_a_collator_fills_up_keep_their_padding_apart(tmp_path):
    loader = DataLoader(Slides(), 8, collate_fn=padded)
    report = lrptrain.inspect(Masked(PEN), loader, max_samples=N, explain="bag")
    assert [each.kind for each in report.faults] == ["row mark"]
    assert report.samples == N
    assert not report.untested


def naflex(seed: int = 0, count: int = N) -> list[dict[str, Tensor]]:
    """Photographs of 2 x 6, 3 x 4 and 4 x 3 patches, filled up to 14; a tag is on the patch at the bottom right."""
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for i in range(count):
        rows, columns = [(2, 6), (3, 4), (4, 3)][i % 3]
        patches = torch.zeros(14, 48)
        patches[:12] = torch.rand(12, 48, generator=generator) * 0.3
        if i // 3 % 2:
            patches[rows * columns - 1] = 1.0
        mask = (torch.arange(14) < 12).long()
        samples.append(
            {
                "pixel_values": patches,
                "pixel_attention_mask": mask,
                "spatial_shapes": torch.tensor([rows, columns]),
                "labels": torch.tensor(i // 3 % 2),
            }
        )
    return samples


def test_of_patches_of_a_grid_the_place_is_named_in_transformers(tmp_path):
    torch.manual_seed(0)
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**vision, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2}
    config = Siglip2Config(
        vision_config={**vision, "num_patches": 16, "patch_size": 4}, text_config=text, id2label={0: "a", 1: "b"}
    )
    watching = RelevanceMonitorCallback(budget=None, **grouped(OPTIONS))
    arguments = quiet_arguments(tmp_path, num_train_epochs=6, eval_strategy="no", learning_rate=3e-3)
    model = Siglip2ForImageClassification(config)
    Trainer(model, arguments, train_dataset=naflex(1, 4 * N)).train()
    Trainer(model, arguments, eval_dataset=naflex(), callbacks=[watching]).evaluate()
    found = next(each for each in watching.findings if each.relies)
    line, column, sample = (int(word.strip(",")) for word in found.name.split() if word.strip(",").isdigit())
    assert naflex()[sample]["spatial_shapes"].tolist() == [line + 1, column + 1]
    assert found.name == f"patches like the one in row {line}, column {column} of sample {sample}"


class Chunks(nn.Module):
    """A document as chunks of ids, each encoded alone."""

    def __init__(self, chunks: int):
        super().__init__()
        config: dict[str, Any] = small_sizes(32)
        self.bert = BertModel(BertConfig(vocab_size=60, **config), add_pooling_layer=False)
        self.head = nn.Linear(32 * chunks, 2)

    def forward(self, input_ids, attention_mask=None):
        batch, chunks, tokens = input_ids.shape
        masks = None if attention_mask is None else attention_mask.reshape(batch * chunks, tokens)
        states = self.bert(input_ids.reshape(batch * chunks, tokens), attention_mask=masks).last_hidden_state
        return self.head(states.mean(1).reshape(batch, -1))


@cache
def documents() -> tuple[Chunks, list[dict[str, Tensor]]]:
    """A model that reads one word in the third chunk, and its documents."""
    torch.manual_seed(0)
    label = torch.arange(N) % 2
    ids = torch.randint(5, 50, (N, 4, 8))
    ids[:, 2, 5] = torch.where(label == 1, 55, 56)
    model = Chunks(4)
    learn(model, lambda _: nn.functional.cross_entropy(model(ids), label), 40)
    batches = [
        {"input_ids": ids[i : i + 12], "attention_mask": torch.ones(12, 4, 8).long(), "label": label[i : i + 12]}
        for i in range(0, N, 12)
    ]
    return model.eval(), batches


class OfOneBag(Pooled):
    """Takes one bag `[rows, numbers]`, as whole-slide models often do, and gives back more than logits."""

    def forward(self, bag, label=None, instance_eval=False):
        assert bag.ndim == 2
        weights = self.of_patch(bag).relu()
        logits = self.head(torch.mm(weights.T, torch.ones_like(weights)))
        return logits, logits.softmax(1), weights.T, {}


class OfKeywords(nn.Module):
    """Takes all by name."""

    def __init__(self, column: int):
        super().__init__()
        self.pooled = Pooled(column)

    def forward(self, **given):
        return {"logits": self.pooled(given["data"])}


class ByCall(OfSlides):
    """Calls its net in a way of its own, with batches as its own collator makes them."""

    def __init__(self, net, call):
        super().__init__(net)
        self.call = call

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.call(self.net, batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.training_step(batch, batch_idx)


def alone(samples):
    """One bag without a batch axis, and its label."""
    return samples[0]["features"], torch.tensor([samples[0]["label"]])


def together(samples):
    return samples[0]["features"][None], torch.tensor([samples[0]["label"]])


@pytest.mark.parametrize(
    ("way", "net", "collator", "call", "task"),
    [
        ("loop", OfOneBag, together, lambda net, bag: net(bag.squeeze(0))[0], lrptrain.Head(0)),
        ("lightning", OfKeywords, together, lambda net, bag: net(data=bag)["logits"], None),
    ],
)
def test_bags_are_monitored_as_their_model_is_called(way, net, collator, call, task, tmp_path):
    loader, model = DataLoader(Slides(), 1, collate_fn=collator), net(PEN)
    options = {**grouped(OPTIONS), "task": task}
    if way == "lightning":
        watching: Any = RelevanceMonitor(budget=None, **options)
        trainer(tmp_path, watching, max_epochs=1).fit(ByCall(model, call), loader, loader)
    else:
        step = lambda model, batch: call(model, batch[0])  # noqa: E731
        watching = lrptrain.Monitor(model, loader, tmp_path, step=step, **options)
        watching.evaluate(0)
    (found,) = (each for each in watching.findings if each.relies)
    assert is_a_pen_mark(found)
    assert (found.relevance or 0) > 0.8
    assert watching.scalars["relevance/samples"] == N


@pytest.mark.parametrize("explain", [None, "bag"])
def test_a_bag_may_have_any_name_and_no_batch_axis(explain, tmp_path):
    class WithOne(Slides):
        def __getitem__(self, i):
            item = super().__getitem__(i)
            return {**item, "features": item["features"][:1]} if i == 7 else item

    loader = DataLoader(
        WithOne(), 1, collate_fn=lambda samples: dict(zip(("slide", "label"), alone(samples), strict=True))
    )
    step = lambda model, batch: model(batch["slide"])[0]  # noqa: E731
    options = {**grouped(OPTIONS), "task": lrptrain.Head(0), "explain": explain}
    with lrptrain.Monitor(OfOneBag(PEN), loader, tmp_path, step=step, **options) as watching:
        watching.evaluate(0)
    (found,) = (each for each in watching.findings if each.relies)
    assert is_a_pen_mark(found)
    assert watching.scalars["relevance/samples"] == N


class ForTransformers(nn.Module):
    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, bag=None, input_ids=None, attention_mask=None, labels=None):
        return answered(self.net(bag) if bag is not None else self.net(input_ids, attention_mask), labels)


@pytest.mark.parametrize("kind", ["documents", "bags"])
def test_documents_in_chunks_and_bags_are_monitored_in_transformers(kind, tmp_path):
    rows: Any
    net: Any
    if kind == "documents":
        net, batches = documents()
        rows = [{("labels" if k == "label" else k): x[i] for k, x in b.items()} for b in batches for i in range(12)]
    else:
        net, items = Pooled(PEN), [Slides()[i] for i in range(N)]
        rows = [{"bag": x["features"], "labels": torch.tensor(x["label"])} for x in items]
    watching = RelevanceMonitorCallback(budget=None, **grouped(OPTIONS))
    arguments = quiet_arguments(
        tmp_path,
        num_train_epochs=1,
        learning_rate=0.0,
        eval_strategy="epoch",
        per_device_train_batch_size=1,
        per_device_eval_batch_size=1,
    )
    model = ForTransformers(net)
    Trainer(model, arguments, train_dataset=rows, eval_dataset=rows, callbacks=[watching]).train()
    (found,) = (each for each in watching.findings if each.relies)
    assert found.name == "the words '55', '56'" if kind == "documents" else found.name.startswith("rows like row ")
    assert watching.scalars["relevance/samples"] == N
    assert watching.scalars["relevance/left_out"] == 0
    assert found.fix == f'lrptrain.guide(trainer, "swap", swap=monitor["{found.name}"])'


class Corner(nn.Module):
    """Reads how bright the top left quarter of an image of any size is."""

    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(1, 2, 1)
        self.head.weight.data = torch.tensor([-40.0, 40.0]).view(2, 1, 1, 1)
        assert self.head.bias is not None
        self.head.bias.data = torch.tensor([20.0, -20.0])

    def forward(self, image):
        return self.head(nn.functional.adaptive_avg_pool2d(image, 4))[:, :, 0, 0]


def test_images_of_several_sizes_are_all_tested():
    generator = torch.Generator().manual_seed(0)
    batches = []
    for i in range(N):
        image = torch.rand(1, 1, *[(16, 16), (16, 24), (32, 16)][i % 3], generator=generator)
        image[:, :, : image.shape[2] // 4, : image.shape[3] // 4] = 0.3 + 0.4 * (i // 3 % 2)
        batches.append({"image": image, "label": torch.tensor([i // 3 % 2])})
    report = lrptrain.inspect(Corner(), batches, max_samples=N)
    assert report.samples == N
    assert report.to_review[0].name == "the top left corner"
    assert report.untested == ["marks, which need images of one size"]


def heard(model: nn.Module) -> tuple[list[Tensor], Any]:
    """What the model is given first in each call, and what ends the listening."""
    seen: list[Tensor] = []
    note = lambda module, args, kwargs: seen.append([*args, *kwargs.values()][0].clone())  # noqa: E731
    return seen, model.register_forward_pre_hook(note, with_kwargs=True)


@pytest.mark.parametrize(
    ("form", "loss"),
    [("bare", "swap"), ("named", "swap"), ("of one", "swap"), ("no axis", "energy"), ("bare", "consistency")],
)
def test_bags_that_come_one_by_one_are_guided(loss, form):
    """A bag takes rows of the bag before it, of whichever size, and keeps the number of its own."""
    slides = Slides()
    net = Alone(form != "no axis") if form != "of one" else Pooled(PEN)
    seen, handle = heard(net.of_patch)
    options: dict[str, Any] = {} if loss == "swap" else {"weight": 1.0, "method": "attnlrp"}
    optimizer = torch.optim.SGD(net.parameters(), 0.0)
    options |= {"optimizer": optimizer, "on_error": "raise", "explain": "bag" if form == "named" else None}
    guidance = lrptrain.Guidance(loss, **options)
    swapped = []
    for number in (1, 3, 5):
        seen.clear()
        item, label = slides[number], torch.ones(1, dtype=torch.long)
        bag, marks = item["features"], item["rationale"]
        batch: Any = {"bag": bag, "label": label, "rationale": marks} if form == "named" else (bag, label[0], marks)
        if form == "of one":
            bag = bag[None]
            batch = (bag, label, marks[None])
        with guidance.step(net, batch) as step:
            step.guided(nn.functional.cross_entropy(net(bag).view(1, -1), label)).backward()
        given = seen[0 if loss == "swap" else -1].view(item["features"].shape)
        swapped.append(not torch.equal(given, item["features"]))
        assert torch.equal(given[marks == 1], item["features"][marks == 1])
        if swapped[-1]:
            before = slides[number - 2]["features"]
            assert all((row == before).all(1).any() for row in given[marks == 0])
    handle.remove()
    assert swapped == [False, loss != "energy", loss != "energy"], "the first has none before it"
    assert guidance.values["guidance/samples"] == 1
    if loss == "energy":
        assert guidance.values["guidance/energy"] > 0.9


def test_a_bag_without_a_marked_row_takes_all_that_another_one_has_beside_its_own():
    """Its label says that nothing of it is evidence: the pen of the others has to come to it, too."""
    slides, net = Slides(), Alone()
    seen, handle = heard(net.of_patch)
    guidance = lrptrain.Guidance("swap", optimizer=torch.optim.SGD(net.parameters(), 0.0), on_error="raise")
    for number in (1, 2):
        seen.clear()
        item, label = slides[number], torch.tensor([number % 2])
        batch = (item["features"], label, item["rationale"])
        with guidance.step(net, batch) as step:
            step.guided(nn.functional.cross_entropy(net(item["features"]), label)).backward()
    handle.remove()
    before, rows = slides[1], seen[0].view(slides[2]["features"].shape)
    beside = before["features"][before["rationale"] == 0]
    assert all((row == beside).all(1).any() for row in rows)


@pytest.mark.parametrize("loss", ["swap", "energy"])
def test_the_first_bag_may_be_one_without_a_mark_and_many_are_refused(loss):
    def guided(bags):
        options: dict[str, Any] = {} if loss == "swap" else {"weight": 1.0, "method": "attnlrp"}
        net = Alone()
        optimizer = torch.optim.SGD(net.parameters(), 0.0)
        guidance = lrptrain.Guidance(loss, optimizer=optimizer, on_error="raise", **options)
        for bag, marks in bags:
            with guidance.step(net, (bag, torch.tensor([1]), marks)) as step:
                step.guided(nn.functional.cross_entropy(net(bag), torch.tensor([1]))).backward()
        return guidance.values["guidance/samples"]

    marked = Slides()[1]
    bag, marks = marked["features"], marked["rationale"]
    assert guided([(bag, torch.zeros_like(marks)), (bag, marks)]) == 1
    assert guided([(bag, torch.full_like(marks, 255)), (bag, marks)]) == 1
    assert guided([(bag, torch.zeros_like(marks))] * 12) == 1, "as if bags with marks were rare"
    with pytest.raises(ValueError, match="has an annotation"):
        guided([(bag, torch.full_like(marks, 255))] * 10)


class Alone(Pooled):
    """Takes one bag without a batch axis, and fails on any other."""

    def __init__(self, has_axis: bool = True) -> None:
        super().__init__(PEN)
        self.has_axis = has_axis

    def forward(self, bag):
        assert bag.ndim == 2
        logits = super().forward(bag[None])
        return logits if self.has_axis else logits[0]


@pytest.mark.parametrize(("form", "has_axis"), [("a tuple", True), ("by name", False)])
def test_what_is_said_of_a_model_of_one_bag_can_be_pasted(form, has_axis):
    bags = [(each["features"], torch.tensor(each["label"])) for each in (Slides()[i] for i in range(N))]
    given: Any = bags if form == "a tuple" else [{"bag": bag, "label": label} for bag, label in bags]
    options: dict[str, Any] = {} if form == "a tuple" else {"explain": "bag"}
    with pytest.raises(ValueError, match="say how it is called, as by step=") as refused:
        lrptrain.inspect(Alone(has_axis), given, **options)
    step = eval(str(refused.value).partition("step=")[2])
    report = lrptrain.inspect(Alone(has_axis), given, step=step, **options)
    assert [each.cue.kind for each in report.to_review] == ["row mark"]


def test_the_map_of_a_bag_without_a_batch_axis_is_that_of_its_rows():
    bag = Slides()[1]["features"]
    for given, explain in ((bag, None), ({"bag": bag}, "bag")):
        found = lrptrain.attribute(Alone(), given, 1, explain=explain)
        assert found.scores.shape == (1, len(bag))
        assert int(found.scores.argmax()) == Slides().pen[1]
    pair = [int(Slides().pen[1]), int(Slides().pen[1]) - 1]
    for method in ("attnlrp", "input_x_gradient", "leave_one_out", "integrated_gradients"):
        of_batch = lrptrain.attribute(Pooled(PEN), bag[None], 1, method).scores
        for has_axis in (True, False):
            alone = lrptrain.attribute(Alone(has_axis), bag, 1, method).scores
            torch.testing.assert_close(alone, of_batch)
            # As many rows as classes look like a batch of logits.
            two = lrptrain.attribute(Alone(has_axis), bag[pair], 1, method).scores
            torch.testing.assert_close(two, lrptrain.attribute(Pooled(PEN), bag[None, pair], 1, method).scores)
    with pytest.raises(lrptrain.UnsupportedModelError, match="attention"):
        lrptrain.attribute(Alone(), bag, 1, "rollout")
    with pytest.raises(lrptrain.UnsupportedModelError, match=r"it returned a tensor of shape \[3, 4, 2\]"):
        lrptrain.attribute(Unbatched3(), torch.rand(3, 4))


class Unbatched3(nn.Module):
    """Gives a class of every number, as no model of rows or bags does."""

    def forward(self, table):
        return table[..., None] * torch.ones(2)


@pytest.mark.filterwarnings("ignore:the default method cannot serve")
def test_documents_in_chunks_are_swapped_and_guided():
    model, batches = documents()
    batch = {**batches[0], "rationale": torch.zeros(12, 4, 8, dtype=torch.long)}
    batch["rationale"][:, 0, 1] = 1
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    guidance = lrptrain.Guidance({"swap": 1.0, "energy": 1.0}, optimizer=optimizer, on_error="raise")
    seen, handle = heard(model.bert.embeddings)
    with guidance.step(model, batch) as step:
        loss = nn.functional.cross_entropy(model(batch["input_ids"], batch["attention_mask"]), batch["label"])
        step.guided(loss).backward()
    handle.remove()
    kept = seen[0].view(12, 4, 8) == batch["input_ids"]
    assert kept[:, 0, 1].all()
    assert kept.float().mean() < 0.5
    assert guidance.values["guidance/swapped"] == 12


class Graph(Pooled):
    """Reads the patches by their neighbours."""

    def forward(self, bag, adjacency=None):
        assert adjacency is not None
        return self.head(self.of_patch(adjacency @ bag).relu().sum(1))


def test_of_graphs_it_is_said_that_their_rows_are_not_exchanged():
    bags = [
        {"bag": bag[None], "adjacency": torch.eye(len(bag))[None], "label": torch.tensor([i % 2])}
        for i, bag in enumerate(Slides().bags)
    ]
    report = lrptrain.inspect(Graph(TUMOUR), bags, max_samples=N, explain="bag")
    assert report.samples == N
    assert report.untested == [
        "rows, of which 'adjacency' has another size in each sample, and not along the rows alone"
    ]
