"""The font of what is written on pictures."""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lrptrain.extras import require

_FILE = "mpl-data/fonts/ttf/DejaVuSans.ttf"
"""What matplotlib brings has Greek, Cyrillic, Arabic and accents; pillow's own font has none of them."""


@lru_cache(maxsize=16)
def font_of(size: int) -> Any:
    """Return a font of pillow, of a height in pixels."""
    fonts = require("PIL.ImageFont", "monitor")
    found = find_spec("matplotlib")
    folders = () if found is None else (found.submodule_search_locations or ())
    file = next((path for folder in folders if (path := Path(folder) / _FILE).is_file()), None)
    return fonts.load_default(size=size) if file is None else fonts.truetype(str(file), size)
