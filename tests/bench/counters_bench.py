"""`make bench-counters`: the cost of reading firmware counters, for docs/method-waf.md. Needs root."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction

from opwatch.collectors.firmware.counting import CounterPoller
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.drive import life
from opwatch.drive.spec import physical_bytes
from opwatch.host.device import Devices
from tests.section import Section

from .figure import Figure, choose_exit_status, choose_size, format_table
from .figures import OPWATCH, describe_machine

SECTION = Section("method-waf.md", "cost")
SIZE = 64 << 20
ROUNDS, DRIVES, POLLS = choose_size((15, 24, 200), (1, 2, 2))


@contextmanager
def create_drive(name: str) -> Iterator[str]:
    config = {"user_bytes": SIZE, "physical_bytes": physical_bytes(SIZE, Fraction(10, 100))}
    record = life.create_drive(life.DriveSpec(name, config, no_data=True))
    try:
        yield record.device
    finally:
        life.destroy_drive(name)


def time_process(devices: list[str]) -> float:
    """Return the median duration in seconds of `opwatch counters` for these devices, from start to exit."""
    argv = [*OPWATCH, "counters", "--json", *(word for node in devices for word in ("--dev", node))]
    taken = []
    for _ in range(ROUNDS):
        begin = time.monotonic()
        subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
        taken.append(time.monotonic() - begin)
    return statistics.median(taken)


def time_interpreter() -> float:
    """Return the median duration of an idle Python interpreter, the part of the time that is not ours."""
    taken = []
    for _ in range(ROUNDS):
        begin = time.monotonic()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        taken.append(time.monotonic() - begin)
    return statistics.median(taken)


def time_poll(node: str) -> float:
    """Return the CPU seconds of one poll of all pages, in a running process."""
    devices = Devices()
    counting = CounterPoller(devices, devices.resolve(node).disk, load_catalogue([]))
    counting.poll_counters()
    begin = time.process_time()
    for _ in range(POLLS):
        counting.poll_counters()
    used = (time.process_time() - begin) / POLLS
    counting.close()
    return used


def main() -> int:
    with ExitStack() as stack:
        nodes = [stack.enter_context(create_drive(f"bench-count-{n}")) for n in range(DRIVES)]
        measured = [
            Figure("opwatch counters of one drive", time_process(nodes[:1]) * 1000, 150, "ms, whole process"),
            Figure(
                f"opwatch counters of {DRIVES} drives", time_process(nodes) * 1000, 1000, "ms, whole process"
            ),
            Figure("one poll of all pages", time_poll(nodes[0]) * 1000, 10, "ms of CPU time"),
        ]
        empty = time_interpreter() * 1000
    lines = [
        f"Measured by `make bench-counters` on {describe_machine()}, simulated drives, medians of {ROUNDS}; "
        f"an idle Python interpreter takes {empty:.0f} ms.",
        "",
        *format_table(measured),
    ]
    print("\n".join(lines))
    SECTION.write_body("\n".join(lines))
    return choose_exit_status(holds=all(figure.is_within_bound for figure in measured))


if __name__ == "__main__":
    sys.exit(main())
