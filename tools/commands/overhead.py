"""`opwatch overhead`: measure the cost of tracing on this machine."""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from opwatch import SCHEMA
from opwatch.collectors.block.blk import BlockTracer, explain_probe_error
from opwatch.errors import NotEnoughData, Unsupported
from opwatch.host.device import Devices
from opwatch.host.privilege import require_root
from opwatch.host.scratch import ScratchDisk
from opwatch.sinks.terminal import Writer, open_stdout
from opwatch.tools.acting.fio.fio import run_fio
from opwatch.tools.arguments import count_between, time_between
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.trace.programs import FLOORS

LOAD = ("--rw=randread", "--bs=4k", "--iodepth=32", "--ioengine=libaio", "--time_based")
SCRATCH_BYTES = 1 << 30
MIN_REQUESTS = 1000


@dataclass(frozen=True, slots=True)
class ProgramCost:
    """Mean time per run of one program, with and without the cost of an empty program."""

    name: str
    runs: int
    raw_ns: float
    net_ns: float


@dataclass(frozen=True, slots=True)
class TracingCost:
    """Tracing cost in a window. `per_io_ns` excludes the cost of empty programs and covers all completed
    I/Os."""

    programs: list[ProgramCost]
    floor_ns: float
    ios: int
    seconds: float
    per_io_ns: float

    @property
    def core_ratio(self) -> float:
        """Return the share of one core used at the measured I/O rate."""
        return self.per_io_ns * self.ios / (self.seconds * 1e9)


@contextmanager
def enable_program_statistics() -> Iterator[None]:
    """Let the kernel time BPF programs inside the context only."""
    try:
        from opwatch._native import enable_stats
    except ImportError as error:
        raise Unsupported(
            "this opwatch was built without its tracer; opwatch doctor shows what to install"
        ) from error
    descriptor = enable_stats()
    try:
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _RunCounts:
    """Runs and time of each program, and the I/Os completed so far."""

    programs: dict[str, tuple[int, int]]
    floor: dict[str, tuple[int, int]]
    ios: int
    at: float


class CostMeter:
    """The tracer and empty programs attached to the same events. cost() covers the time since
    construction."""

    def __init__(self, tracer: BlockTracer) -> None:
        # Imported here so that program_statistics() can report a missing extension first.
        from opwatch._native import Floor, ProbeError

        self._tracer = tracer
        try:
            self._floor = Floor(FLOORS["empty"])
        except ProbeError as error:
            raise explain_probe_error(error) from error
        self._begin = self._read_counts()

    def _read_counts(self) -> _RunCounts:
        ios = sum(op.completed for r in self._tracer.read() for op in r.sample.ops.values())
        return _RunCounts(
            {name: (runs, ns) for name, _, runs, ns, _ in self._tracer.list_programs()},
            {name: (runs, ns) for name, _, runs, ns, _ in self._floor.programs()},
            ios,
            time.monotonic(),
        )

    def compute_cost(self) -> TracingCost:
        """Return the cost so far. Raise NotEnoughData if there were too few I/Os for a meaningful mean."""
        begin, end = self._begin, self._read_counts()
        ios = end.ios - begin.ios
        if ios < MIN_REQUESTS:
            raise NotEnoughData(
                f"{ios} I/Os are too few: at least {MIN_REQUESTS} are needed; put load on the disk"
            )
        floor_ns = _compute_mean_ns(list(end.floor.items()), begin.floor)
        programs, total = [], 0.0
        for name, (runs, ns) in end.programs.items():
            runs, ns = runs - begin.programs[name][0], ns - begin.programs[name][1]
            if runs:
                programs.append(ProgramCost(name, runs, ns / runs, ns / runs - floor_ns))
                total += ns - runs * floor_ns
        return TracingCost(programs, floor_ns, ios, end.at - begin.at, total / ios)

    def close(self) -> None:
        self._floor.close()


def _compute_mean_ns(end: list[tuple[str, tuple[int, int]]], begin: dict[str, tuple[int, int]]) -> float:
    """Return the mean ns per run over several programs."""
    runs = sum(now[0] - begin[name][0] for name, now in end)
    ns = sum(now[1] - begin[name][1] for name, now in end)
    return ns / runs if runs else 0.0


def measure_device(dev: list[str] | None, seconds: float) -> TracingCost:
    """Return the cost on disks under their present load."""
    leaves, _ = choose_leaves(Devices(), dev)
    tracer = BlockTracer(leaves)
    try:
        with enable_program_statistics():
            meter = CostMeter(tracer)
            time.sleep(seconds)
            try:
                return meter.compute_cost()
            finally:
                meter.close()
    finally:
        tracer.close()


def measure_scratch(disk: ScratchDisk, seconds: float) -> TracingCost:
    """Return the cost on a scratch disk loaded by fio."""
    leaves, _ = choose_leaves(Devices(), [disk.node])
    tracer = BlockTracer(leaves)
    try:
        with enable_program_statistics():
            meter = CostMeter(tracer)
            run_fio(disk.path, [*LOAD, f"--runtime={seconds}"], seconds + 60)
            try:
                return meter.compute_cost()
            finally:
                meter.close()
    finally:
        tracer.close()


