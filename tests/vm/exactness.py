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

IN_GUEST = "/run/exactness.jsonl"
KEPT = CHECKOUT / "build" / "exactness"
PAGE = CHECKOUT / "docs" / "exactness.md"

HEAD = """# Exactness

Written by `make exactness` from runs of the tests in QEMU guests with Debian's stock kernels. One row is one
operation of one workload. *Drift* is how many more requests, and bytes, `/sys/block/*/stat` counted than were
traced ("not kept": the kernel has no such count; flushes have no bytes). *Losses* are completions without
an issue, missed completions, requests that could not be remembered and program runs that the kernel skipped.
*Between*: of the readings that were taken every 0.2 s while the workload ran, those up to which anything was
unexplained ("-": not looked at). The kernel counts a request a moment after its end is traced: a reading in
that moment waits for the kernel. The tests fail unless all are 0 in every row. Where
[the support matrix](support-matrix.md) says that a kernel skips runs of programs (7.3), and with bpftrace,
they fail if more is missing than it counted as skipped.

"""
TAIL = """
## Kernels that run no programs while PID 1 is current

Some virtual machines have a kernel that skips every BPF program while a thread of process 1 is current, and
counts that nowhere (`skipped by kernel` stays 0). A request whose end interrupts PID 1 is completed unseen,
so the drift against the kernel's own count is above 0.

opwatch finds out when it starts: a small program counts the switches from PID 1 to other tasks, and
`/proc/1/task/*/status` says how many there were. `opwatch doctor` prints the result. On such a kernel
every request that began or ended unseen is reported once, in one line with this cause, and is no alarm:
its number is exact by the kernel's count. Whether each of them met PID 1 cannot be measured. What PID 1
cannot explain stays UNEXPLAINED: requests that the kernel did not count, and completions stamped before
their issue. Only PID 1 is concerned: on such a kernel (6.18) in 10 s of load every other task was seen at
each of its switches, and all threads of PID 1 at none.

Ten runs of 3 s with fio on a loop device there (randrw, 4 KiB, depth 8) missed 16 of 92,464, 8 of 62,032
and none of the other eight (10,400 to 74,717). How many depends on what PID 1 does. Nothing that can be
changed on such a machine helps. The kernels of the table show nothing of it.
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
TIMES_HEAD = """## Times of requests that take more than one attempt

Latency is from a request's first issue to its last completion: requeues, timeouts and completions in parts
are in it, and its size is that of the whole request. The kernel's mean (iostat's await) begins a little
earlier, when the request is allocated, and is rounded to whole milliseconds of all requests together.
*In flight* are requests that had not completed when the workload ended.
"""
TIMES = (
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


def keep(kernel: str, file: str, rows: bytes) -> None:
    """Store the rows that one guest noted; without rows, remove the file of an earlier run."""
    path = KEPT / f"{kernel}-{file}.jsonl"
    path.unlink(missing_ok=True)
    if rows:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rows)


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        lines.append("| " + " | ".join(_cell(name, row.get(name)) for name in columns) + " |")
    return lines


def _cell(name: str, value: object) -> str:
    return _ABSENT.get(name, "not kept") if value is None else str(value)


def render(rows: list[dict[str, Any]]) -> str:
    """Return the text of the page."""
    lines = _table(COLUMNS, rows)
    timed = [row | row["times"] for row in rows if row.get("times")]
    if timed:
        lines += ["", TIMES_HEAD, *_table(TIMES, timed)]
    total = sum(row["requests"] for row in rows)
    return HEAD + f"{total:,} requests in {len(rows)} rows.\n\n" + "\n".join(lines) + "\n"


def _numbers(kernel: str) -> list[int]:
    """Return a sort key that puts 5.10 before 6.1, and 6.1 before 6.12."""
    return [int(digits) for digits in re.findall(r"\d+", kernel)]


def load(folder: Path) -> list[dict[str, Any]]:
    """Return every stored row, sorted by kernel, driver and operation."""
    rows = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted(rows, key=lambda row: (_numbers(row["kernel"]), row["kernel"], row["driver"], row["op"]))


def main() -> int:
    rows = load(KEPT)
    if not rows:
        print("nothing was kept: run make test-vm first", file=sys.stderr)
        return 1
    PAGE.write_text(render(rows) + TAIL)
    print(f"{PAGE.name}: {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
