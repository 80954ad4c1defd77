"""Relevance as it is shown: in a notebook, in a terminal, in files, and when nobody asked."""

import base64
import copy
import io
import json
import pickle
import re
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import lrptrain
from lrptrain.relevance import Relevance
from lrptrain.relevance.shown import showing
from lrptrain.relevance.shown.explained_batch import ExplainedBatch
from lrptrain.render import beside, view
from lrptrain.render.text import WIDTH, token_picture


def images(count=2, size=32):
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def map_of(inputs, scores, grid, logits=((0.0, 2.0, 1.0),), target=1, names=None, padding=None, problem=None):
    count = len(scores)
    logits = torch.tensor(logits).expand(count, -1)
    batch = None if inputs is None else ExplainedBatch(inputs, padding, names, problem)
    return Relevance(scores, logits, torch.full((count,), target), "rollout", grid, batch=batch)


def of_images(inputs, **changes):
    scores = torch.linspace(-1, 2, 16).expand(len(inputs), -1)
    return map_of(inputs, scores, (4, 4), **changes)


def pictures_in(page):
    encoded = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(each)))) for each in encoded]


def test_an_image_stands_beside_its_map_as_long_as_it_is_there():
    pixels = images()
    relevance = of_images(pixels)
    expected = [beside(each, torch.linspace(-1, 2, 16).reshape(4, 4)) for each in pixels]
    for picture, pair in zip(pictures_in(relevance._repr_html_()), expected, strict=True):
        np.testing.assert_array_equal(picture, pair)
    same_pixels = pixels.clone()
    del pixels
    page = relevance._repr_html_()
    assert "The images are gone" in page
    assert pictures_in(page)[0].shape == (160, 160, 3)  # the map alone
    relevance.show(same_pixels)
    assert relevance.batch is not None
    assert relevance.batch.tensor is None


def test_images_that_were_changed_meanwhile_are_not_shown():
    pixels = images()
    relevance = of_images(pixels)
    pixels += 1
    assert "The images are gone" in relevance._repr_html_()


def test_other_inputs_than_those_explained_are_refused():
    pixels = images()
    relevance = of_images(pixels)
    for other in (pixels[:1], images(size=64), pixels[0]):
        with pytest.raises(ValueError, match="not what was explained"):
            relevance.show(other)
    with pytest.raises(ValueError, match="2 names for 3 logits"):
        relevance.show(pixels, class_names=["a", "b"])


def test_titles_say_what_is_explained_and_how_probable_it_is():
    pixels = images(1)
    probability = np.exp(1) / (1 + np.exp(2) + np.exp(1))
    best = np.exp(2) / (1 + np.exp(2) + np.exp(1))
    classes = "single_label_classification"
    text = of_images(pixels, target=2, names={0: "cat", 1: "<b>", 2: "dog"}, problem=classes)._repr_html_()
    wanted = f"target &#x27;dog&#x27;, p = {probability:.2f}, predicted &#x27;&lt;b&gt;&#x27;, p = {best:.2f} (rollout)"
    assert wanted in text
    assert "<b>" not in text
    assert "target class 1, p = 0.67 (rollout)" in of_images(pixels, problem=classes)._repr_html_()
    # An output that is probabilities already is not squashed once more; a single number is no probability.
    assert "target class 1, p = 0.90 (" in of_images(pixels, logits=((0.05, 0.9, 0.05),))._repr_html_()
    logits = ((2.0, -1.5, 0.5),)  # they sum to 1, and are no probabilities
    assert "target class 0, p = 0.80 (" in of_images(pixels, logits=logits, target=0, problem=classes)._repr_html_()
    assert "output 3.5 (rollout)" in of_images(pixels, logits=((3.5,),), target=0)._repr_html_()


def test_several_labels_have_a_probability_each_and_numbers_have_none(capsys):
    pixels = images(1)
    logits = ((3.0, 2.0, -1.0),)
    sigmoid = 1 / (1 + np.exp(-2.0))
    several = of_images(pixels, logits=logits, problem="multi_label_classification")
    several.show()
    assert capsys.readouterr().out.startswith(f"target class 1, p = {sigmoid:.2f} (rollout)\n")
    of_images(pixels, logits=logits).show(multi_label=True)
    assert capsys.readouterr().out.startswith(f"target class 1, p = {sigmoid:.2f} (rollout)\n")
    several.show(multi_label=False)
    assert ", predicted class 0, p = 0.7" in capsys.readouterr().out
    of_images(pixels, logits=((-2.0,),), target=0).show(multi_label=True)
    assert capsys.readouterr().out.startswith(f"target class 0, p = {1 - sigmoid:.2f} (rollout)\n")
    of_images(pixels, logits=logits, problem="regression").show()
    assert capsys.readouterr().out.startswith("target class 1, output 2 (rollout)\n")


