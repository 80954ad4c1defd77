import json
import re
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from browsing import Visit, served
from masked import NAMES, ODD, export, exported
from PIL import Image
from starlette.testclient import TestClient

from lrptrain.dashboard.masks import MOST_SHOWN, mask_picture, read_masks
from lrptrain.dashboard.report import write_html_report
from lrptrain.dashboard.runs import about_run, find_exports, find_runs
from lrptrain.dashboard.server import HOST, app
from lrptrain.data.pictures import voc_palette
from lrptrain.files import write_json
from lrptrain.segmentation import export_files
from lrptrain.segmentation.export import score_export

OWN = "segmentation"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder whose run `run` has an export, and two of epochs."""
    root = tmp_path_factory.mktemp("masks")
    folder = export(root / "run" / OWN, epochs=(2, 10))
    export_files.merge_index(folder)
    write_json(folder / "scores.json", {"train": {"seeds": {"mean_iou": 0.25}, "masks": {"mean_iou": 0.5}}})
    return root


@pytest.fixture
def copied(whole, tmp_path):
    """One to damage."""
    return shutil.copytree(whole, tmp_path / "copied") / "run"


def test_a_run_with_an_export_is_found_and_so_is_the_export_alone(whole, tmp_path):
    assert list(find_runs(whole)) == ["run"]
    assert find_exports(whole / "run") == [OWN, f"{OWN}/epoch_10", f"{OWN}/epoch_2"]
    assert list(find_runs(whole / "run" / OWN)) == [OWN]
    assert find_exports(whole / "run" / OWN) == [".", "epoch_10", "epoch_2"]
    assert read_masks(whole / "run" / OWN)["rows"] == read_masks(whole / "run")["rows"]
    assert (about_run(whole / "run")["masks"] or 0) > 0
    assert about_run(whole / "run")["notes"] == []
    (tmp_path / "classes.json").write_text("[]")
    assert find_exports(tmp_path) == [] == list(find_runs(tmp_path))
    assert read_masks(tmp_path)["export"] is None


def test_an_export_is_read_page_by_page_as_it_was_written(whole):
    first, second = read_masks(whole / "run"), read_masks(whole / "run", page=99)
    assert (first["found"], first["pages"], first["page"], second["page"]) == (30, 2, 0, 1)
    assert [len(first["rows"]), len(second["rows"])] == [MOST_SHOWN, 6]
    written = export_files.read_index(whole / "run" / OWN)
    assert {row["name"] for row in first["rows"] + second["rows"]} == {entry.name for entry in written}
    assert [row["status"] for row in second["rows"]] == ["skipped"] * 6
    assert first["counts"]["status"] == {"done": 24, "skipped": 6}
    assert first["counts"]["reason"] == {"no positive relevance": 6}
    assert first["counts"]["split"] == {"train": 20, "val": 10}
    assert first["scores"] == {"train": {"seeds": 0.25, "mask": 0.5}}
    (odd,) = [row for row in first["rows"] if row["title"] == ODD]
    assert odd["pictures"] == ["image", "seeds", "refined", "mask", "truth"]
    assert first["notes"] == second["notes"] == []


def test_filters(whole):
    written = export_files.read_index(whole / "run" / OWN)
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"split": "val"}, lambda entry: entry.split == "val"),
        ({"of_class": "2"}, lambda entry: 2 in entry.classes),
        ({"status": "skipped", "split": "train"}, lambda entry: entry.status == "skipped" and entry.split == "train"),
        ({"of_class": "x"}, lambda entry: False),
    ]
    for asked, holds in cases:
        assert read_masks(whole / "run", **asked)["found"] == sum(map(holds, written)), asked


def test_colours_are_those_of_the_files(whole):
    classes = read_masks(whole / "run")["classes"]
    assert [each["name"] for each in classes] == NAMES
    palette = np.frombuffer(voc_palette(), dtype=np.uint8).reshape(256, 3)
    assert [each["color"] for each in classes] == [f"#{bytes(palette[1 + i]).hex()}" for i in range(3)]
    assert tuple(palette[255]) == (224, 224, 192)  # what masks.js takes for ignored


def test_a_half_written_export_shows_what_it_has(copied):
    folder = copied / OWN
    lines = (folder / "index.jsonl").read_text().splitlines(keepends=True)
    (folder / "index.0.jsonl").write_text("".join(lines[:7]) + lines[7][:25])
    (folder / "index.1.jsonl").write_text("null\n[]\n" + lines[9] + '{"name": 3, "status": "done"}\n')
    (folder / "index.jsonl").unlink()
    (folder / "classes.json").write_text("[")
    (folder / "scores.json").write_text('{"train": [1], "val": {"seeds": {"mean_iou": NaN}}}')
    masks = read_masks(copied)
    assert (masks["found"], masks["scores"]) == (8, {})
    assert [each["name"] for each in masks["classes"]] == ["class 0", "class 1", "class 2"]
    notes = " ".join(masks["notes"])
    for part in ("is being written", "1 of 8 lines of index.0.jsonl", "3 of 4 lines of index.1.jsonl", "classes.json"):
        assert part in notes
    assert about_run(copied)["masks"] == 0


def test_damaged_pictures_are_left_out_with_a_note(copied):
    name = read_masks(copied)["rows"][0]["name"]
    seeds = copied / OWN / export_files.SEEDS / f"{name}.png"
    seeds.write_bytes(seeds.read_bytes()[:-9])
    (copied / OWN / export_files.JPEG_IMAGES / f"{name}.jpg").write_text("<script>alert(1)</script>")
    (copied / OWN / export_files.REFINED / f"{name}.png").unlink()
    masks = read_masks(copied)
    assert not {"seeds", "image", "refined"} & set(masks["rows"][0]["pictures"])
    assert masks["notes"] == ["1 of the 24 images shown lack a mask, or have one that is damaged."]


def test_no_other_file_is_served(copied, tmp_path):
    secret, name = tmp_path / "secret.png", read_masks(copied)["rows"][0]["name"]
    folder = copied / OWN / export_files.MASKS
    shutil.copy(folder / f"{name}.png", secret)
    (folder / "link.png").symlink_to(secret)
    client = TestClient(app(copied.parent), base_url=f"http://{HOST}:8642")
    asked = {"run": "run", "export": OWN, "kind": "mask", "name": name}
    assert client.get("/mask", params=asked).headers["content-type"] == "image/png"
    assert client.get("/mask", params={**asked, "kind": "image"}).headers["content-type"] == "image/jpeg"
    assert len(client.get("/api/masks", params={"run": "run", "split": "val", "page": "x"}).json()["rows"]) == 10
    for other in (
        {"name": "../../../../secret"}, {"name": str(secret)[:-4]}, {"name": "link"}, {"name": "nul\0"}, {"name": ""},
        {"name": "..\\x"}, {"name": "x" * 5000}, {"kind": "maps"}, {"kind": "../.."}, {"export": ".."}, {"run": ".."},
        {"export": f"{OWN}/../{OWN}"}, {"export": "/"},
    ):  # fmt: skip
        assert client.get("/mask", params={**asked, **other}).status_code == 404, other
    assert mask_picture(copied, OWN, "mask", "link") is None


def test_the_report_has_the_first_page(whole, tmp_path):
    write_html_report(whole, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    data = json.loads(re.findall(r'<script id="data" type="application/json">(.*?)</script>', html, re.S)[0])["run"]
    assert len(data["masks"]["rows"]) == len(data["mask_pictures"]) == MOST_SHOWN
    pictures = next(iter(data["mask_pictures"].values()))
    assert pictures["image"].startswith("data:image/jpeg;base64,")
    assert pictures["mask"].startswith("data:image/png;base64,")


def test_masks_are_sorted_by_the_iou_of_each_image(tmp_path):
    folder = tmp_path / "segmentation"
    export_files.begin_export(folder, {"method": "raw_attention"}, NAMES)
    truth = torch.zeros(40, 60, dtype=torch.uint8)
    truth[10:30, 10:30] = 1
    for number, shift in enumerate((5, 0, 10)):
        seeds = truth.roll(shift, 1)
        ignoring = seeds.clone()
        ignoring[:, 40:] = 255  # what a pseudo-mask leaves open is not counted
        name = export_files.image_name(number, "val")
        pictures = {export_files.SEEDS: seeds, export_files.REFINED: seeds, export_files.MASKS: ignoring}
        pictures |= {export_files.JPEG_IMAGES: torch.zeros(3, 40, 60), export_files.TRUTH: truth}
        export_files.write_image_files(folder, export_files.Entry(name, "val", (0,), (40, 60)), pictures)
    export_files.write_image_files(folder, *exported("without", "val", 0))
    export_files.merge_index(folder)
    score_export(folder, classes=3)
    # A square of 20 x 20 that is shifted by s lies on the true one with (20 - s) x 20 pixels of 20 x (20 + s) in both;
    # of the background, which has 2400 - 400 pixels (of the pseudo-mask 1600 - 400), 20 s are missed on either side.
    for kind, pixels in (("seeds", 2000), ("mask", 1200)):
        rows = read_masks(tmp_path, sort=kind)["rows"]
        assert [row["name"] for row in rows] == ["val_000002", "val_000000", "val_000001", "without"]
        for row, shift in zip(rows, (10, 5, 0), strict=False):
            expected = ((20 - shift) / (20 + shift) + (pixels - 20 * shift) / (pixels + 20 * shift)) / 2
            assert row["iou"][kind] == pytest.approx(expected, abs=1e-6)
        assert rows[-1]["iou"] == {}
        down = [row["name"] for row in read_masks(tmp_path, sort=f"-{kind}")["rows"]]
        assert down == ["val_000001", "val_000000", "val_000002", "without"]
    (folder / "image_scores.json").write_text('{"val_000002": 3, "val_000000": {"seeds": NaN, "masks": "x"}')
    assert any("image_scores.json" in note for note in read_masks(tmp_path)["notes"])
    (folder / "image_scores.json").write_text('{"val_000002": 3, "val_000000": {"seeds": NaN, "masks": "x"}}')
    assert [row["iou"] for row in read_masks(tmp_path, sort="mask")["rows"]] == [{}] * 4


def test_the_view_opens_and_filters(browser, whole):
    with served(whole) as address:
        visit = Visit(browser, address)
        page = visit.page
        page.wait_for_selector("#masks article canvas.coarse")  # the first view, where there is nothing else
        assert "24 of 30 images done, 6 skipped: 6 no positive relevance" in page.inner_text("#mask-counts")
        assert "seeds 25 %" in page.inner_text("#mask-counts")
        assert page.locator(".legend > span").all_inner_texts() == ["background", *NAMES, "ignored"]
        assert ODD in page.inner_text("#masks")
        assert page.locator("#masks b, #masks header img").count() == 0
        count = page.locator("#mask-count")
        for control, value, images in [
            ("split", "val", 10),
            ("class", "1", 0),
            ("split", "", 8),
            ("status", "skipped", 0),
        ]:
            page.select_option(f"#mask-{control}", value)
            count.filter(has_text=re.compile(f"^{images} images")).wait_for(timeout=10_000)
        page.select_option("#mask-class", "")
        count.filter(has_text=re.compile("^6 images")).wait_for()
        page.select_option("#mask-status", "")
        page.click("#masks-on")
        count.filter(has_text="page 2 of 2").wait_for()
        page.select_option("#mask-export", f"{OWN}/epoch_2")
        page.locator(".notes", has_text="is being written").wait_for()
        assert visit.complaints == []
        assert all(url.startswith((address, "data:", "blob:")) for url in visit.asked)
        page.close()


@pytest.mark.parametrize("width", [1280, 400])
def test_a_report_paints_the_masks(browser, whole, tmp_path, width):
    write_html_report(whole, tmp_path / "report.html")
    visit = Visit(browser, (tmp_path / "report.html").as_uri(), viewport={"width": width, "height": 900})
    canvas = visit.view("masks", "run", "article figure:nth-child(4) canvas.coarse").locator("article canvas").nth(2)
    pixels = canvas.evaluate("own => [...own.getContext('2d').getImageData(0, 0, own.width, own.height).data]")
    values = np.array(pixels).reshape(40, 60, 4)
    row = read_masks(whole / "run")["rows"][0]
    mask = np.asarray(Image.open(whole / "run" / OWN / export_files.MASKS / f"{row['name']}.png"))
    assert (values[mask == 0, 3] == 0).all()
    ignored = values[mask == 255]
    assert (np.ptp(ignored[:, :3], axis=1) == 0).all()
    assert len(np.unique(ignored)) == 3  # two greys, opaque
    color = read_masks(whole / "run")["classes"][row["classes"][0]]["color"]
    assert (values[(mask > 0) & (mask < 255), :3] == list(bytes.fromhex(color[1:]))).all()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.complaints == []
    visit.page.close()
