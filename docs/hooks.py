"""What MkDocs alone does not do for this site: pages from outside of docs/, and notebooks with their stored outputs.

Links are written for people who read the files in the repository; here they are turned into those of the site.
"""

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "experiments/LOG.md", "experiments/*/README.md", "experiments/**/*.png")
"""Files of the repository that the site has beside docs/, at their own paths."""

LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures from outside of docs/, and a page for each notebook."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            uri = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook_page(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between files of the site."""
    folder_of_page = posixpath.dirname(page.file.src_uri)
    if page.file.src_uri.startswith(("experiments/", "CHANGELOG", "reference/api/")):
        page.meta["search"] = {"boost": 0.5}  # people who search ask how to do something
    outside = (ROOT / page.file.src_uri).is_file() and page.file.generated_by is not None
    folder = folder_of_page if outside else posixpath.join("docs", folder_of_page)

    def on_site(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        path = posixpath.normpath(posixpath.join(folder, target))
        if "://" in target or not (ROOT / path).exists():
            return match[0]
        uri = path.removeprefix("docs/")
        if uri.endswith(".ipynb"):
            uri = uri.removesuffix(".ipynb") + ".md"
        return f"]({posixpath.relpath(uri, folder_of_page or '.')}{anchor})"

    return LINK.sub(on_site, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Write the index of the search as a script, too: a page that is opened from a folder cannot fetch anything."""
    index = Path(config.site_dir) / "search" / "search_index.json"
    index.with_suffix(".js").write_text(f"var __index = {index.read_text(encoding='utf-8')}", encoding="utf-8")


def notebook_page(path: Path) -> str:
    """The Markdown of a notebook: its cells, and below each what was printed and drawn when it was last run."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed = "".join(printed_text(cell["outputs"]))
        if printed.strip():
            parts.append(f"```text\n{printed.rstrip()}\n```")
        parts.extend(drawn(cell["outputs"]))
    return "\n\n".join(parts) + "\n"


def printed_text(outputs: list[dict[str, Any]]) -> Iterator[str]:
    """What a cell printed, and the texts of values that have no richer form."""
    for output in outputs:
        if output["output_type"] == "stream":
            yield re.sub(r"\x1b\[[0-9;]*m", "", "".join(output["text"]))
        elif not {"image/png", "text/html"} & set(output.get("data", {})):
            yield "".join(output["data"].get("text/plain", ""))


def drawn(outputs: list[dict[str, Any]]) -> Iterator[str]:
    """Pictures and HTML of a cell."""
    for output in outputs:
        data = output.get("data", {})
        if "image/png" in data:
            png = "".join(data["image/png"]).replace("\n", "")
            yield f'<img alt="what the cell draws" src="data:image/png;base64,{png}">'
        elif "text/html" in data:
            # A blank line would end the HTML block of Markdown.
            yield "<div>" + re.sub(r"\n\s*\n", "\n", "".join(data["text/html"])) + "</div>"
