"""The page in a real browser."""

import base64
import io
import re
import shutil
from itertools import pairwise

import numpy as np
import pytest
from browsing import Visit, served
from PIL import Image
from shown import MARKUP

from lrptrain.dashboard.report import write_html_report
from lrptrain.loggers import EpochRecord, read_class_maps, read_samples, write_record
from lrptrain.loggers.inputs import input_path
from lrptrain.render import beside
from lrptrain.render.colors import NEGATIVE, POSITIVE

IMAGES, TEXTS = "relevance/run", "relevance/texts"


@pytest.fixture(scope="module")
def file(recorded, tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "report.html"
    write_html_report(recorded, path)
    return path.as_uri()


# The served page on a phone is looked at in test_accessible.
@pytest.mark.parametrize(("where", "width"), [("address", 1280), ("file", 400)])
def test_every_view_opens_and_nothing_leaves_the_machine(browser, request, where, width):
    address = request.getfixturevalue(where)
    size = {"viewport": {"width": width, "height": 900}}
    visit = Visit(browser, address, **size, color_scheme="dark" if width == 400 else "light")
    visit.page.wait_for_selector("#runs tbody tr:nth-child(2)")
    visit.page.locator(".chart svg").nth(3).wait_for(timeout=60_000)
    visit.view("findings", IMAGES, ".worst canvas")
    visit.view("findings", TEXTS)
    visit.view("samples", IMAGES, "figure.sample canvas")
    visit.view("samples", TEXTS, "figure.text")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.complaints == []
    assert all(url.startswith((address, "data:", "blob:")) for url in visit.asked)
    visit.page.close()


def test_filters_leave_what_they_should(visit, recorded):
    rows = read_samples(recorded / IMAGES, 2)
    page = visit.view("samples", IMAGES, "#count")
    focus = np.array(rows["label_energy_pointing_game"])
    label, predicted = np.array(rows["label"]), np.array(rows["predicted"])
    visit.leaves(24)
    page.select_option("#gallery-label", "cat")
    visit.leaves((label == "cat").sum())
    page.select_option("#right", "wrong")
    visit.leaves(((label == "cat") & (predicted != "cat")).sum())
    page.select_option("#gallery-label", "")
    page.select_option("#right", "")
    page.select_option("#gallery-group", "1")
    visit.leaves(sum(group == 1 for group in rows["group"]))
    page.select_option("#gallery-group", "")
    page.select_option("#score-filter", "label_energy_pointing_game")
    page.fill("#gallery-from", "0.3")
    visit.leaves((focus >= 0.3).sum())
    page.fill("#gallery-from", "")
    page.fill("#search", "7")
    visit.leaves(sum("7" in str(i) for i in rows["sample_id"]))
    page.fill("#search", "nothing")
    assert "No sample is left" in page.inner_text("main")
    page.fill("#search", "")
    page.select_option("#sort", "-label_energy_pointing_game")
    page.locator(f".gallery > :first-child:has-text('#{rows['sample_id'][int(focus.argmax())]}')").wait_for()
    captions = " ".join(page.locator("figcaption").all_inner_texts())
    shares = [float(share) for share in re.findall(r"([\d.]+) % on annotation", captions)]
    assert shares == sorted(shares, reverse=True)
    np.testing.assert_allclose(shares, sorted(100 * focus, reverse=True), atol=0.51)
    assert visit.complaints == []


def test_the_share_on_the_annotation_is_that_of_the_map_that_is_shown(visit, recorded):
    rows = read_samples(recorded / IMAGES, 2)
    row = int(
        np.argmax(np.abs(np.subtract(rows["label_energy_pointing_game"], rows["predicted_energy_pointing_game"])))
    )
    visit.view("samples", IMAGES, "#count")
    visit.page.fill("#search", str(rows["sample_id"][row]))
    caption = visit.page.locator("figcaption").filter(has_text=re.compile(f"#{rows['sample_id'][row]}$"))
    captions = {}
    for target in ("label", "predicted"):
        visit.page.select_option("#gallery-target", target)
        share = rows[f"{target}_energy_pointing_game"][row]
        captions[target] = f"{100 * share:.0f} % on annotation"
        caption.filter(has_text=captions[target]).wait_for()
    assert captions["label"] != captions["predicted"]
    visit.page.select_option("#gallery-target", "class cat")  # whose maps have no such share
    caption.filter(has_not_text="on it").wait_for()
    assert visit.complaints == []


def canvas_of(page):
    return pixels_of(page.locator("dialog .large canvas"))


def pixels_of(canvas):
    url = canvas.evaluate("canvas => canvas.toDataURL()")
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))).convert("RGB")).astype(int)
    return halves(pixels) if pixels.shape[1] > 160 else pixels


def halves(pair):
    """The image and its map, without the gap between them."""
    assert pair.shape == (160, 2 * 160 + 8, 3)
    return np.concatenate([pair[:, :160], pair[:, 168:]], axis=1)


