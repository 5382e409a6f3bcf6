"""One function for each figure that docs/overhead.md promises. Each returns a Figure with its bound."""

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

from opwatch import _native, abi
from opwatch.collectors.blk import BlockTracer
from opwatch.collectors.discards import DiscardTracer
from opwatch.collectors.fio import run_fio
from opwatch.device import Devices
from opwatch.hist import Histogram
from opwatch.scratch import ScratchDisk
from opwatch.tools.overhead import LOAD, CostMeter, program_statistics
from opwatch.tools.watch import choose_leaves

from .figure import Figure
from .peer import running_peer

OPWATCH = [sys.executable, "-m", "opwatch"]


def _ours_net_ns(nodes: list[str], loaded: str, seconds: float) -> float:
    """ns an I/O net of empty programs, watching `nodes` while one of them is loaded."""
    leaves, _ = choose_leaves(Devices(), nodes)
    tracer = BlockTracer(leaves)
    try:
        meter = CostMeter(tracer)
        run_fio(loaded, [*LOAD, f"--runtime={seconds}"])
        cost = meter.cost()
        meter.close()
        return cost.per_io_ns
    finally:
        tracer.close()


Programs = list[tuple[str, int, int, int, int]]


def floor_of(empty: Programs) -> float:
    """ns of one run of an empty program."""
    return sum(program[3] for program in empty) / sum(program[2] for program in empty)


def net_ns(programs: Programs, floor_ns: float) -> float:
    """ns of all their runs, less what as many of empty ones take."""
    return sum(program[3] - program[2] * floor_ns for program in programs)


def _peer_net_ns(node: str, seconds: float) -> float:
    """The same of biolatency, less the same empty programs."""
    floor = _native.Floor()
    try:
        with running_peer() as peer:
            begin, floor_begin = peer.read(), floor.programs()
            run_fio(node, [*LOAD, f"--runtime={seconds}"])
            end, floor_end = peer.read(), floor.programs()
    finally:
        floor.close()
    floor_runs = sum(p[2] for p in floor_end) - sum(p[2] for p in floor_begin)
    floor_ns = (sum(p[3] for p in floor_end) - sum(p[3] for p in floor_begin)) / floor_runs
    runs = sum(end[i][0] - begin[i][0] for i in begin)
    ns = sum(end[i][1] - begin[i][1] for i in begin)
    ios = floor_end[1][2] - floor_begin[1][2]
    return (ns - runs * floor_ns) / ios


def against_peer(rounds: int = 7, seconds: float = 2) -> Figure:
    """Ours over theirs, in turn; the median of the pairs' ratios."""
    ours, theirs = [], []
    with ScratchDisk(1 << 30) as disk, program_statistics():
        run_fio(disk.node, [*LOAD, "--runtime=1"])
        for _ in range(rounds):
            ours.append(_ours_net_ns([disk.node], disk.node, seconds))
            theirs.append(_peer_net_ns(disk.node, seconds))
    mine, peer = statistics.median(ours), statistics.median(theirs)
    return Figure(
        "net ns an I/O / libbpf-tools biolatency -D -F",
        statistics.median(a / b for a, b in zip(ours, theirs, strict=True)),
        0.35,
        f"{mine:.0f} ns / {peer:.0f} ns",
    )


def many_devices(rounds: int = 11, seconds: float = 2, count: int = 24) -> Figure:
    """The cost of one I/O while 24 disks are watched, over the cost while one is."""
    one, many = [], []
    with ExitStack() as stack:
        disks = [stack.enter_context(ScratchDisk(1 << 30)) for _ in range(count)]
        stack.enter_context(program_statistics())
        nodes = [disk.node for disk in disks]
        run_fio(nodes[0], [*LOAD, "--runtime=1"])
        for _ in range(rounds):
            one.append(_ours_net_ns(nodes[:1], nodes[0], seconds))
            many.append(_ours_net_ns(nodes, nodes[0], seconds))
    ratio = statistics.median(b / a for a, b in zip(one, many, strict=True))
    return Figure(
        f"net ns an I/O, {count} disks watched / one",
        ratio,
        1.15,
        f"{statistics.median(many):.0f} ns / {statistics.median(one):.0f} ns",
    )


