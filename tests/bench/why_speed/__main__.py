"""Measure `opwatch why` on a day of 24 disks: time, memory, and whether it finds the bursts.

    python -m tests.bench.why_speed [SECONDS [DISKS]]

Fails above 10 s or 500 MB, or if flushes are not named as the cause on a disk. The bursts are of 4 s, one per
half an hour.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.figure import choose_exit_status, choose_size
from tests.bench.why_speed.long_recording import DISTINCT, draw_bursts, write_long_recording

_MAX_S, _MAX_BYTES = 10.0, 500 * 10**6
_BURST_EVERY_S = 1800
_SEED = 20_261_129


def _ask(path: Path) -> tuple[bytes, float, float, int]:
    """Return the answer, the elapsed and the CPU time in seconds, and the largest memory in bytes."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "opwatch", "why", str(path), "--json"], stdout=subprocess.PIPE, check=True
    )
    elapsed, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, elapsed, cpu, after.ru_maxrss * 1024


def main() -> int:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else choose_size(86_400, 3600)
    disks = int(sys.argv[2]) if len(sys.argv) > 2 else choose_size(24, 4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.opw"
        bursts = draw_bursts(seconds, max(seconds // _BURST_EVERY_S, 3), _SEED)
        write_long_recording(path, seconds, disks, bursts, _SEED)
        size = os.path.getsize(path)
        output, elapsed, cpu, memory = _ask(path)
    slow = json.loads(output)["slow"]
    right = sum(
        one["op"] == "read" and [cause["names"] for cause in one["causes"]] == [["flushes"]] for one in slow
    )
    others = sum(any(cause["names"] != ["flushes"] for cause in one["causes"]) for one in slow)
    episodes = [len(one["episodes"]) for one in slow if one["op"] == "read"]
    print(f"{seconds} s of {disks} disks ({DISTINCT} recorded, the others copied), {size / 1e6:.0f} MB")
    print(f"answer: {elapsed:.1f} s, {cpu:.1f} s of CPU time (bound {_MAX_S:g} s)")
    print(f"memory: {memory / 1e6:.0f} MB (bound {_MAX_BYTES / 1e6:.0f} MB)")
    print(
        f"flushes named on {right} of {disks} disks, another cause on {others}; "
        f"{min(episodes, default=0)} to {max(episodes, default=0)} of {len(bursts)} bursts seen per disk"
    )
    holds = elapsed <= _MAX_S and memory <= _MAX_BYTES and right == disks and not others
    return choose_exit_status(holds=holds)


if __name__ == "__main__":
    sys.exit(main())