def test_names_of_other_numbers_than_those_of_the_logits_are_not_shown(capsys):
    pixels = images(1)
    of_images(pixels, names={1: "cat", 2: "dog", 3: "cow"}).show()
    assert capsys.readouterr().out.startswith("target class 1, logit 2.00 (rollout)\n")


def test_no_probability_is_made_up_for_a_model_that_may_have_learnt_by_either_loss(capsys):
    relevance = of_images(images(1), target=2)
    assert "target class 2, logit 1.00, largest class 1, logit 2.00 (rollout)" in relevance._repr_html_()
    relevance.show(multi_label=False, class_names={0: "cat", 1: "cow", 2: "dog"})
    softmax = np.exp(1) / (1 + np.exp(2) + np.exp(1))
    assert capsys.readouterr().out.startswith(f"target 'dog', p = {softmax:.2f}, predicted 'cow', p = 0.67 (")


@pytest.mark.parametrize("count", [0, -1, 2.5, "3"])
def test_a_number_of_samples_that_shows_nothing_is_refused(count, tmp_path):
    relevance = of_images(images())
    with pytest.raises(ValueError, match="from 1 on"):
        relevance.show(max_samples=count)
    with pytest.raises(ValueError, match="from 1 on"):
        relevance.save(tmp_path / "map.html", max_samples=count)


def test_images_come_as_a_list_and_what_is_no_tensor_is_refused_in_a_line():
    pixels = images()
    relevance = of_images(pixels)
    relevance.show(list(pixels))
    for other in ({"image": pixels}, "cat.png", [object()]):
        with pytest.raises(TypeError, match=f"inputs of type {type(other).__name__}.* make no tensor: pass the images"):
            relevance.show(other)
    with pytest.raises(ValueError, match="inputs of type list of Tensor make no tensor"):
        relevance.show([pixels[0], pixels[0][:, :8]])
    with pytest.raises(ValueError, match="'abc' is one text"):
        relevance.show(class_names="abc")


def test_the_configuration_says_what_the_outputs_mean():
    torch.manual_seed(0)
    model = Pooled().eval()
    model.config.problem_type = "multi_label_classification"
    relevance = lrptrain.attribute(model, images(), 2, "input_x_gradient")
    assert f"p = {float(relevance.logits[0, 2].sigmoid()):.2f} (" in relevance._repr_html_()
    assert "predicted" not in relevance._repr_html_()


def test_a_map_of_zeros_and_one_of_1e_9_say_so():
    pixels = images(1)
    assert "no relevance: the map is 0 everywhere" in map_of(pixels, torch.zeros(1, 16), (4, 4))._repr_html_()
    page = map_of(pixels, torch.full((1, 16), 1.5e-9), (4, 4))._repr_html_()
    assert "+1.5e-09 for the class" in page
    assert "against" not in page


class Names:
    def convert_ids_to_tokens(self, ids):
        return [["[CLS]", "un", "##watch", "##able", "<b>", "[SEP]", "[PAD]"][number] for number in ids]


def of_text(ids=(0, 1, 2, 3, 4, 5, 6), padding=(1, 1, 1, 1, 1, 1, 0)):
    scores = torch.tensor([[90.0, 1.0, 2.0, -0.5, -1.25, 3.0, 0.0]])
    return map_of(torch.tensor([ids]), scores, None, padding=torch.tensor([padding]))


def test_a_text_has_its_words(capsys):
    relevance = of_text()
    relevance.show(tokenizer=Names())
    printed = capsys.readouterr().out
    assert "[CLS] unwatchable <b> [SEP]\n" in printed  # without padding
    assert "unwatchable +1.00" in printed
    assert "\x1b" not in printed
    relevance.show()
    assert "show(tokenizer=...) names the tokens" in capsys.readouterr().out
    with pytest.raises(TypeError, match="lacks"):
        relevance.show(tokenizer=object())

    class Shorter:
        def id_to_token(self, number):
            return ["[CLS]", "un"][number] if number < 2 else None

    with pytest.raises(ValueError, match="has no token 2: pass the one"):
        relevance.show(tokenizer=Shorter())
    nothing = map_of(torch.tensor([[0, 1, 5]]), torch.zeros(1, 3), None)
    assert "no relevance on any word" in showing.views_html(showing.views(nothing, tokenizer=Names()))


def test_a_tokenizer_knows_its_special_tokens(capsys):
    class Special(Names):
        all_special_ids = (0, 4, 5)
        unk_token_id = 4

    of_text().show(tokenizer=Special())
    printed = capsys.readouterr().out
    assert "Not scored: [CLS], [SEP], with" in printed
    assert "<b> " in printed.split("strongest")[1]


