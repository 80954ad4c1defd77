"""The Markdown of this package's tables and sentences as HTML, for a notebook."""

import html
import re

_STYLE = "font:14px/1.45 system-ui,sans-serif;color:#111;background:#fff;padding:8px"
_CELL = "padding:3px 10px;border-bottom:1px solid #ddd;text-align:left;white-space:nowrap"


def markdown_html(text: str) -> str:
    """Return tables, lists and paragraphs, parted by empty lines, as a block of HTML; all text in it is escaped."""
    blocks = "".join(_block(block) for block in text.strip().split("\n\n"))
    return f'<div style="{_STYLE}">{blocks}</div>'


def _block(block: str) -> str:
    lines = block.splitlines()
    if block.startswith("| "):
        head, _, *rows = lines  # the second line is of dashes
        body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
        table = f"<tr>{_cells(head, 'th')}</tr>{body}"
        return (
            f'<div style="overflow-x:auto"><table style="border-collapse:collapse;font:inherit">{table}</table></div>'
        )
    if all(line.startswith("- ") for line in lines):
        return f"<ul>{''.join(f'<li>{_inline(line[2:])}</li>' for line in lines)}</ul>"
    return f"<p>{_inline(' '.join(lines))}</p>"


def _cells(line: str, tag: str) -> str:
    # A bar within a cell is escaped.
    cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return "".join(f'<{tag} style="{_CELL}">{_inline(cell.strip())}</{tag}>' for cell in cells)


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text.replace("\\|", "|"), quote=False))
