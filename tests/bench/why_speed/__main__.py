"""Measure `opwatch why` on a day of 24 disks: time, memory, and whether it finds the bursts.

    python -m tests.bench.why_speed [SECONDS [DISKS]]

One recording has bursts of flushes on all disks, the other on three of them. Fails above 10 s or 500 MB, if
flushes are not named as the cause on a slow disk, or if a disk is neither examined nor named as not examined.
The bursts are of 4 s, one per half an hour.
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
_SLOW_DISKS = 3
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


def _judge_answer(output: bytes, slow_disks: int, disks: int, bursts: int) -> bool:
    """Print what was found, and return whether it is what was recorded."""
    document = json.loads(output)
    causes = {
        (one["device"], one["op"]): [cause["names"] for cause in one["causes"]] for one in document["slow"]
    }
    right = sum(op == "read" and found == [["flushes"]] for (_, op), found in causes.items())
    others = sum(any(names != ["flushes"] for names in found) for found in causes.values())
    episodes = [len(one["episodes"]) for one in document["slow"] if one["op"] == "read"]
    left_out = sum(line.count("nvme") for line in document["not_examined"])
    print(
        f"flushes named on {right} of {slow_disks} slow disks, another cause on {others}; "
        f"{min(episodes, default=0)} to {max(episodes, default=0)} of {bursts} bursts seen per slow disk; "
        f"{left_out} disks named as not examined"
    )
    return right == slow_disks and not others and len(document["examined"]) + left_out == disks


def _measure(seconds: int, slow_disks: int, disks: int) -> bool:
    """Measure the answer about a recording, and return whether it holds the bounds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.opw"
        bursts = draw_bursts(seconds, max(seconds // _BURST_EVERY_S, 3), _SEED)
        write_long_recording(path, seconds, slow_disks, disks, bursts, _SEED)
        size = os.path.getsize(path)
        output, elapsed, cpu, memory = _ask(path)
    print(
        f"{seconds} s of {disks} disks ({DISTINCT} recorded, the others copied), {slow_disks} of them slow, "
        f"{size / 1e6:.0f} MB"
    )
    print(f"answer: {elapsed:.1f} s, {cpu:.1f} s of CPU time (bound {_MAX_S:g} s)")
    print(f"memory: {memory / 1e6:.0f} MB (bound {_MAX_BYTES / 1e6:.0f} MB)")
    is_right = _judge_answer(output, slow_disks, disks, len(bursts))
    return elapsed <= _MAX_S and memory <= _MAX_BYTES and is_right


def main() -> int:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else choose_size(86_400, 3600)
    disks = int(sys.argv[2]) if len(sys.argv) > 2 else choose_size(24, 4)
    results = [_measure(seconds, slow_disks, disks) for slow_disks in (disks, min(_SLOW_DISKS, disks - 1))]
    return choose_exit_status(holds=all(results))


if __name__ == "__main__":
    sys.exit(main())