def test_a_buffer_that_is_filled_anew_does_not_change_a_text():
    ids = torch.tensor([[0, 1, 2, 3, 4, 5, 6]])
    relevance = map_of(ids, torch.ones(1, 7), None)
    ids.zero_()
    assert relevance.batch is not None
    assert relevance.batch.token_ids is not None
    assert relevance.batch.token_ids.tolist() == [[0, 1, 2, 3, 4, 5, 6]]


def test_files(tmp_path):
    pixels = images()
    relevance = of_images(pixels)
    relevance.save(tmp_path / "map.png")
    with Image.open(tmp_path / "map.png") as picture:
        assert picture.width >= 2 * 160 + 8
        assert picture.height > 2 * 160
    relevance.save(str(tmp_path / "map.html"))
    assert len(pictures_in((tmp_path / "map.html").read_text())) == 2
    with pytest.raises(ValueError, match=r"'map\.pdf': relevance is saved as \.png, \.html or \.json"):
        relevance.save(tmp_path / "map.pdf")
    of_text().save(tmp_path / "text.html", tokenizer=Names())
    page = (tmp_path / "text.html").read_text(encoding="utf-8")
    assert ">unwatchable</span>" in page
    assert "&lt;b&gt;" in page


def test_a_text_is_a_picture_of_coloured_words(tmp_path):
    relevance = of_text()
    relevance.save(tmp_path / "text.png", tokenizer=Names())
    with Image.open(tmp_path / "text.png") as picture:
        pixels = np.asarray(picture).astype(int)
    redder = pixels[..., 0] - pixels[..., 2]
    assert (redder > 60).any(), "unwatchable, for the class"
    against = token_picture([" one", " other"], np.array([0.0, -1.0]))
    assert (against[..., 2].astype(int) - against[..., 0] > 60).any(), "blue is what speaks against it"
    assert picture.width >= WIDTH


def test_long_texts_are_broken_into_lines_within_the_picture(tmp_path):
    tokens = [f" word{i}" for i in range(200)]
    picture = token_picture(tokens, np.linspace(-1, 1, 200))
    short = token_picture(tokens[:5], np.linspace(-1, 1, 5))
    assert picture.shape[1] == short.shape[1] == WIDTH
    assert picture.shape[0] > 5 * short.shape[0]
    assert (picture[:, -4:] == 255).all()


def test_a_saved_text_says_what_its_colours_mean(tmp_path):
    relevance = of_text()
    relevance.save(tmp_path / "text.html", tokenizer=Names())
    page = (tmp_path / "text.html").read_text(encoding="utf-8")
    assert "for the class" in page
    assert page.count("linear-gradient") == 1


def width_of(path):
    with Image.open(path) as picture:
        return picture.width


def test_a_picture_is_as_wide_as_asked_for(tmp_path):
    pixels = images()
    widths = {}
    for width in (None, 400, 900):
        of_images(pixels).save(tmp_path / "image.png", pixels, width=width)
        of_text().save(tmp_path / "text.png", tokenizer=Names(), width=width)
        widths[width] = [width_of(tmp_path / f"{name}.png") for name in ("image", "text")]
    assert widths[400] == [408, 408]  # with a margin of four pixels
    assert widths[900] == [908, 908]
    of_images(pixels).save(tmp_path / "image.html", pixels, width=400)
    assert 'width="400"' in (tmp_path / "image.html").read_text(encoding="utf-8")
    for wrong in (20, 400.5, "400", 99_999):
        with pytest.raises(ValueError, match="has 320 to 4096 pixels"):
            of_images(pixels).save(tmp_path / "image.png", pixels, width=wrong)


def test_maps_are_numbers_in_json(tmp_path):
    relevance = of_text()
    relevance.save(tmp_path / "map.json", tokenizer=Names())
    plain = json.loads((tmp_path / "map.json").read_text())
    assert plain["method"] == relevance.method
    (sample,) = plain["samples"]
    assert sample["scores"] == relevance.scores[0].tolist()
    assert "unwatchable" in [word["text"] for word in sample["words"]]
    pixels = images()
    of_images(pixels).save(tmp_path / "image.json")
    assert json.loads((tmp_path / "image.json").read_text())["grid"] == [4, 4]


def test_a_hundred_samples_are_not_all_shown():
    pixels = images(100)
    relevance = of_images(pixels)
    page = relevance._repr_html_()
    assert len(pictures_in(page)) == 16
    assert "84 more samples: show(max_samples=100)" in page
    assert len(repr(relevance)) < 160
    assert repr(relevance).startswith("Relevance(100 x 16 tokens in a grid of 4 x 4, target=[1, 1, 1")


