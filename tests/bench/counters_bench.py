"""`make bench-counters`: the cost of reading firmware counters, for docs/method-waf.md. Needs root."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction

from opwatch.collectors.firmware.counting import Counting
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.drive import life
from opwatch.drive.spec import physical_bytes
from opwatch.host.device import Devices
from tests.section import Section

from .figure import Figure, exit_status, sized, table
from .figures import OPWATCH, machine

SECTION = Section("method-waf.md", "cost")
SIZE = 64 << 20
ROUNDS, DRIVES, POLLS = sized((15, 24, 200), (1, 2, 2))


@contextmanager
def a_drive(name: str) -> Iterator[str]:
    config = {"user_bytes": SIZE, "physical_bytes": physical_bytes(SIZE, Fraction(10, 100))}
    record = life.create(life.Wanted(name, config, no_data=True))
    try:
        yield record.device
    finally:
        life.destroy(name)


def whole_process(devices: list[str]) -> float:
    """Return the median duration in seconds of `opwatch counters` for these devices, from start to exit."""
    argv = [*OPWATCH, "counters", "--json", *(word for node in devices for word in ("--dev", node))]
    taken = []
    for _ in range(ROUNDS):
        begin = time.monotonic()
        subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
        taken.append(time.monotonic() - begin)
    return statistics.median(taken)


def interpreter() -> float:
    """Return the median duration of an idle Python interpreter, the part of the time that is not ours."""
    taken = []
    for _ in range(ROUNDS):
        begin = time.monotonic()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        taken.append(time.monotonic() - begin)
    return statistics.median(taken)


def one_poll(node: str) -> float:
    """Return the CPU seconds of one poll of all pages, in a running process."""
    devices = Devices()
    counting = Counting(devices, devices.resolve(node).disk, load_catalogue([]))
    counting.poll()
    begin = time.process_time()
    for _ in range(POLLS):
        counting.poll()
    used = (time.process_time() - begin) / POLLS
    counting.close()
    return used


def main() -> int:
    with ExitStack() as stack:
        nodes = [stack.enter_context(a_drive(f"bench-count-{n}")) for n in range(DRIVES)]
        measured = [
            Figure(
                "opwatch counters of one drive", whole_process(nodes[:1]) * 1000, 150, "ms, whole process"
            ),
            Figure(
                f"opwatch counters of {DRIVES} drives", whole_process(nodes) * 1000, 1000, "ms, whole process"
            ),
            Figure("one look at all pages", one_poll(nodes[0]) * 1000, 10, "ms of processor time"),
        ]
        empty = interpreter() * 1000
    lines = [
        f"Measured by `make bench-counters` on {machine()}, simulated drives, medians of {ROUNDS}; "
        f"a Python that does nothing takes {empty:.0f} ms.",
        "",
        *table(measured),
    ]
    print("\n".join(lines))
    SECTION.write("\n".join(lines))
    return exit_status(holds=all(figure.holds for figure in measured))


if __name__ == "__main__":
    sys.exit(main())
