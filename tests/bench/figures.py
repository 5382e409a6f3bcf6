"""The figures promised in docs/overhead.md, measured by one function each."""

from __future__ import annotations

import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from opwatch import _native
from opwatch.collectors.block.blk import MAX_STAMPS, MAX_STAMPS_TOTAL, BlockTracer
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.acting.fio.fio import run_fio
from opwatch.tools.commands.overhead import LOAD, CostMeter, enable_program_statistics
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.trace import abi
from opwatch.trace.hist import Histogram

from .figure import Figure, choose_size

OPWATCH = [sys.executable, "-m", "opwatch"]


def _measure_net_ns(nodes: list[str], loaded: str, seconds: float) -> float:
    """Return the ns per I/O, net of empty programs, watching `nodes` while `loaded` is under load."""
    leaves, _ = choose_leaves(Devices(), nodes)
    tracer = BlockTracer(leaves)
    try:
        meter = CostMeter(tracer)
        run_fio(loaded, [*LOAD, f"--runtime={seconds}"])
        cost = meter.compute_cost()
        meter.close()
        return cost.per_io_ns
    finally:
        tracer.close()


Programs = list[tuple[str, int, int, int, int]]


def compute_floor(empty: Programs) -> float:
    """Return the ns of an empty program's run."""
    return sum(program[3] for program in empty) / sum(program[2] for program in empty)


def subtract_floor(programs: Programs, floor_ns: float) -> float:
    """Return the ns of all runs, less the time of the same number of empty runs."""
    return sum(program[3] - program[2] * floor_ns for program in programs)


def measure_many_devices(
    rounds: int = choose_size(11, 1), seconds: float = choose_size(2, 1), count: int = choose_size(24, 2)
) -> Figure:
    """Measure the cost per I/O with 24 watched disks, relative to the cost with one."""
    one, many = [], []
    with ExitStack() as stack:
        disks = [stack.enter_context(ScratchDisk(1 << 30)) for _ in range(count)]
        stack.enter_context(enable_program_statistics())
        nodes = [disk.node for disk in disks]
        run_fio(nodes[0], [*LOAD, "--runtime=1"])
        for _ in range(rounds):
            one.append(_measure_net_ns(nodes[:1], nodes[0], seconds))
            many.append(_measure_net_ns(nodes, nodes[0], seconds))
    ratio = statistics.median(b / a for a, b in zip(one, many, strict=True))
    return Figure(
        f"net ns per I/O, {count} disks watched / one",
        ratio,
        1.15,
        f"{statistics.median(many):.0f} ns / {statistics.median(one):.0f} ns",
    )


def _make_environment() -> dict[str, str]:
    """Return the environment of a typical user, in which modules are compiled once and not at every start."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def measure_version(rounds: int = choose_size(21, 1)) -> Figure:
    """Measure `opwatch --version` less 10 ms, relative to an idle interpreter.

    Both are medians of alternating runs.
    """
    ours: list[float] = []
    floor: list[float] = []
    for _ in range(rounds):
        for argv, times in (([*OPWATCH, "--version"], ours), ([sys.executable, "-c", "pass"], floor)):
            begin = time.monotonic()
            subprocess.run(argv, stdout=subprocess.DEVNULL, env=_make_environment(), check=True)
            times.append(time.monotonic() - begin)
    own, bare = statistics.median(ours), statistics.median(floor)
    text = f"{1000 * own:.0f} ms / {1000 * bare:.0f} ms"
    return Figure("--version minus 10 ms / python -c pass", (own - 0.01) / bare, 2, text)


def measure_virtual_sweep(rounds: int = choose_size(5, 1)) -> Figure:
    """Measure a virtual sweep of five levels of a 1 TB drive, from command line to table."""
    levels = choose_size("0,7,12,28,50%", "28%")
    times = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(rounds):
        begin = time.monotonic()
        argv = [*OPWATCH, "sweep", "run", "-q", "--virtual", "wd-blue-1tb", "--op", levels]
        done = subprocess.run(argv, stdout=subprocess.DEVNULL, env=_make_environment(), check=False)
        # A level that is not steady is a valid result.
        assert done.returncode in (0, 6)
        times.append(time.monotonic() - begin)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / rounds
    text = f"median of {rounds}, s; {cpu:.1f} s of CPU"
    return Figure("five levels of a simulated 1 TB drive", statistics.median(times), 10, text)


def measure_start_up(rounds: int = choose_size(11, 1)) -> tuple[Figure, str]:
    """Measure the time from process start to the first data line; also return a bcc tool's start time.

    The requested interval is subtracted.
    """
    times = []
    with ScratchDisk(1 << 26) as disk:
        for _ in range(rounds):
            begin = time.monotonic()
            with subprocess.Popen(
                [*OPWATCH, "--dev", disk.name, "--json", "0.1", "1"],
                stdout=subprocess.PIPE,
                env=_make_environment(),
            ) as process:
                assert process.stdout
                process.stdout.readline()
                times.append(time.monotonic() - begin - 0.1)
                process.stdout.read()
    figure = Figure("start to first line", statistics.median(times), 0.25, f"median of {rounds}, s")
    return figure, _format_bcc_start_up()


def _format_bcc_start_up() -> str:
    tool = shutil.which("biolatency-bpfcc")
    if not tool:
        return "biolatency-bpfcc is not installed"
    begin = time.monotonic()
    done = subprocess.run([tool, "1", "1"], capture_output=True, check=False, timeout=120)
    taken = time.monotonic() - begin - 1
    return f"{taken:.1f} s" if done.returncode == 0 else "does not start on this kernel"


def measure_memory(seconds: int = choose_size(60, 2)) -> Figure:
    """Measure the peak resident memory of a plain watch."""
    with ScratchDisk(1 << 28) as disk:
        process = subprocess.Popen(
            [*OPWATCH, "--dev", disk.name, "--plain", "1", str(seconds)], stdout=subprocess.DEVNULL
        )
        run_fio(disk.node, [*LOAD, f"--runtime={seconds - 1}", "--rate_iops=20000"])
        peak = _read_peak_kib(process.pid)
        process.wait()
    return Figure(f"peak resident memory in {seconds} s", peak / 1024, 40, "MiB")


def _read_peak_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    raise RuntimeError("VmHWM is missing")


def measure_user_cpu(seconds: int = choose_size(30, 1), count: int = choose_size(24, 2)) -> Figure:
    """Measure the user side's CPU time with 24 busy disks, at one line per second."""
    base_s = choose_size(5, 1)
    with ExitStack() as stack:
        disks = [stack.enter_context(ScratchDisk(1 << 26)) for _ in range(count)]
        nodes = [disk.node for disk in disks]
        arguments = [argument for node in nodes for argument in ("--dev", node)]
        short, long = (_measure_watch_cpu(arguments, nodes, span) for span in (base_s, seconds + base_s))
    return Figure(
        f"user-side CPU time, {count} busy disks, 1 s interval",
        (long - short) / seconds * 100,
        1.0,
        "% of one core, without start-up",
    )