def test_videos_spectrograms_and_waveforms():
    video = torch.rand(1, 4, 3, 16, 16)
    (frames,) = pictures_in(map_of(video, torch.rand(1, 8), (2, 2, 2))._repr_html_())
    assert frames.shape == (2 * 160, 4 * 160 + 3 * 4, 3)  # above the maps
    channels_first = video.transpose(1, 2)
    (same,) = pictures_in(map_of(channels_first, torch.rand(1, 8), (2, 2, 2))._repr_html_())
    np.testing.assert_array_equal(same[:160], frames[:160])
    (strip,) = pictures_in(map_of(wave := torch.rand(1, 400), torch.rand(1, 5), None)._repr_html_())
    assert strip.shape == (96, 640, 3)
    assert len(wave) == 1
    table = torch.rand(1, 5)
    assert pictures_in(map_of(table, torch.rand(1, 5), None)._repr_html_()) == []  # a row of columns
    spectrogram = torch.rand(1, 16, 8)  # it may be [time, bins] or [bins, time]
    (alone,) = pictures_in(map_of(spectrogram, torch.rand(1, 8), (2, 4))._repr_html_())
    assert alone.shape == (80, 160, 3)
    (alone,) = pictures_in(map_of(None, torch.rand(1, 8), (2, 2, 2))._repr_html_())
    assert alone.shape[2] == 3


def test_channels_may_come_last():
    pixels = images(1)
    last = pixels.permute(0, 2, 3, 1)
    (picture,), (expected,) = (pictures_in(of_images(each)._repr_html_()) for each in (last, pixels))
    np.testing.assert_array_equal(picture, expected)


def test_copies_and_files_hold_no_images():
    pixels = images()
    relevance = of_images(pixels)
    for again in (copy.deepcopy(relevance), pickle.loads(pickle.dumps(relevance))):
        assert again.batch.tensor is None
        assert again.batch.shape == (2, 3, 32, 32)
        assert torch.equal(again.scores, relevance.scores)
    assert len(pickle.dumps(relevance)) < pixels.numel()


class Pooled(nn.Module):
    """A patch embedding and one attention block, the least that has tokens."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 8, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
        self.head = nn.Linear(8, 3)
        self.config = SimpleNamespace(label2id={"cat": 0, "LABEL_1": 1, "dog": 2})

    def forward(self, pixels):
        return self.head(self.block(self.embed(pixels).flatten(2).transpose(1, 2)).mean(1))


def test_attribute_brings_what_is_needed_and_training_through_maps_does_not():
    torch.manual_seed(0)
    model = Pooled().eval()
    pixels = images()
    relevance = lrptrain.attribute(model, pixels, 2, "input_x_gradient")
    assert relevance.batch is not None
    assert id(relevance.batch.tensor) == id(pixels)
    assert relevance.batch.class_names == {0: "cat", 2: "dog"}
    assert len(pictures_in(relevance._repr_html_())) == 2
    recording = lrptrain.record(model, pixels)
    assert recording.attribute(2, "input_x_gradient", create_graph=True).batch is None
    with torch.inference_mode():
        fixed = images()
    relevance = lrptrain.attribute(model, fixed, 2, "input_x_gradient")
    assert len(pictures_in(relevance._repr_html_())) == 2


def test_a_terminal_has_colours_unless_it_has_none(monkeypatch, capsys):
    pixels = images(1)
    relevance = of_images(pixels)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    relevance.show()
    lines = capsys.readouterr().out.splitlines()
    blocks = [line for line in lines if "\u2580" in line]
    assert {line.count("\u2580") for line in blocks} == {78}
    assert len(blocks) == 19  # 160 of 328 pixels of 78 columns, two to a character
    monkeypatch.setenv("NO_COLOR", "1")
    relevance.show()
    assert "\x1b" not in capsys.readouterr().out


def test_a_kernel_shows_html(monkeypatch, capsys):
    pixels = images(1)
    pages: list[Any] = []
    monkeypatch.setattr(view, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", pages.append)
    of_images(pixels).show()
    assert len(pictures_in(pages[0].data)) == 1
    assert capsys.readouterr().out == ""


class Missing:
    """Finds neither pillow nor matplotlib, as where they are not installed."""

    def find_spec(self, name, path=None, target=None):
        if name in ("PIL", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_png_needs_pillow_and_a_page_does_not(monkeypatch, tmp_path):
    pixels = images(1)
    relevance = of_images(pixels)
    for name in [name for name in sys.modules if name.split(".")[0] in ("PIL", "matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    relevance.show()
    relevance.save(tmp_path / "map.html")
    with pytest.raises(ImportError, match=r"lrptrain\[monitor\]") as caught:
        relevance.save(tmp_path / "map.png")
    assert "\n" not in str(caught.value)
