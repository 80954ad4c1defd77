"""Which model is explained, on which batches."""

import pytest
import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.callbacks import WeightAveraging
from setting import UNSEEING, data, loader, messages, module, monitor, trainer, vit

from lrptrain import attribute
from lrptrain.loggers import read_samples
from lrptrain.models import TextClassifier


def maps(watching):
    return torch.stack([one.maps["label"] for one in watching.scored])


def expected(net, watching, columns=None, **options):
    ids = [one.sample.sample_id for one in watching.scored]
    columns = columns or data()
    return attribute(net.eval(), columns["image"][ids], columns["label"][ids], **options).scores.detach().double()


def validated(tmp_path, pl_module, columns=None, options=None, **trainer_options):
    watching = monitor(on_error="raise", **(options or {}))
    runner = trainer(tmp_path, watching, **trainer_options)
    runner.validate(pl_module, loader(columns), verbose=False)
    return watching, runner


class OnlySteps(LightningModule):
    """No forward of its own, and one child."""

    def __init__(self, net=None):
        super().__init__()
        self.backbone = net if net is not None else vit()

    def validation_step(self, batch, batch_idx):
        pass


def test_an_only_child_is_found(tmp_path):
    pl_module = OnlySteps()
    with messages() as lines:
        watching, _ = validated(tmp_path, pl_module)
    torch.testing.assert_close(maps(watching), expected(pl_module.backbone, watching), rtol=0, atol=1e-6)
    assert lines.count("RelevanceMonitor explains VisionTransformer of OnlySteps") == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_compiled_child_is_explained_as_it_stands(tmp_path):
    net = vit()
    watching, _ = validated(
        tmp_path, module(net=torch.compile(net, backend="aot_eager"), **UNSEEING), options={"model": "net"}
    )
    torch.testing.assert_close(maps(watching), expected(net, watching), rtol=0, atol=1e-6)