def _measure_watch_cpu(arguments: list[str], nodes: list[str], seconds: int) -> float:
    """Return the CPU seconds of a watch over disks with a light mixed load."""
    load = subprocess.Popen(
        [
            *("fio", f"--filename={':'.join(nodes)}", "--bs=4k", "--direct=1", "--ioengine=libaio"),
            *("--iodepth=8", "--time_based", "--file_service_type=random", f"--runtime={seconds + 2}"),
            *("--name=reads", "--rw=randread", "--rate_iops=2000"),
            *("--name=writes", "--rw=randwrite", "--rate_iops=2000"),
        ],
        stdout=subprocess.DEVNULL,
    )
    time.sleep(1)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*OPWATCH, *arguments, "1", str(seconds)], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if load.wait():
        raise RuntimeError("fio ended with an error: the disks were not busy")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_quantile_error(samples: int = choose_size(200_000, 2000)) -> Figure:
    """Measure the worst relative error of a quantile over distributions typical of drives."""
    generator = random.Random(1)
    worst = 0.0
    shapes: list[Callable[[], float]] = [
        lambda: generator.lognormvariate(11.4, 0.4),
        lambda: generator.lognormvariate(9.6, 0.6) if generator.random() < 0.97 else 3e6,
        lambda: generator.expovariate(1 / 2e7),
        lambda: generator.uniform(1e3, 1e9),
        lambda: generator.paretovariate(1.1) * 2e4,
    ]
    for shape in shapes:
        values = sorted(min(int(shape()), 60_000_000_000) for _ in range(samples))
        histogram = Histogram.from_values(abi.LATENCY, values)
        for parts in (500, 900, 990, 999):
            exact = values[-(-parts * samples // 1000) - 1]
            quantile = histogram.find_quantile(parts / 1000, values[-1])
            assert quantile
            worst = max(worst, abs(quantile.value - exact) / exact)
    return Figure("quantile error against exact", worst * 100, 1.5625, "%, worst of 5 shapes x 4 quantiles")


def compute_map_memory(disks: int, cpus: int, queues: int, most_mib: int, depth: int = 1023) -> Figure:
    """Compute the map memory for drives with this number of queues, without loading the maps."""
    places = min(MAX_STAMPS, MAX_STAMPS_TOTAL // disks, queues * depth)
    targets = [abi.Target(*abi.WHOLE_DISK, i * places, queues, depth) for i in range(disks)]
    arguments = (abi.pack_targets(targets), b"", disks * places, 0, cpus)
    used, lanes = _native.compute_map_bytes(*arguments), _native.count_lanes(*arguments)
    return Figure(
        f"map memory, {disks} disks x {cpus} CPUs",
        used / 2**20,
        most_mib,
        f"MiB, with {queues} x {depth} tags per disk; {lanes} read histograms per disk",
    )


def describe_machine() -> str:
    return f"{os.cpu_count()} CPUs, Linux {os.uname().release}"
