"""Take the pictures in docs/ of the report and of the live view of a finished run.

    python scripts/pictures.py outputs/demo [--into docs/images]

Needs Chromium (`requirements/browser.sh`) and a font with Chinese characters. All pictures are
taken anew, so that they show one run, drawn by the present code.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from chromium import Chromium  # noqa: E402
from PIL import Image  # noqa: E402

from veriloop.pipeline.report.write import write_report  # noqa: E402
from veriloop.pipeline.watch.server import Watch  # noqa: E402

WIDTH, HEIGHT = 1320, 860
COLOURS = 64
SETTLE_S = 2.0  # plots are drawn when they come into view


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="the folder of a finished run of all stages")
    parser.add_argument("--into", type=Path, default=ROOT / "docs/images", help="their folder")
    options = parser.parse_args(words)
    options.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Chromium(width=WIDTH, height=HEIGHT) as browser:
        write_report(options.run, into=Path(folder))
        report = (Path(folder) / "report.html").as_uri()
        take(browser, report, "", options.into / "report-outcome.png")
        take(browser, report, "#health", options.into / "report-health.png")
        take(browser, f"{report}#stage=zero", "#curves", options.into / "report-curves.png")
        take(
            browser,
            f"{report}#stage=zero&step=4",
            "#rollouts",
            options.into / "report-rollouts.png",
        )
        with Watch(options.run, port=0) as watch:
            take(
                browser, f"{watch.url}#stage=zero", "", options.into / "watch.png", ready="#curves"
            )
    return 0


def take(
    browser: Chromium, address: str, section: str, picture: Path, *, ready: str = "#outcome"
) -> None:
    """Write what is in view with `section` at the top, once `ready` exists and plots are drawn."""
    browser.open("about:blank")  # an address that differs by its fragment alone loads nothing
    browser.open(address)
    browser.until(f"document.querySelector('{ready}') !== null")
    if section:
        browser.value(f"document.querySelector('{section}').scrollIntoView()")
    time.sleep(SETTLE_S)
    browser.screenshot(picture)
    with Image.open(picture) as image:
        palette = image.convert("RGB").quantize(COLOURS)  # a third of the bytes
    palette.save(picture, optimize=True)
    print(picture)


if __name__ == "__main__":
    sys.exit(main())