def test_maps_are_recorded_in_float32_under_the_trainers_autocast(tmp_path):
    kinds = []  # not the module's own: what a module holds is put back

    class Seen(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = vit()

        def forward(self, image):
            if torch.is_grad_enabled():
                kinds.append(self.net.head(image.flatten(1)[:, :32]).dtype)
            return self.net(image)

    watching, _ = validated(tmp_path, module(net=Seen()), precision="bf16-mixed")
    assert set(kinds) == {torch.float32}
    assert maps(watching).isfinite().all()


def test_averaged_weights_are_what_is_explained(tmp_path):
    class Averaging(WeightAveraging):
        def should_update(self, step_idx=None, epoch_idx=None):
            return step_idx is not None

    for order in (0, 1):
        watching, averaging = monitor(on_error="raise"), Averaging(device="cpu", use_buffers=True)
        callbacks = [watching, averaging] if order else [averaging, watching]
        pl_module = module()
        seen: list[torch.Tensor] = []
        explained: list[torch.Tensor] = []
        pl_module.validation_step = lambda batch, batch_idx, m=pl_module, s=seen: s.append(m.net.head.weight.clone())
        runner = trainer(tmp_path, *callbacks, max_epochs=1, num_sanity_val_steps=0)
        make = watching.core.explainer.evaluator
        watching.core.explainer.evaluator = lambda *a, r=make, m=pl_module, e=explained: (
            e.append(m.net.head.weight.clone()),
            r(*a),
        )[1]
        runner.fit(pl_module, loader(), loader())
        assert torch.equal(explained[0], seen[0])


def test_boxes_are_drawn_and_scored_like_their_mask(tmp_path):
    boxes = torch.full((24, 2, 4), float("nan"))
    boxes[:, 0] = torch.tensor([0.0, 0.0, 4.0, 16.0])
    columns = {**{name: data()[name] for name in ("image", "label")}, "boxes": boxes}
    (boxed, runner), (masked, other) = validated(tmp_path, module(), columns), validated(tmp_path, module())
    assert runner.callback_metrics.keys() == other.callback_metrics.keys()
    key = "relevance/label/energy_pointing_game"
    assert runner.callback_metrics[key] == other.callback_metrics[key]
    pictures = [sorted(each.folder.glob("pictures/epoch_0000_*/*.png")) for each in (boxed, masked)]
    assert [path.read_bytes() for path in pictures[0]] == [path.read_bytes() for path in pictures[1]]


def test_named_regions(tmp_path):
    mask = torch.zeros(24, 2, 16, 16, dtype=torch.bool)
    mask[:, 0, :, :4], mask[:, 1, :, 4:] = True, True
    watching, runner = validated(
        tmp_path, module(), {**data(), "mask": mask}, {"region_names": ["animal", "background"]}
    )
    shares = [runner.callback_metrics[f"relevance/label/region/{name}"].item() for name in ("animal", "background")]
    assert sum(shares) == pytest.approx(1, abs=1e-5)
    assert shares[0] == pytest.approx(runner.callback_metrics["relevance/label/energy_pointing_game"].item())
    assert "label_region_animal" in read_samples(watching.folder)


def test_subclasses_of_tensor_are_read_as_tensors(tmp_path):
    from torchvision import tv_tensors

    options = {"batch_adapter": lambda batch: {**batch, "image": tv_tensors.Image(batch["image"])}}
    watching, _ = validated(tmp_path, module(**UNSEEING), options=options)
    assert {type(x) for one in watching.core.reader.sample.samples for x in one.tensors.values()} == {torch.Tensor}


class Tokenizer:
    def convert_ids_to_tokens(self, ids):
        return [f"word{i}" for i in ids]


@pytest.fixture
def text():
    config = {"model_type": "bert", "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2}
    sizes = {"num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 12}
    torch.manual_seed(0)
    return TextClassifier(3, {**config, **sizes}, schedule="constant")


def texts(samples=12):
    generator = torch.Generator().manual_seed(0)
    length = torch.randint(4, 11, (samples, 1), generator=generator)
    mask = (torch.arange(10) < length).long()
    ids = torch.randint(1, 50, (samples, 10), generator=generator) * mask
    rationale = (torch.arange(10) < 2).long().expand(samples, 10)
    return {"input_ids": ids, "attention_mask": mask, "label": torch.arange(samples) % 3, "rationale": rationale}


@pytest.mark.parametrize("place", ["words", None])
def test_a_tokenizer_of_another_name_is_found_or_asked_for_once(place, text, tmp_path):
    if place:
        setattr(text, place, Tokenizer())
    watching = monitor(on_error="raise")
    with messages() as lines:
        trainer(tmp_path, watching).fit(text, loader(texts()), loader(texts()))
    asked = sum("RelevanceMonitor names tokens by their ids, and does not test" in line for line in lines)
    assert asked == (place is None)
    page = next(watching.folder.glob("highlights/epoch_0001_*.html")).read_text()
    assert ("word" in page) == (place is not None)


def test_texts_are_scored_against_rationales_and_highlighted(text, tmp_path):
    watching = monitor(on_error="raise", tokenizer=Tokenizer())
    runner = trainer(tmp_path, watching)
    runner.fit(text, loader(texts()), loader(texts()))
    assert "relevance/label/energy_pointing_game" in runner.callback_metrics
    page = next(watching.folder.glob("highlights/epoch_0001_*.html")).read_text()
    ids = texts()["input_ids"][watching.scored[0].sample.sample_id]
    assert f"word{ids[0]}" in page
    assert "word0" not in page  # padding
    inputs = {name: texts()[name] for name in ("input_ids", "attention_mask")}
    reference = attribute(text.eval(), inputs, texts()["label"]).scores.detach().double()
    for one in watching.scored:
        torch.testing.assert_close(one.maps["label"], reference[one.sample.sample_id], rtol=0, atol=1e-6)


def test_a_model_made_in_setup_is_found(tmp_path):
    pl_module, watching = module(), monitor(model="net", on_error="raise")
    net = pl_module.net
    del pl_module.net
    pl_module.setup = lambda stage: setattr(pl_module, "net", net)
    runner = trainer(tmp_path, watching)
    runner.fit(pl_module, loader(), loader())
    assert "relevance/label/energy_pointing_game" in runner.callback_metrics
