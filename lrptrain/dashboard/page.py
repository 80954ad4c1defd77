"""The page itself: one template, for the server and for the report; its scripts, its style and its charts."""

import json
from functools import cache
from importlib.resources import files

from lrptrain.dashboard.charts import charts
from lrptrain.extras import require
from lrptrain.render.colors import to_palette

SCRIPTS = (
    "elements address redraw controls typeahead source charts explain maps cards notes dialog verdict runtable runs "
    "proof findings filters histogram confusion atlas plots compare export samples masks audit app"
)
"""In the order in which they are loaded."""
STYLES = ("page", "explore", "proof")


def page(data: str | None = None) -> str:
    """The page as HTML.

    Args:
        data: JSON of all that a report shows, which then holds everything else, too; None for the served page, which
            asks its server.
    """
    embedded = {} if data is None else {"style": style(), "script": script(), "charts": charts()}
    jinja = require("jinja2", "dashboard")
    folder = jinja.PackageLoader("lrptrain.dashboard")
    environment = jinja.Environment(loader=folder, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("page.html").render(data=data, **embedded)


@cache
def style() -> str:
    """The style sheet."""
    return "\n".join(_static(f"{name}.css") for name in STYLES)


@cache
def script() -> str:
    """All of the page's own scripts as one, and the colours of relevance."""
    # Joined, the scripts share one scope; the colours make the page's overlays those of `lrptrain.render`.
    parts = [
        f'"use strict";\nconst COLORS = {json.dumps(to_palette())};',
        *(_static(f"{name}.js") for name in SCRIPTS.split()),
    ]
    return "\n".join(parts)


def _static(name: str) -> str:
    return files("lrptrain.dashboard").joinpath("static", name).read_text(encoding="utf-8")