def pixels_and_mask(folder, sample_id):
    image = np.asarray(Image.open(input_path(folder, sample_id, ".webp"))).transpose(2, 0, 1) / 255
    return image, np.asarray(Image.open(input_path(folder, sample_id, ".mask.webp")).convert("L")) > 191


def drawn(image, heat, mask, peak=None):
    pair = beside(image, np.array(heat).reshape(4, 4), mask, peak=peak, mean=[0] * 3, std=[1] * 3)
    return halves(pair).astype(int)


def open_sample(visit, sample_id):
    page = visit.view("samples", IMAGES, "#count")
    page.fill("#search", str(sample_id))
    page.locator(".gallery button.open").filter(has_text=re.compile(f"#{sample_id}$")).click()
    page.wait_for_selector("dialog .strip figure:nth-child(3) canvas")
    assert page.input_value("dialog #sample-scale") == "common"
    page.select_option("dialog #sample-scale", "own")
    return page


def test_the_overlay_is_the_one_that_is_drawn_elsewhere(visit, recorded):
    folder = recorded / IMAGES
    rows = read_samples(folder, 2)
    row = next(i for i, label in enumerate(rows["label"]) if label != rows["predicted"][i])
    sample_id = rows["sample_id"][row]
    image, mask = pixels_and_mask(folder, sample_id)
    page = open_sample(visit, sample_id)
    assert page.locator("dialog .strip").first.locator("figure").count() == 3
    for target in ("predicted", "label"):
        page.select_option("dialog #sample-target", target)
        page.wait_for_timeout(100)
        pixels = canvas_of(page)
        assert np.abs(pixels - drawn(image, rows[f"map_{target}"][row], mask)).mean() < 1
    page.uncheck("dialog #sample-mask")
    page.wait_for_timeout(100)
    assert np.abs(canvas_of(page) - drawn(image, rows["map_label"][row], None)).max() <= 6
    bare = (image * 255).transpose(1, 2, 0).repeat(10, 0).repeat(10, 1)
    assert np.abs(canvas_of(page)[:, :160] - bare).max() <= 1
    page.fill("dialog #sample-opacity", "0")
    page.wait_for_timeout(100)
    assert np.ptp(canvas_of(page)[:, 160:], axis=-1).max() == 0  # no colour is left
    page.uncheck("dialog #sample-heat")
    page.wait_for_timeout(100)
    assert canvas_of(page).shape == (160, 160, 3)
    assert np.abs(canvas_of(page) - bare).max() <= 1
    assert visit.complaints == []


def test_the_scale_is_shared_and_the_weak_is_hidden_on_demand(visit, recorded):
    folder = recorded / IMAGES
    sample_id = read_samples(folder, 2)["sample_id"][0]
    by_epoch = [read_samples(folder, epoch) for epoch in range(3)]
    heats = [np.array(rows["map_label"][rows["sample_id"].index(sample_id)]) for rows in by_epoch]
    image, _ = pixels_and_mask(folder, sample_id)
    page = open_sample(visit, sample_id)
    bar = page.locator("dialog .scale-bar").evaluate("bar => getComputedStyle(bar).backgroundImage")
    assert [f"rgba({', '.join(map(str, color))}, 0.75)" in bar for color in (NEGATIVE, POSITIVE)] == [True, True]
    page.uncheck("dialog #sample-mask")
    page.select_option("dialog #sample-scale", "common")
    page.wait_for_timeout(200)
    peak = max(float(np.abs(heat).max()) for heat in heats)
    weakest = int(np.argmin([np.abs(heat).max() for heat in heats]))
    pixels = pixels_of(page.locator("dialog .strip canvas").nth(weakest))
    assert np.abs(pixels - drawn(image, heats[weakest], None, peak)).max() <= 6
    assert np.abs(pixels - drawn(image, heats[weakest], None)).max() > 6
    page.select_option("dialog #sample-scale", "own")
    page.fill("dialog #sample-threshold", "0.5")
    page.wait_for_timeout(200)
    expected = drawn(image, heats[2], None)[:, 160:]
    left = canvas_of(page)[:, 160:]
    is_grey = np.ptp(left, axis=-1) == 0
    assert 0 < is_grey.mean() < 1
    assert np.abs(left - expected)[~is_grey].max() <= 6
    assert visit.complaints == []


