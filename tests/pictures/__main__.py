"""Draw the pictures of README, tour, dashboards and experiments from new runs, and every page for inspection.

    python -m tests.pictures [RECORDING]

The documents' pictures go to docs/pictures, all pictures to build/pictures. A given RECORDING is drawn
instead of a new run.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from opwatch.errors import OpwatchError
from opwatch.tools import cli
from opwatch.tools.pictures.browser import Browser, find_browser

from .boards import draw_boards
from .experiments import draw_experiments
from .run import record_run
from .screen import draw_screen, read_past

ROOT = Path(__file__).parents[2]
KEPT, ALL = ROOT / "docs" / "pictures", ROOT / "build" / "pictures"
# Columns and rows of the terminals, from the minimum to a wide terminal.
_SCREENS = {"dashboard-80": (80, 24), "dashboard": (120, 36), "dashboard-250": (250, 60)}
_WIDTHS = (1280, 390)
_PAGE_HEIGHT = 4800
# The pictures in README and in the tour, by file name.
_KEPT = {
    "dashboard.png": ALL / "dashboard.png",
    "latency.png": ALL / "plots" / "{disk}-latency-of-write.png",
    "requests.png": ALL / "plots" / "{disk}-requests.png",
}


def _draw_page(chromium: Browser, recording: Path) -> None:
    page = ALL / "page.html"
    page.unlink(missing_ok=True)
    _run_opwatch("report", str(recording), "-o", str(page))
    for width in _WIDTHS:
        chromium.write_picture(page, ALL / f"page-{width}.png", width, _PAGE_HEIGHT)
    plots = ALL / "plots"
    shutil.rmtree(plots, ignore_errors=True)
    _run_opwatch("report", str(recording), "--png", str(plots))


def _run_opwatch(*words: str) -> None:
    if status := cli.main([*words, "-q"]):
        raise OpwatchError(f"opwatch {' '.join(words)} exited with status {status}")


def main() -> int:
    chromium = find_browser()
    ALL.mkdir(parents=True, exist_ok=True)
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="opwatch-") as folder:
        recording = Path(sys.argv[1]) if len(sys.argv) > 1 else record_run(Path(folder))
        past = read_past(recording)
        for name, (columns, rows) in _SCREENS.items():
            asyncio.run(draw_screen(chromium, past, ALL / f"{name}.png", columns, rows))
        _draw_page(chromium, recording)
        disk = next(iter(past.disks.values())).name
    for name, picture in _KEPT.items():
        shutil.copy(str(picture).format(disk=disk), KEPT / name)
    draw_boards(chromium, ALL, KEPT)
    draw_experiments(_run_opwatch, ALL, KEPT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
