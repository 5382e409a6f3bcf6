"""docs/exactness.md: what each driver did to the count, on each kernel, as the guests noted it.

python3 -m tests.vm.exactness        after `make test-vm`, to write the page
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.vm.config import CHECKOUT

IN_GUEST = "/run/exactness.jsonl"
KEPT = CHECKOUT / "build" / "exactness"
PAGE = CHECKOUT / "docs" / "exactness.md"

HEAD = """# Exactness

Written by `make exactness` from runs of the tests in QEMU guests with Debian's stock kernels. One row is one
operation of one workload. *Drift* is how many more requests, and bytes, `/sys/block/*/stat` counted than were
traced ("not kept": the kernel has no such count; flushes have no bytes). *Losses* are completions without
an issue, missed completions, requests that could not be remembered and program runs that the kernel skipped.
The tests fail unless all are 0 in every row.

"""
COLUMNS = (
    "kernel",
    "driver",
    "op",
    "requests",
    "bytes",
    "errors",
    "partial",
    "requeued",
    "drift",
    "byte drift",
    "losses",
)


def keep(kernel: str, file: str, rows: bytes) -> None:
    """Keep what one guest noted; a file without rows leaves none behind."""
    path = KEPT / f"{kernel}-{file}.jsonl"
    path.unlink(missing_ok=True)
    if rows:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rows)


def render(rows: list[dict[str, Any]]) -> str:
    """The page."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        cells = ("not kept" if row[name] is None else str(row[name]) for name in COLUMNS)
        lines.append("| " + " | ".join(cells) + " |")
    total = sum(row["requests"] for row in rows)
    return HEAD + f"{total:,} requests in {len(rows)} rows.\n\n" + "\n".join(lines) + "\n"


def load(folder: Path) -> list[dict[str, Any]]:
    """Every row kept, by kernel and driver."""
    rows = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted(rows, key=lambda row: (row["kernel"], row["driver"], row["op"]))


def main() -> int:
    rows = load(KEPT)
    if not rows:
        print("nothing was kept: run make test-vm first", file=sys.stderr)
        return 1
    PAGE.write_text(render(rows))
    print(f"{PAGE.name}: {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
