"""`python -m tests.bench.drive_bench`: the FTL's cost in the I/O path. Needs root.

Three servers run the same load in turns, so that other work on the machine affects all of them: one with the
FTL, and two that only pass the data through. The ratio of the two equal servers shows the machine's noise: a
bound that the equal servers miss too is undecided. CPU time per command depends less on other work.
"""

from __future__ import annotations

import statistics
import sys
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from opwatch.drive.spec import physical_bytes
from opwatch.host.loop import LoopDevice
from opwatch.host.process import run_tool
from opwatch.tools.acting.fio.fio import run_fio
from tests.kernel.support.guard import enter_own_namespace

from .figure import choose_exit_status, choose_size
from .figures import describe_machine
from .simulated_drive import create_drive

SIZE, ROUNDS, SECONDS = choose_size((1 << 30, 9, 2.0), (64 << 20, 1, 0.2))


class Load(NamedTuple):
    """A fio load, and the lowest accepted share of the pass-through server's IOPS."""

    options: tuple[str, ...]
    bound: float


LOADS = {
    "4 KiB random write, QD 32": Load(("--rw=randwrite", "--bs=4k", "--iodepth=32", "--norandommap"), 0.85),
    "4 KiB random write, QD 1": Load(("--rw=randwrite", "--bs=4k", "--iodepth=1", "--norandommap"), 0.85),
    "4 KiB random read, QD 32": Load(("--rw=randread", "--bs=4k", "--iodepth=32", "--norandommap"), 0.95),
    "128 KiB sequential write, QD 8": Load(("--rw=write", "--bs=128k", "--iodepth=8"), 0.95),
    "1 MiB sequential write, QD 8": Load(("--rw=write", "--bs=1m", "--iodepth=8"), 0.85),
}


def make_sizes() -> dict[str, int]:
    return {"user_bytes": SIZE, "physical_bytes": physical_bytes(SIZE, Fraction(28, 100))}


def measure_iops(device: str, options: tuple[str, ...]) -> float:
    timed = ("--ioengine=libaio", "--time_based", f"--runtime={1000 * SECONDS:.0f}ms", "--randrepeat=0")
    return run_fio(device, [*options, *timed]).iops


class Server(NamedTuple):
    device: LoopDevice
    pid: int

    def read_cpu_ns(self) -> int:
        """Return the CPU time of its threads so far."""
        return sum(
            int(thread.read_text().split()[0])
            for thread in Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        )


class Measurement(NamedTuple):
    iops: float
    cpu_us: float  # of the server, per command


def measure_server(server: Server, options: tuple[str, ...]) -> Measurement:
    server.device.require_same()
    begin = server.read_cpu_ns()
    rate = measure_iops(server.device.node, options)
    return Measurement(rate, (server.read_cpu_ns() - begin) / (rate * SECONDS) / 1000)


class Comparison(NamedTuple):
    """The measurements of each server in each round."""

    drive: list[Measurement]
    pass_through: list[Measurement]
    again: list[Measurement]

    def compute_ratios(self, numerator: list[Measurement]) -> list[float]:
        """Return the sorted ratios to the pass-through server's IOPS in the same round."""
        return sorted(a.iops / b.iops for a, b in zip(numerator, self.pass_through, strict=True))

    def judge_bound(self, bound: float) -> str:
        """Return "" if the bound holds, "undecided" if equal servers miss it in a quarter of the rounds."""
        if statistics.median(self.compute_ratios(self.drive)) >= bound:
            return ""
        equal = self.compute_ratios(self.again)
        # Either of the two equal servers may be the slower one.
        lower = min(equal[len(equal) // 4], 1 / equal[-1 - len(equal) // 4])
        return "undecided" if lower < bound else "**missed**"


def compare_servers(servers: list[Server], options: tuple[str, ...]) -> Comparison:
    """Run the load on each server ROUNDS times; the servers take turns in going first."""
    rounds = []
    for number in range(ROUNDS):
        order = [*range(number % 3, 3), *range(number % 3)]
        measured = {place: measure_server(servers[place], options) for place in order}
        rounds.append([measured[place] for place in range(3)])
    drive, pass_through, again = map(list, zip(*rounds, strict=True))
    return Comparison(drive, pass_through, again)


def bound_memory_of_1_tib() -> int:
    """Return the upper bound in bytes of the memory of a 1 TiB drive's server, without contents."""
    size = 1 << 40
    config = {"user_bytes": size, "physical_bytes": physical_bytes(size, Fraction(7, 100))}
    with create_drive("1t", config, no_data=True) as (_, place):
        record = place.read_record()
        assert record
        peak = run_tool(["grep", "VmPeak", f"/proc/{record.pid}/status"])
        return int(peak.split()[1]) * 1024


def format_row(name: str, load: Load, compared: Comparison) -> str:
    """Return a row of the table."""
    ours, theirs = ([one.iops for one in some] for some in (compared.drive, compared.pass_through))
    cpu = [statistics.median(one.cpu_us for one in some) for some in (compared.drive, compared.pass_through)]
    equal = compared.compute_ratios(compared.again)
    quarter = len(equal) // 4
    return (
        f"| {name} | {statistics.median(ours):.0f} | {statistics.median(theirs):.0f} "
        f"| {statistics.median(compared.compute_ratios(compared.drive)):.3f} "
        f"{compared.judge_bound(load.bound)} "
        f"| {load.bound} "
        f"| {statistics.median(equal):.3f} ({equal[quarter]:.3f} to {equal[-1 - quarter]:.3f}) "
        f"| {cpu[0]:.1f} / {cpu[1]:.1f} |"
    )


HEAD = (
    "| load, without timing | drive IOPS | pass-through IOPS | ratio | bound | "
    "two equal servers (middle half) | server CPU per command, µs |\n|---|---|---|---|---|---|---|"
)


def main() -> int:
    enter_own_namespace()
    print(f"on {describe_machine()}, medians of {ROUNDS} rounds\n{HEAD}")
    holds = True
    with ExitStack() as stack:
        servers = []
        for name, words in (("ftl", ()), ("pass", ("pass-through",)), ("again", ("pass-through",))):
            device, place = stack.enter_context(create_drive(name, make_sizes(), words=words))
            record = place.read_record()
            assert record
            servers.append(Server(device, record.pid))
            run_fio(device.node, ["--rw=write", "--bs=1m", f"--size={SIZE}"])
        for name, load in LOADS.items():
            compared = compare_servers(servers, load.options)
            holds = holds and compared.judge_bound(load.bound) != "**missed**"
            print(format_row(name, load, compared), flush=True)
    memory = bound_memory_of_1_tib()
    print(
        f"\nServer of a 1 TiB drive without contents: at most {memory / 2**30:.2f} GiB of memory (bound 2.5)."
    )
    return choose_exit_status(holds=holds and memory < 2.5 * 2**30)


if __name__ == "__main__":
    sys.exit(main())
