"""A made-up day of four disks, a sample a second, as a page: how large it is, and how long a browser takes to
open it.

    python -m tests.bench.recording_bench.report_page [SECONDS | RECORDING]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from opwatch.errors import Unsupported
from opwatch.tools.cli import main as opwatch
from opwatch.tools.pictures.browser import browser
from tests.bench.recording_bench.__main__ import write
from tests.bench.recording_bench.made_up_day import DAY_S
from tests.unit.report.looked_at import looked_at

MOST_BYTES = 5_000_000
MOST_OPEN_S = 2.0
_SEED = 20261122


def _opened(page: Path) -> float | None:
    """Seconds until a browser has laid out a page; None where there is none."""
    try:
        chromium = browser()
    except Unsupported as error:
        print(f"not opened: {error}")
        return None
    # What it has read before is what a second look finds in memory.
    return min(looked_at(chromium, page, 1280).seconds for _ in range(3))


def main() -> int:
    given = sys.argv[1] if sys.argv[1:] else str(DAY_S)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.opw" if given.isdecimal() else Path(given)
        if given.isdecimal():
            write(path, int(given), _SEED)
        page = Path(folder) / "day.html"
        begun = time.monotonic()
        if status := opwatch(["report", str(path), "-o", str(page), "-q"]):
            return status
        spent, size = time.monotonic() - begun, page.stat().st_size
        print(f"{given}: a page of {size} bytes, bound {MOST_BYTES}, made in {spent:.1f} s")
        seconds = _opened(page)
        if seconds is not None:
            print(f"opened in {seconds:.2f} s, bound {MOST_OPEN_S:g} s")
    return int(size > MOST_BYTES or (seconds or 0.0) > MOST_OPEN_S)


if __name__ == "__main__":
    sys.exit(main())
