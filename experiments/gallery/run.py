"""Make the gallery of the documentation: its pictures and its page. See README.md.

.venv/bin/python -m experiments.gallery.run
"""

import re
from pathlib import Path

from PIL import Image

from experiments.command import no_options
from experiments.gallery.exhibits import exhibits
from experiments.records import made_on, save

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
RESULTS = HERE / "results" / "exhibits.json"
HEAD = """# Gallery

**What a finding looks like: the prediction, the same sample with a swapped cue, and both after the fix.** In maps,
red speaks for the class and blue against it. Annotations are outlined or underlined. The models are small and see
photographs at 48 x 48 pixels ([how the gallery is made](../experiments/gallery/README.md)).
"""


def main() -> None:
    no_options(__doc__)
    folder = DOCS / "gallery"
    folder.mkdir(exist_ok=True)
    made_on()  # asked before there are pictures, which are a change of the files at this commit
    parts, section = [HEAD], ""
    captions = {}
    for exhibit in exhibits():
        captions[exhibit.name] = exhibit.caption
        Image.fromarray(exhibit.picture).save(folder / f"{exhibit.name}.webp", quality=88, method=6)
        if exhibit.section != section:
            section = exhibit.section
            parts.append(f"## {section}\n")
        parts.append(f"![{short(exhibit.caption)}](gallery/{exhibit.name}.webp)\n\n*{exhibit.caption}*\n")
        print(exhibit.name, exhibit.caption, flush=True)
    for path in folder.glob("*.webp"):
        if path.stem not in captions:  # of an exhibit that went
            path.unlink()
    (DOCS / "gallery.md").write_text("\n".join(parts), encoding="utf-8")
    save(RESULTS, {"exhibits": captions}, indent=1)


def short(caption: str) -> str:
    """The beginning of a caption, which stands below the picture as a whole."""
    return re.split(r"[.:;(?]", caption)[0].strip().replace("`", "")


if __name__ == "__main__":
    main()
