"""The page is for everybody: axe finds nothing in any view, and words explain themselves."""

from axe_playwright_python.sync_playwright import Axe
from browsing import Visit

from lrptrain.loggers import read_samples

IMAGES, TEXTS = "relevance/run", "relevance/texts"
VIEWS = {
    "runs": ("", ".chart svg"),
    "findings": (IMAGES, ".worst canvas"),
    "samples": (TEXTS, "figure.text"),
}


def violations(page):
    broken_rules = Axe().run(page).response["violations"]
    return [(rule["id"], [node["html"][:200] for node in rule["nodes"][:3]]) for rule in broken_rules]


def test_axe_finds_nothing(browser, recorded, address):
    wide = {"width": 1440, "height": 900}
    visit = Visit(browser, address, viewport=wide, color_scheme="light")
    sample_id = read_samples(recorded / IMAGES, 2)["sample_id"][0]
    # The page behind an opened sample is inert: that is a view of its own.
    opened = ("samples", IMAGES, "dialog .strip canvas", {"sample": sample_id})
    for name, run, wait, fields in (*((name, *place, {}) for name, place in VIEWS.items()), opened):
        page = visit.view(name, run, wait, **fields)
        assert violations(page) == [], name
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size({"width": 390, "height": 900})
        page.wait_for_selector(wait)
        if name in ("findings", "samples"):  # which have every colour; a run of axe takes a second
            assert violations(page) == [], (name, "narrow and dark")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(wide)
    visit.page.close()


def test_words_explain_themselves_by_keyboard_and_touch(browser, address):
    visit = Visit(browser, address, viewport={"width": 390, "height": 800}, has_touch=True)
    page = visit.view("findings", IMAGES, "article.finding")
    explanation = page.locator("#explanation")
    page.locator("button.term", has_text="effect").first.focus()
    page.keyboard.press("Enter")
    assert "A sample takes the cue" in explanation.inner_text()
    page.keyboard.press("Escape")
    assert not explanation.is_visible()
    page.locator("button.term", has_text="area").first.tap()
    assert "the share of the image" in explanation.inner_text().lower()
    box = explanation.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert visit.complaints == []
    page.close()