@dataclass(frozen=True, slots=True)
class Throughput:
    """Ratios of traced to untraced IOPS, one per pair."""

    ratios: list[float]
    untraced_iops: float

    @property
    def median_ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def confidence_level(self) -> float:
        """Return the probability that the range of the ratios contains the true median.

        Each ratio is above or below the median with equal probability, so all n are on the same side in 2 of
        2^n cases.
        """
        return 1 - 2.0 ** (1 - len(self.ratios))

    @property
    def note(self) -> str | None:
        if len(self.ratios) > 1:
            return None
        return "one pair proves nothing, because the variation between runs is unknown; use --pairs 5"


def compare_throughput(disk: ScratchDisk, pairs: int, seconds: float) -> Throughput:
    """Run fio with and without the tracer in turn, and reverse the order in every other pair."""
    leaves, _ = choose_leaves(Devices(), [disk.node])

    def run_traced() -> float:
        tracer = BlockTracer(leaves)
        try:
            return run_fio(disk.path, [*LOAD, f"--runtime={seconds}"], seconds + 60).iops
        finally:
            tracer.close()

    def run_untraced() -> float:
        return run_fio(disk.path, [*LOAD, f"--runtime={seconds}"], seconds + 60).iops

    ratios, base = [], []
    run_untraced()  # the first run also fills the page cache
    for index in range(pairs):
        if index % 2:
            with_, without = run_traced(), run_untraced()
        else:
            without, with_ = run_untraced(), run_traced()
        ratios.append(with_ / without)
        base.append(without)
    return Throughput(ratios, statistics.median(base))


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP exit through the clean-up inside the context, unless they were ignored."""

    def raise_exit(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, raise_exit)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dev",
        action="append",
        metavar="D",
        help="measure on this disk under its present load; may be given several times",
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        type=time_between(0.1, 3600),
        default=3.0,
        metavar="T",
        help="time of each measurement (3s)",
    )
    parser.add_argument(
        "--pairs",
        type=count_between(0, 10**6),
        default=5,
        help="pairs of runs with and without tracing (5; 0 for none)",
    )
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')


def _build_document(cost: TracingCost, throughput: Throughput | None) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "ios": cost.ios,
        "seconds": cost.seconds,
        "floor_ns": cost.floor_ns,
        "net_ns_per_io": cost.per_io_ns,
        "core_ratio": cost.core_ratio,
        "programs": [
            {"name": p.name, "runs": p.runs, "raw_ns": p.raw_ns, "net_ns": p.net_ns} for p in cost.programs
        ],
        "throughput": None
        if throughput is None
        else {
            "median_ratio": throughput.median_ratio,
            "ratios": throughput.ratios,
            "untraced_iops": throughput.untraced_iops,
            "range_confidence": throughput.confidence_level,
            "note": throughput.note,
        },
    }


def _print_cost(cost: TracingCost, throughput: Throughput | None) -> None:
    out = open_stdout()
    out.write_line(f"{'program':<18} {'runs':>10} {'ns':>7} {'net ns':>7}")
    for program in cost.programs:
        out.write_line(f"{program.name:<18} {program.runs:>10} {program.raw_ns:>7.0f} {program.net_ns:>7.0f}")
    out.write_line(f"{'(empty program)':<18} {'':>10} {cost.floor_ns:>7.0f}")
    out.write_line(
        f"{cost.per_io_ns:.0f} ns per I/O, net of empty programs; at {cost.ios / cost.seconds:.0f} I/Os "
        f"per second {cost.core_ratio * 100:.2f} % of one core"
    )
    if throughput:
        _print_throughput(out, throughput)


def _print_throughput(out: Writer, throughput: Throughput) -> None:
    low, high, count = min(throughput.ratios), max(throughput.ratios), len(throughput.ratios)
    out.write_line(
        f"IOPS traced / untraced: median {throughput.median_ratio:.3f} ({low:.3f} to {high:.3f}, {count} "
        f"pair{'s' if count > 1 else ''}, {throughput.untraced_iops:.0f} IOPS untraced)"
    )
    out.write_line(
        throughput.note
        or f"the range contains the true median with {throughput.confidence_level * 100:.2f} % confidence"
    )


def run(args: argparse.Namespace) -> int:
    throughput = None
    if args.dev:
        cost = measure_device(args.dev, args.seconds)
    else:
        require_root(
            "opwatch overhead without --dev",
            "it makes a loop device, puts load on it and traces it",
            "overhead",
        )
        with exit_on_signals(), ScratchDisk(SCRATCH_BYTES) as disk:
            cost = measure_scratch(disk, args.seconds)
            if args.pairs > 0:
                throughput = compare_throughput(disk, args.pairs, args.seconds)
    if args.json:
        open_stdout().write_json(_build_document(cost, throughput))
    else:
        _print_cost(cost, throughput)
    return 0
