"""Measure the report page of a synthetic day of four disks, with and without owners.

Prints the page's size and the time a browser takes to open the page.

    python -m tests.bench.recording_bench.report_page [SECONDS | RECORDING]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from opwatch.errors import Unsupported
from opwatch.tools.cli import main as opwatch
from opwatch.tools.pictures.browser import find_browser
from tests.bench.recording_bench.__main__ import write_day
from tests.bench.recording_bench.synthetic_day import DAY_S
from tests.unit.report.page_layout import inspect_page

MAX_BYTES = 5_000_000
MAX_OPEN_S = 2.0
_SEED = 20261122


def _time_layout(page: Path) -> float | None:
    """Return the seconds a browser takes to lay out the page, or None without a browser."""
    try:
        chromium = find_browser()
    except Unsupported as error:
        print(f"the page did not open: {error}")
        return None
    # The best of three: the first run also reads the files from disk.
    return min(inspect_page(chromium, page, 1280).seconds for _ in range(3))


def check_recording(recording: Path, what: str) -> bool:
    """Make a recording's page; print its size and opening time, and return whether both meet their bounds."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "day.html"
        begun = time.monotonic()
        if opwatch(["report", str(recording), "-o", str(page), "-q"]):
            return False
        spent, size = time.monotonic() - begun, page.stat().st_size
        print(f"{what}: a page of {size} bytes, bound {MAX_BYTES}, made in {spent:.1f} s", flush=True)
        seconds = _time_layout(page)
    if seconds is not None:
        print(f"opened in {seconds:.2f} s, bound {MAX_OPEN_S:g} s", flush=True)
    return size <= MAX_BYTES and (seconds or 0.0) <= MAX_OPEN_S


def check_synthetic(seconds: int, *, owned: bool) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.opw"
        write_day(path, seconds, _SEED, owned=owned)
        print(f"a recording of {path.stat().st_size} bytes", flush=True)
        return check_recording(path, f"{seconds} s {'with' if owned else 'without'} owners")


def main() -> int:
    given = sys.argv[1] if sys.argv[1:] else str(DAY_S)
    if not given.isdecimal():
        return int(not check_recording(Path(given), given))
    verdicts = [check_synthetic(int(given), owned=owned) for owned in (False, True)]
    return int(not all(verdicts))


if __name__ == "__main__":
    sys.exit(main())
