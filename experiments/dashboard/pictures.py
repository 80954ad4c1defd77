"""The README's pictures of the page, from the runs of `lrptrain demo`.

.venv/bin/lrptrain demo
.venv/bin/python -m experiments.dashboard.pictures runs/demo
"""

import argparse
from pathlib import Path

from tests.dashboard.browsing import Visit, chromium, served

ROOT = Path(__file__).resolve().parents[2]

SIZE = {"width": 1280, "height": 820}
TARGET = ROOT / "experiments" / "demo"


def main() -> None:
    """Write `experiments/demo/dashboard.png` and `dashboard_findings.png`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder that `lrptrain demo` has written")
    runs = parser.parse_args().runs
    with chromium() as browser, served(runs) as address:
        visit = Visit(browser, address, viewport=SIZE, color_scheme="light")
        visit.page.locator(".chart svg").nth(3).wait_for()
        visit.page.screenshot(path=TARGET / "dashboard.png")
        visit.view("findings", wait=".worst canvas >> nth=4").wait_for_timeout(500)
        visit.page.screenshot(path=TARGET / "dashboard_findings.png")
    for name in ("dashboard.png", "dashboard_findings.png"):
        print(f"{TARGET / name}: {(TARGET / name).stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