def test_the_overlay_of_any_class_can_be_chosen(visit, recorded):
    folder = recorded / IMAGES
    rows = read_class_maps(folder, 2)
    assert len(rows["class"]) == 2 * 3  # samples drawn, classes
    mine = [i for i, sample_id in enumerate(rows["sample_id"]) if sample_id == rows["sample_id"][0]]
    image, _ = pixels_and_mask(folder, rows["sample_id"][0])
    page = open_sample(visit, rows["sample_id"][0])
    options = page.locator("dialog #sample-target option").all_inner_texts()
    assert set(options[2:]) == {"class cat", "class <b>dog</b>", "class ünït"}
    page.uncheck("dialog #sample-mask")
    pictures = []
    for i in mine:
        page.select_option("dialog #sample-target", f"class {rows['class'][i]}")
        page.wait_for_timeout(100)
        pictures.append(canvas_of(page))
        assert np.abs(pictures[-1] - drawn(image, rows["map_class"][i], None)).max() <= 6
    # What speaks for one of a few classes speaks against another; two of three may well have the same map.
    assert any(np.abs(picture - other).max() > 20 for picture, other in pairwise(pictures))
    page.wait_for_selector("dialog .strip figure:nth-child(3) canvas")
    page.keyboard.press("Escape")
    page.fill("#search", "")
    page.select_option("#gallery-target", "class cat")
    visit.leaves(24)
    page.locator(".gallery .lacking", has_text="no map of class cat").nth(21).wait_for()
    assert page.locator(".gallery .lacking").count() == 22
    page.select_option("#gallery-target", "predicted")
    page.locator(".gallery .lacking").first.wait_for(state="detached")
    assert visit.complaints == []


def test_markup_in_names_and_texts_is_text(visit):
    page = visit.view("samples", TEXTS, "figure.text")
    assert MARKUP in page.inner_text("main")
    page = visit.view("samples", IMAGES, "figure.sample canvas")
    assert "<b>dog</b>" in page.inner_text("main")
    assert page.locator("main script").count() == page.locator("figcaption b b").count() == 0
    assert visit.complaints == []


def test_words_stand_out_from_special_tokens_wherever_a_text_is_shown(visit):
    page = visit.view("samples", TEXTS, "figure.text")
    colors = page.evaluate(
        """() => {
            const slot = document.createElement("div");
            slot.className = "slot";
            slot.append(document.querySelector("figure.text").cloneNode(true));
            const tokens = slot.querySelector(".tokens");
            const special = document.createElement("span");
            special.className = "special";
            tokens.append(special);
            document.querySelector("main").append(slot);
            return [tokens, special].map((element) => getComputedStyle(element).color);
        }"""
    )
    assert colors[0] != colors[1]


def test_a_run_that_goes_on_is_followed(browser, recorded, tmp_path):
    folder = tmp_path / "live"
    shutil.copytree(recorded / IMAGES, folder)
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(lines[0] + lines[1][:40])
    with served(tmp_path) as address:
        visit = Visit(browser, address)
        visit.page.wait_for_selector("#findings")  # of a run that is alone
        cell = "#runs tbody td[data-title=epoch]"
        visit.view("runs", wait=cell)
        assert visit.page.inner_text(cell) == "0"
        (folder / "events.jsonl").write_bytes(b"".join(lines))
        visit.page.locator(cell).filter(has_text="2").wait_for(timeout=15_000)
        assert visit.complaints == []
        visit.page.close()


def test_damage_is_noted_and_the_rest_is_shown(browser, runs):
    folder = runs / "run"
    with (folder / "events.jsonl").open("ab") as events:
        events.write(b"\x00\x00\nno line of ours\n")
    last = sorted((folder / "samples").iterdir())[-1]
    last.write_bytes(last.read_bytes()[:100])
    (folder / "run.json").write_text("{")
    input_path(folder, "0", ".webp").write_bytes(b"no image")
    input_path(folder, "1", ".webp").unlink()
    Image.new("CMYK", (9, 7)).save(input_path(folder, "2", ".webp"), format="JPEG")
    with served(runs) as address:
        visit = Visit(browser, address)
        visit.page.wait_for_selector("#runs tbody tr")
        page = visit.view("findings", "run", "article.finding")
        assert "2 of 5 lines of events.jsonl" in page.inner_text(".notes")
        page = visit.view("samples", "run", "figure.sample canvas")
        assert "cannot be read" in page.inner_text(".notes")
        visit.leaves(24)
        assert "Traceback" not in page.content()
        visit.view("findings", "run", "article.finding")
        assert [complaint for complaint in visit.complaints if "Failed to load resource" not in complaint] == []
        visit.page.close()


@pytest.mark.parametrize("samples", [1, 10_000])
def test_one_sample_and_ten_thousand(browser, tmp_path, samples):
    rows: dict[str, list] = {
        "sample_id": list(range(samples)),
        "label": ["a"] * samples,
        "predicted": ["a"] * samples,
        "map_label": [[1.0, 0.0, 0.5, 0.0]] * samples,
    }
    write_record(tmp_path / "run", EpochRecord(0, 0, samples=rows))
    with served(tmp_path) as address:
        visit = Visit(browser, address)
        page = visit.view("samples", "run", "figure.sample canvas")
        visit.leaves(samples)
        if samples > 1:
            page.fill("#search", "9999")
            visit.leaves(1)
        visit.view("findings", "run", ".empty")
        visit.view("runs", "", "#runs")
        assert visit.complaints == []
        visit.page.close()
