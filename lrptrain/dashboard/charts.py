"""The script that draws the charts: Vega-Lite with all that it needs, made once."""

import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache

from lrptrain.extras import require

# vl-convert holds Python's lock for the two seconds that it takes: within the process of a server, nothing else would
# be answered meanwhile. Modules are not looked for in the folder in which the user stands.
_MAKE = """
import sys
sys.path.pop(0)
import vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle().encode())
"""
_making = threading.Lock()


def prepare_charts() -> None:
    """Begin to make the script, so that it is there when `charts` is called."""
    threading.Thread(target=_prepare, daemon=True).start()


def _prepare() -> None:
    with suppress(ImportError):  # which `charts` raises for whoever asks for them
        charts()


def charts() -> str:
    """Return the script; the first call takes seconds.

    Raises:
        ImportError: If vl-convert is not installed.
    """
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
