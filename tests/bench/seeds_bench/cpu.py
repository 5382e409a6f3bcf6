"""`make bench-drive`: CPU time of each published experiment on simulated flash."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.figure import Figure, choose_exit_status, choose_size, format_table

MAX_CPU_S = 10.0
EXPERIMENTS = {
    "free-space": "fusionio-duo-320",
    "iometer-op10": "wd-blue-1tb",
    "untrimmed-cliff": "intel-545s-256",
    "write-saturation": "intel-520-240",
}


def measure_cpu_time(name: str, profile: str, folder: Path) -> float:
    """Return the CPU seconds of an experiment, including those of its processes."""
    before = os.times()
    command = [sys.executable, "-m", "opwatch", "sweep", "run", "--scenario", name, "--virtual", profile]
    command += ["-q", "-o", str(folder / f"{name}.json")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return sum(os.times()[2:4]) - sum(before[2:4])


def main() -> int:
    chosen = dict(list(EXPERIMENTS.items())[: choose_size(len(EXPERIMENTS), 1)])
    with tempfile.TemporaryDirectory() as folder:
        figures = [
            Figure(name, measure_cpu_time(name, profile, Path(folder)), MAX_CPU_S, f"CPU seconds, {profile}")
            for name, profile in chosen.items()
        ]
    print("\n".join(format_table(figures)))
    return choose_exit_status(holds=all(figure.is_within_bound for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
