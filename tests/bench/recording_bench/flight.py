"""Measure the cost of `opwatch flight` with 24 disks and one sample per second.

Measures a recorder's CPU time with that many loop devices under load, and the size of a ring after half an
hour of synthetic disks.

    python -m tests.bench.recording_bench.flight [SECONDS]
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from opwatch.host.scratch import ScratchDisk
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.ring import Ring, RingBounds
from opwatch.samples.entries import DiskAdded, IntervalEnded
from tests.bench.recording_bench.synthetic_day import compute_rates, make_disks

DISKS = 24
KEEP_S, MOST_BYTES, MOST_CORE = 900, 64 << 20, 0.01
# The synthetic day at the time of the highest database load.
_BEGIN_S = 11 * 3600
_WARM_S = 5
_FLIGHT = (sys.executable, "-m", "opwatch", "flight", "-q", "--keep", f"{KEEP_S}s")
_LOAD = (
    *("fio", "--output=/dev/null", "--rw=randrw", "--bs=4k", "--direct=1", "--ioengine=libaio"),
    *("--time_based", "--rate_iops=50,50", "--thread"),
)


def measure_core_share(seconds: float) -> float:
    """Return a running recorder's CPU time in seconds per second.

    The time of the recorder's BPF programs is not included: requests pay for them (`opwatch overhead`).
    """
    with ExitStack() as stack:
        nodes = [stack.enter_context(ScratchDisk(64 << 20)).node for _ in range(DISKS)]
        ring = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "ring"
        jobs = [word for node in nodes for word in (f"--name={Path(node).name}", f"--filename={node}")]
        load = stack.enter_context(subprocess.Popen([*_LOAD, f"--runtime={seconds + 600}", *jobs]))
        stack.callback(load.terminate)
        named = [word for node in nodes for word in ("--dev", node)]
        recorder = stack.enter_context(subprocess.Popen([*_FLIGHT, *named, "--ring", str(ring)]))
        stack.callback(recorder.send_signal, signal.SIGTERM)
        while not (ring.is_dir() and any(ring.iterdir())):
            assert recorder.poll() is None, "the recorder exited"
            time.sleep(0.2)
        time.sleep(_WARM_S)
        begun, spent = time.monotonic(), _read_cpu_s(recorder.pid)
        time.sleep(seconds)
        return (_read_cpu_s(recorder.pid) - spent) / (time.monotonic() - begun)


def _read_cpu_s(pid: int) -> float:
    """Return a process's user and system CPU time so far, in seconds."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def measure_ring() -> tuple[int, float]:
    """Return (the size of a ring's files in bytes, the writer's CPU seconds per second).

    The ring gets twice the time it keeps. Writing runs faster than real time, so no file expires.
    """
    chance = random.Random(1)
    watched = [disk for seed in range(DISKS // 4) for disk in make_disks(seed)]
    most, spent = 0, 0.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = RingFolder(Path(temporary) / "ring", make=True)
        folder.lock_as_recorder()
        ring = Ring(folder, {"tool": "bench", "interval_ns": 10**9}, RingBounds(KEEP_S, MOST_BYTES))
        ring.begin_transaction()
        for place, disk in enumerate(watched):
            ring.add_entry(DiskAdded(place, disk.make_sample(0)))
        ring.commit()
        for second in range(1, 2 * KEEP_S + 1):
            for disk in watched:
                disk.add_second(compute_rates(disk.name, _BEGIN_S + second, chance))
            samples = {place: disk.make_sample(second) for place, disk in enumerate(watched)}
            shared = {place: replace(one, anchor=samples[0].anchor) for place, one in samples.items()}
            begun = time.thread_time()
            ring.begin_transaction()
            ring.add_entry(IntervalEnded(shared))
            ring.commit()
            ring.run_maintenance()
            spent += time.thread_time() - begun
            if second % 30 == 0:
                most = max(most, sum(path.stat().st_size for path in Path(temporary).rglob("*")))
        ring.abandon()
        folder.close()
    return most, spent / (2 * KEEP_S)


def main() -> int:
    seconds = float(sys.argv[1]) if sys.argv[1:] else 60.0
    share = measure_core_share(seconds)
    print(f"{DISKS} loop devices: {100 * share:.2f} % of a core, bound {100 * MOST_CORE:g} %", flush=True)
    size, writing = measure_ring()
    mib = size / (1 << 20)
    print(
        f"{2 * KEEP_S} s of {DISKS} synthetic disks: {mib:.1f} MiB, bound {MOST_BYTES >> 20} for {KEEP_S} s"
    )
    print(f"  of that, writing: {100 * writing:.2f} % of a core")
    return int(share > MOST_CORE or size > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