def beside_discards(rounds: int = 7, seconds: float = 2) -> Figure:
    """What the view of discards adds to each read, by looking for those that wait behind discards."""
    alone, added = [], []
    with ScratchDisk(1 << 30) as disk, program_statistics():
        for _ in range(rounds):
            alone.append(_ours_net_ns([disk.node], disk.node, seconds))
            floor = _native.Floor()
            try:
                with DiscardTracer(
                    [Devices().resolve(disk.node)], functions=False, stalls=True, commands=False
                ) as tracer:
                    run_fio(disk.node, [*LOAD, f"--runtime={seconds}"])
                    ours, empty = tracer.programs(), floor.programs()
            finally:
                floor.close()
            added.append(net_ns(ours, floor_of(empty)) / empty[1][2])
    mine, more = statistics.median(alone), statistics.median(added)
    ratio = statistics.median((a + b) / a for a, b in zip(alone, added, strict=True))
    return Figure(
        "net ns a read, with the view of discards / without",
        ratio,
        1.3,
        f"{more:.0f} ns more than {mine:.0f} ns",
    )


def start_up(rounds: int = 11) -> tuple[Figure, str]:
    """Process start to first data line, less the interval asked for; and a bcc tool's start beside it."""
    times = []
    with ScratchDisk(1 << 26) as disk:
        for _ in range(rounds):
            begin = time.monotonic()
            with subprocess.Popen(
                [*OPWATCH, "--dev", disk.name, "--json", "0.1", "1"], stdout=subprocess.PIPE
            ) as process:
                assert process.stdout
                process.stdout.readline()
                times.append(time.monotonic() - begin - 0.1)
                process.stdout.read()
    figure = Figure("start to first line", statistics.median(times), 0.5, f"median of {rounds}, s")
    return figure, _bcc_start_up()


def _bcc_start_up() -> str:
    tool = shutil.which("biolatency-bpfcc")
    if not tool:
        return "biolatency-bpfcc is not installed"
    begin = time.monotonic()
    done = subprocess.run([tool, "1", "1"], capture_output=True, check=False, timeout=120)
    taken = time.monotonic() - begin - 1
    return f"{taken:.1f} s" if done.returncode == 0 else "does not start on this kernel"


def memory(seconds: int = 60) -> Figure:
    """Peak resident memory of a plain watch."""
    with ScratchDisk(1 << 28) as disk:
        process = subprocess.Popen(
            [*OPWATCH, "--dev", disk.name, "--plain", "1", str(seconds)], stdout=subprocess.DEVNULL
        )
        run_fio(disk.node, [*LOAD, f"--runtime={seconds - 1}", "--rate_iops=20000"])
        peak = _peak_kib(process.pid)
        process.wait()
    return Figure(f"peak resident memory in {seconds} s", peak / 1024, 40, "MiB")


def _peak_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    raise RuntimeError("no VmHWM")


def user_cpu(seconds: int = 30, count: int = 24) -> Figure:
    """CPU time of the user side with 24 disks, all of them busy, at one line a second."""
    with ExitStack() as stack:
        disks = [stack.enter_context(ScratchDisk(1 << 26)) for _ in range(count)]
        nodes = [disk.node for disk in disks]
        arguments = [argument for node in nodes for argument in ("--dev", node)]
        short, long = (_cpu_of(arguments, nodes, span) for span in (5, seconds + 5))
    return Figure(
        f"CPU of the user side, {count} busy disks, 1 s",
        (long - short) / seconds * 100,
        1.0,
        "% of one core, start-up taken off",
    )


def _cpu_of(arguments: list[str], nodes: list[str], seconds: int) -> float:
    """CPU seconds of one watch over disks under a light mixed load."""
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


def quantile_error(samples: int = 200_000) -> Figure:
    """The worst relative error of a quantile over distributions as drives show them."""
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
        histogram = Histogram.of(abi.LATENCY, values)
        for parts in (500, 900, 990, 999):
            exact = values[-(-parts * samples // 1000) - 1]
            found = histogram.quantile(parts / 1000, values[-1])
            assert found
            worst = max(worst, abs(found.value - exact) / exact)
    return Figure("quantile error against exact", worst * 100, 1.5625, "%, worst of 5 shapes x 4 quantiles")


def map_memory(disks: int = 24, cpus: int = 64, queues: int = 64, depth: int = 1023) -> Figure:
    """Map memory for 24 drives of 64 queues on 64 CPUs: computed, not loaded."""
    targets = [abi.Target(*abi.WHOLE_DISK, i * queues * depth, queues, depth) for i in range(disks)]
    used = _native.map_bytes(abi.pack_targets(targets), b"", disks * queues * depth, 0, cpus)
    return Figure(
        f"map memory, {disks} disks x {cpus} CPUs",
        used / 2**20,
        64,
        f"MiB, with {queues} x {depth} tags a disk",
    )


def machine() -> str:
    return f"{os.cpu_count()} CPUs, Linux {os.uname().release}"
