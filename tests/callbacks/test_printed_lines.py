"""The line that a finding prints is pasted: evaluated as a user would, and trained with, for every kind of cue."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from examples import explained
from guided_loops import hugging_face_trainer
from inspected import images
from plain_texts import bert, mixed
from setting import learn, loader, trainer, vit
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification

import lrptrain
from lrptrain.batch import Sample
from lrptrain.callbacks import RelevanceGuidance, RelevanceMonitor, RelevanceMonitorCallback
from lrptrain.cues import plan
from lrptrain.cues.cue import Cue
from lrptrain.cues.mark import Marks
from lrptrain.cues.measure import Effect
from lrptrain.cues.places import places
from lrptrain.cues.search import Judged, Node
from lrptrain.cues.whole_input import WholeInput
from lrptrain.findings import Finding, HasFindings
from lrptrain.loggers import read_events
from lrptrain.monitor.evaluation import Evaluation
from lrptrain.monitor.loop_monitor import GUIDANCE
from lrptrain.monitor.reporting import findings_of
from lrptrain.trainers.context import Names

N = 48
RAISES = lrptrain.Run(on_error="raise")


class Data(NamedTuple):
    """Samples, the columns of a training set, and what is tested of them."""

    samples: list[Sample]
    columns: dict[str, Tensor]
    nodes: list[Node]


def rows_of(*inputs: Tensor | None) -> list[bytes]:
    """The samples of a batch, by all that they are."""
    columns = [[row.numpy().tobytes() for row in x] for x in inputs if x is not None]
    return [b"".join(row) for row in zip(*columns, strict=True)]


def given_to(net: Any) -> list[bytes]:
    """The samples that a model has noted, each by all that it is."""
    return [row for inputs in net.seen for row in rows_of(*inputs)]


def noted(*inputs: Tensor | None) -> list[Tensor]:
    return [x.detach().clone() for x in inputs if x is not None]


class Texts(BertForSequenceClassification):
    """Notes the texts that it is given."""

    seen: list[list[Tensor]]

    def forward(self, input_ids, attention_mask, token_type_ids=None, labels=None):
        self.seen.append(noted(input_ids))
        return super().forward(input_ids, attention_mask, token_type_ids, labels=labels)


class Images(nn.Module):
    """A ViT in the form of transformers, beside whose images there may be an age."""

    def __init__(self, channels: int):
        super().__init__()
        self.net, self.of_age = vit(in_chans=channels), nn.Linear(1, 3)
        self.seen: list[list[Tensor]] = []

    def forward(
        self, pixel_values: Tensor, age: Tensor | None = None, labels: Tensor | None = None
    ) -> dict[str, Tensor]:
        self.seen.append(noted(pixel_values, age))
        logits = self.net(pixel_values) + (0 if age is None else self.of_age(age))
        return {"logits": logits, **({} if labels is None else {"loss": F.cross_entropy(logits, labels)})}


@cache
def of_images(masked: bool, channels: int = 3, age: bool = False) -> Data:
    """Images with a picture that recurs in those of one class."""
    columns = images("object", count=N)
    columns["image"] = columns["image"].repeat(1, channels // 3, 1, 1)
    stamp = torch.randn(channels, 4, 4, generator=torch.Generator().manual_seed(1)) + 3
    columns["image"][columns["label"] == 0, :, :4, :4] = stamp
    if not masked:
        del columns["mask"]
    if age:
        columns["age"] = columns["label"][:, None].float()
    samples = [Sample(i, i % 3, {name: x[i] for name, x in columns.items() if name != "label"}) for i in range(N)]
    answers = columns["label"].numpy()
    maps = [torch.eye(16)[0]] * N
    regions = ["square", "rest"] if masked else ()
    nodes = plan.of_images(samples, Marks(samples, maps, (4, 4), answers), answers, 0, regions)
    return Data(samples, columns, [Node(WholeInput.of("age"), np.arange(N))] if age else nodes)


@cache
def of_texts(masked: bool, pairs: bool = False) -> Data:
    """Texts with numbers, capitals, signs and words that go with a class."""
    writer, texts = bert(), []
    for i, words in enumerate(mixed(N)):
        told = ["good", "zip"] if i % 2 else ["bad", "zap"]
        words[:4] = ["He", "12" if i % 2 else "7", ".", told[0] + ("*" if masked else "")]
        texts.append((" ".join(words[:5]), " ".join(words[5:])) if pairs else " ".join([*words, told[1]]))
    samples, batch = writer.samples(texts), writer.batch(*texts)
    nodes = plan.of_texts(samples, np.arange(N) % 2, writer.language)
    return Data(samples, {**batch, "label": torch.arange(N) % 2}, nodes)


DATA = {
    "images": of_images(False), "images with masks": of_images(True), "bands": of_images(False, 6),
    "bands with masks": of_images(True, 6), "texts": of_texts(False), "texts with rationales": of_texts(True),
    "pairs": of_texts(False, True), "an age": of_images(False, age=True),
}  # fmt: skip


def divided(nodes: Iterable[Node]) -> Iterator[Cue]:
    """What can be named: all but wholes."""
    for node in nodes:
        yield from () if node.is_whole else (node.cue,)
        yield from divided(node.divided())


def of_each_kind() -> dict[str, tuple[str, Cue]]:
    found: dict[str, tuple[str, Cue]] = {}
    for name, data in DATA.items():
        for cue in divided(data.nodes):
            found.setdefault(f"{cue.kind} {getattr(cue, 'where', '')} {cue.role} {name.partition(' ')[0]}", (name, cue))
    return found


KINDS = of_each_kind()


def kinds_below(kind: Any) -> Iterator[Any]:
    for below in kind.__subclasses__():
        yield below
        yield from kinds_below(below)


def test_every_kind_of_images_and_texts_is_here():
    known = {each.kind for each in kinds_below(Cue) if each.__module__.startswith("lrptrain.") and "kind" in vars(each)}
    elsewhere = {"row count", "row mark", "rows", "row segment", "series part", "series surroundings", "slices",
                 "volume surroundings"}  # fmt: skip
    # A cue while another one stays is measured, and never named; all words are named outside alone.
    assert {cue.kind for _, cue in KINDS.values()} == known - elsewhere - {"apart"}


def named(cues: Sequence[Cue], data: Data, call: str) -> list[Finding]:
    """The findings of cues, as an evaluation reports what the model relies on."""
    shown = []
    for i, each in enumerate(data.samples):
        ids = each.tensors.get("input_ids")
        content: dict[str, Any] = {} if ids is None else {"grid": None, "content_ids": ids.numpy()}
        maps = {"label": torch.ones(16 if ids is None else len(ids))}
        shown.append(explained(each, np.eye(3)[i % 2], maps=maps, **{"grid": (4, 4), **content}))
    effect, values, rows = Effect(0.4, 0.3, 0.5, N), np.full(N, 0.4), np.arange(N)
    judged = [Judged(cue, "relies", effect, values, rows, named=True) for cue in cues]
    evaluation = Evaluation(shown, data.samples)
    return findings_of(judged, evaluation, ["a", "b", "c"], lambda ids: [str(each) for each in ids], (), call)


def net_of(data: Data) -> Any:
    torch.manual_seed(0)
    if "image" in data.columns:
        return Images(data.columns["image"].shape[1])
    config = cast(Any, BertConfig)(
        vocab_size=200, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=2,
        max_position_embeddings=64,
    )  # fmt: skip
    net: Any = Texts(config)
    net.seen = []
    return net


def loss_of(net: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """What a user's step makes of a batch."""
    names = {"image": "pixel_values", "label": "labels"}
    given = {names.get(name, name): x for name, x in batch.items() if name not in ("mask", "rationale")}
    loss: Tensor = net(**given)["loss"]
    return loss


