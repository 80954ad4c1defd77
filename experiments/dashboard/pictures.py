"""The README's pictures of the page, from the runs of `lrptrain demo`.

.venv/bin/lrptrain demo
.venv/bin/python -m experiments.dashboard.pictures runs/demo
"""

import sys
from pathlib import Path

from tests.dashboard.browsing import Visit, chromium, served

ROOT = Path(__file__).resolve().parents[2]

SIZE = {"width": 1280, "height": 820}
TARGET = ROOT / "experiments" / "demo"


def main(runs: str) -> None:
    """Write `experiments/demo/dashboard.png` and `dashboard_findings.png`."""
    with chromium() as browser, served(Path(runs)) as address:
        visit = Visit(browser, address, viewport=SIZE, color_scheme="light")
        visit.page.locator(".chart svg").nth(3).wait_for()
        visit.page.screenshot(path=TARGET / "dashboard.png")
        visit.view("findings", wait=".worst canvas >> nth=4").wait_for_timeout(500)
        visit.page.screenshot(path=TARGET / "dashboard_findings.png")
    for name in ("dashboard.png", "dashboard_findings.png"):
        print(f"{TARGET / name}: {(TARGET / name).stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
