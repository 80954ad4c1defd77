"""The page itself: one template, for the server and for the report; its scripts, its style and its charts."""

import json
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from importlib.resources import files

from lrptrain.extras import require
from lrptrain.render.colors import to_palette

SCRIPTS = (
    "elements address redraw controls typeahead source charts explain maps cards notes dialog verdict runtable runs "
    "proof findings filters histogram confusion plots compare export samples app"
)
"""In the order in which they are loaded."""
STYLES = ("page", "explore", "proof")
# vl-convert holds Python's lock for the two seconds that it takes: within the process of a server, nothing else would
# be answered meanwhile. Modules are not looked for in the folder in which the user stands.
_MAKE = """
import sys
sys.path.pop(0)
import vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle().encode())
"""
_making = threading.Lock()


def page(data: str | None = None) -> str:
    """The page as HTML."""
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


def prepare_charts() -> None:
    """Begin to make the script of the charts, so that it is there when `charts` is called."""
    threading.Thread(target=_prepare, daemon=True).start()


def _prepare() -> None:
    with suppress(ImportError):  # which `charts` raises for whoever asks for them
        charts()


def charts() -> str:
    """Return the script that draws the charts, Vega-Lite with all that it needs; the first call takes seconds."""
    with _making:  # once, however many ask
        return _charts()


@cache
def _charts() -> str:
    vl_convert = require("vl_convert", "dashboard")
    script = _make_beside() or vl_convert.javascript_bundle()
    # In a report the script stands within <script>, which its own text must not end.
    return script.replace("</script", "<\\/script")


def _make_beside() -> str:
    """Return the script, made by another process; "" where there can be none, as where Python is part of a program."""
    try:
        command = [sys.executable or "python", "-c", _MAKE]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
    except (OSError, subprocess.SubprocessError):
        return ""