class Module(pl.LightningModule):
    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def training_step(self, batch, _):
        return loss_of(self.net, batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Validated(Module):
    def validation_step(self, batch, _):
        return loss_of(self.net, batch)


def by_lightning(line: str, scope: dict[str, Any], net: nn.Module, columns: dict[str, Tensor], folder: Any) -> Any:
    guidance = eval(line, {"RelevanceGuidance": RelevanceGuidance, **scope})
    trainer(folder, guidance, max_epochs=1, limit_val_batches=0).fit(Module(net), loader(columns, 12))
    return guidance


def by_transformers(line: str, scope: dict[str, Any], net: nn.Module, columns: dict[str, Tensor], folder: Any) -> Any:
    runner = hugging_face_trainer(net, columns, folder, per_device_train_batch_size=12)
    guidance = eval(line, {"lrptrain": lrptrain, "trainer": runner, **scope})
    runner.train()
    return guidance


def in_a_loop(line: str, scope: dict[str, Any], net: nn.Module, columns: dict[str, Tensor], folder: Any) -> Any:
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    guidance = eval(line, {"lrptrain": lrptrain, "optimizer": optimizer, **scope})
    for batch in loader(columns, 12):
        with guidance.step(net, batch) as step:
            step.guided(loss_of(net, batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return guidance


TRAINERS = {
    "lightning": (by_lightning, Names.guidance),
    "transformers": (by_transformers, 'lrptrain.guide(trainer, "swap", swap=monitor.faults)'),
    "a loop": (in_a_loop, GUIDANCE),
    "inspect": (in_a_loop, GUIDANCE.replace("monitor.", "report.")),
}


@pytest.mark.filterwarnings("ignore:.*takes away")  # what may be evidence
@pytest.mark.parametrize(("name", "under"), [(name, list(TRAINERS)[i % 3]) for i, name in enumerate(KINDS)])
def test_the_line_of_every_kind_of_cue_swaps_it(name, under, tmp_path):
    train, call = TRAINERS[under]
    data = DATA[KINDS[name][0]]
    (finding,) = named([KINDS[name][1]], data, call)
    assert finding.fix in str(finding)
    held = HasFindings()
    held.findings = [finding]
    columns = {each: x[:24] for each, x in data.columns.items()}
    net = net_of(data)
    guidance = train(finding.fix, {"monitor": held}, net, columns, tmp_path)
    values = getattr(guidance, "values", None) or guidance.guidance.values
    assert guidance.failures == 0
    assert values["guidance/swapped"] > 0
    own = rows_of(*(columns[each] for each in ("image", "age", "input_ids") if each in columns))
    assert set(given_to(net)) - set(own), "the model is given samples that are not in the data"


@pytest.mark.filterwarnings("ignore:.*takes away")
@pytest.mark.parametrize("role", ["shortcut", "unreviewed"])
def test_the_line_of_sides_of_a_frame_swaps_all_of_them(role, tmp_path):
    _, top, bottom, *_ = places(role)
    columns = {name: x[:24] for name, x in DATA["images"].columns.items()}
    held = HasFindings()
    held.findings = named([top, bottom], DATA["images"], GUIDANCE)
    net, original = net_of(DATA["images"]), columns["image"].clone()
    in_a_loop(held.findings[0].fix, {"monitor": held}, net, columns, tmp_path)
    images = [np.frombuffer(each, np.float32).reshape(3, 16, 16) for each in given_to(net)]
    swapped = [each for each in images if not (original.numpy() == each).all((1, 2, 3)).any()]
    assert swapped
    for each in swapped:
        (own,) = [one for one in original.numpy() if (one[:, 4:12] == each[:, 4:12]).all()]
        assert (own[:, :4] != each[:, :4]).any()
        assert (own[:, 12:] != each[:, 12:]).any()


@pytest.fixture(scope="module")
def reads_the_corner() -> nn.Module:
    torch.manual_seed(0)
    net, columns = Images(3), images("corner", 1, 256)
    learn(net, lambda step: loss_of(net, {name: columns[name].chunk(4)[step % 4] for name in ("image", "label")}), 60)
    return net


def watched_by_lightning(net: nn.Module, columns: dict[str, Tensor], folder: Any) -> Any:
    watching = RelevanceMonitor(max_samples=N, run=RAISES)
    trainer(folder, watching, max_epochs=1).validate(Validated(net), loader(columns, 12), verbose=False)
    return watching


def watched_by_transformers(net: nn.Module, columns: dict[str, Tensor], folder: Any) -> Any:
    watching = RelevanceMonitorCallback(max_samples=N, run=RAISES)
    runner = hugging_face_trainer(net, columns, folder, learning_rate=0.0)
    runner.add_callback(watching)
    runner.evaluate()
    return watching


def watched_in_a_loop(net: nn.Module, columns: dict[str, Tensor], folder: Any) -> Any:
    watching = lrptrain.Monitor(net, loader(columns, 12), folder, max_samples=N, run=RAISES)
    watching.evaluate(0)
    return watching


def inspected(net: nn.Module, columns: dict[str, Tensor], folder: Any) -> Any:
    return lrptrain.inspect(net, loader(columns, 12), max_samples=N)


WATCHES = {
    "lightning": watched_by_lightning, "transformers": watched_by_transformers, "a loop": watched_in_a_loop,
    "inspect": inspected,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*takes away")
@pytest.mark.parametrize(("under", "masked"), [(under, i % 2 == 0) for i, under in enumerate(WATCHES)])
def test_a_real_run_prints_a_line_that_works_under_its_trainer(reads_the_corner, under, masked, tmp_path):
    columns = images("corner", count=N)
    if not masked:
        del columns["mask"]
    net = Images(3)
    net.load_state_dict(reads_the_corner.state_dict())
    held = WATCHES[under](net, columns, tmp_path / "watched")
    finding = held["the top left corner"]
    assert finding.role == ("shortcut" if masked else "unreviewed")
    assert ('["the top left corner"]' in finding.fix) != masked
    holder = "report" if under == "inspect" else "monitor"
    net.seen.clear()
    guidance = TRAINERS[under][0](finding.fix, {holder: held}, net, columns, tmp_path / "guided")
    assert guidance.failures == 0
    assert set(given_to(net)) - set(rows_of(columns["image"])), "the model is given samples that are not in the data"


def trained_by_lightning(net: nn.Module, columns: dict[str, Tensor], folder: Any) -> tuple[Any, float]:
    watching = RelevanceMonitor(max_samples=N, run=RAISES, budget=None)
    runner = trainer(folder, watching, max_epochs=2)
    runner.fit(Validated(net), loader(columns, 12), loader(columns, 12))
    return watching, runner.current_epoch - 1  # which counts on at the end


def trained_by_transformers(net: nn.Module, columns: dict[str, Tensor], folder: Any) -> tuple[Any, float]:
    watching = RelevanceMonitorCallback(max_samples=N, run=RAISES, budget=None)
    runner = hugging_face_trainer(net, columns, folder, num_train_epochs=2, eval_strategy="epoch")
    runner.add_callback(watching)
    runner.train()
    return watching, runner.state.log_history[-1]["epoch"]


def trained_in_a_loop(net: nn.Module, columns: dict[str, Tensor], folder: Any) -> tuple[Any, float]:
    with lrptrain.Monitor(net, loader(columns, 12), folder, max_samples=N, run=RAISES) as watching:
        for epoch in (5, 6):
            watching.evaluate(epoch)
    return watching, 6


@pytest.mark.parametrize("train", [trained_by_lightning, trained_by_transformers, trained_in_a_loop])
def test_the_epoch_is_that_of_the_trainer_wherever_it_is_said(reads_the_corner, train, tmp_path, caplog, capsys):
    caplog.set_level("INFO")
    net = Images(3)
    net.load_state_dict(reads_the_corner.state_dict())
    for name, weight in net.named_parameters():  # what it has learned stays
        weight.requires_grad = name == "net.head.bias"
    watching, epoch = train(net, images("corner", count=N), tmp_path)
    assert {each.epoch for each in watching.findings if each.relies} == {epoch}
    assert watching["the top left corner"].epochs == (epoch - 1, epoch)
    assert f"Since epoch {epoch - 1:.0f}." in str(watching["the top left corner"])
    (*_, last) = read_events(watching.folder)
    assert (last["epoch"], last["findings"][0]["epoch"]) == (epoch, epoch)
    assert f"epoch {epoch:.0f}, on {N} samples" in " ".join(caplog.text.split())
    capsys.readouterr()
    watching.show(0)
    assert capsys.readouterr().out.startswith(f"Epoch {epoch:.0f}: ")
