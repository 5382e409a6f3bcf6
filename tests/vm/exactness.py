"""Write docs/exactness.md: each driver's counts and drift on each kernel, as noted by the guests.

python3 -m tests.vm.exactness        after `make test-vm`, to write the page
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.vm.config import CHECKOUT

GUEST_ROWS_PATH = "/run/exactness.jsonl"
ROWS_FOLDER = CHECKOUT / "build" / "exactness"
PAGE = CHECKOUT / "docs" / "exactness.md"

HEAD = """# Exactness

This page compares opwatch's counts with the kernel's own statistics. `make exactness` writes it from test
runs in QEMU guests with Debian's stock kernels. Each row is one operation of one workload.

- *drift* and *byte drift*: how many more requests and bytes `/sys/block/*/stat` counted than opwatch
  traced. "not kept" means that the kernel has no such count. Flushes have no bytes.
- *losses*: completions without an issue, missed completions, requests that could not be remembered, and
  program runs that the kernel skipped.
- *between*: opwatch is read every 0.2 s while the workload runs. The cell has the number of readings with
  unexplained requests or bytes, and the number of all readings. "-" means that the test reads only at the
  end. The kernel counts a request shortly after its completion is traced; a reading at that moment waits
  for it.

The tests fail unless drift, losses and *between* are 0 in every row. On kernels that skip program runs
([support matrix](support-matrix.md), 7.3), and with bpftrace, they fail if more requests are missing than
the kernel counted as skipped.

"""
TAIL = """
## Kernels that skip BPF programs while PID 1 is current

Some virtual machines run a kernel that skips every BPF program while a thread of process 1 is current. The
kernel counts these skips nowhere (`skipped by kernel` stays 0). If a completion interrupts PID 1, opwatch
does not see it, so the drift against the kernel's count is above 0. None of the kernels in the tables above
does this.

opwatch detects this when it starts. A small BPF program counts the switches from PID 1 to other tasks, and
`/proc/1/task/*/status` has the kernel's number. `opwatch doctor` prints the result. On such a kernel opwatch
reports requests that started or completed unseen once, in one line with this cause. They do not raise an
alarm, because the kernel's count gives their exact number. Whether each of them met PID 1 cannot be
measured. What PID 1 cannot explain stays UNEXPLAINED: requests that the kernel did not count, and
completions with a time stamp before their issue.

Only PID 1 is affected: during 10 s of load on such a kernel (6.18) the programs saw every other task at
each of its switches, and PID 1's threads at none. In ten runs of 3 s with fio on a loop device there
(randrw, 4 KiB, depth 8), opwatch missed 16 of 92,464 requests in one run, 8 of 62,032 in another, and none
in the other eight (10,400 to 74,717 requests). The number depends on what PID 1 does. No setting on such a
machine helps.
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
    "between",
)
TIMES_HEAD = """## Latency of requests that take more than one attempt

Latency is the time from a request's first issue to its last completion. It includes requeues, timeouts and
partial completions, and the request counts with its whole size. The kernel's mean (iostat's await) starts a
little earlier, when the request is allocated. It is rounded because the kernel reports whole milliseconds
summed over all requests. *In flight* is the number of requests that had not completed when the workload
ended.
"""
TIMES_COLUMNS = (
    "kernel",
    "driver",
    "op",
    "requests",
    "bytes",
    "partial",
    "requeued",
    "in flight",
    "mean ms",
    "max ms",
    "kernel's mean ms",
)
# Text for a cell without a value.
_ABSENT = dict.fromkeys(("between", "mean ms", "max ms", "kernel's mean ms"), "-")


def store_rows(kernel: str, file: str, rows: bytes) -> None:
    """Store the rows that one guest noted; without rows, remove the file of an earlier run."""
    path = ROWS_FOLDER / f"{kernel}-{file}.jsonl"
    path.unlink(missing_ok=True)
    if rows:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rows)


def _format_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        lines.append("| " + " | ".join(_format_cell(name, row.get(name)) for name in columns) + " |")
    return lines


def _format_cell(name: str, value: object) -> str:
    return _ABSENT.get(name, "not kept") if value is None else str(value)


def render_page(rows: list[dict[str, Any]]) -> str:
    """Return the text of the page."""
    lines = _format_table(COLUMNS, rows)
    timed = [row | row["times"] for row in rows if row.get("times")]
    if timed:
        lines += ["", TIMES_HEAD, *_format_table(TIMES_COLUMNS, timed)]
    total = sum(row["requests"] for row in rows)
    return HEAD + f"{total:,} requests in {len(rows)} rows.\n\n" + "\n".join(lines) + "\n"


def _make_sort_key(kernel: str) -> list[int]:
    """Return a sort key that puts 5.10 before 6.1, and 6.1 before 6.12."""
    return [int(digits) for digits in re.findall(r"\d+", kernel)]


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Return every stored row, sorted by kernel, driver and operation."""
    rows = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted(
        rows, key=lambda row: (_make_sort_key(row["kernel"]), row["kernel"], row["driver"], row["op"])
    )


def main() -> int:
    rows = read_rows(ROWS_FOLDER)
    if not rows:
        print("nothing was kept: run make test-vm first", file=sys.stderr)
        return 1
    PAGE.write_text(render_page(rows) + TAIL)
    print(f"{PAGE.name}: {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
