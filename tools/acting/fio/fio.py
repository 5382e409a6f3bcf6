"""Run fio for a load of known size, and return fio's own count."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.fio.report import parse_report
from opwatch.fio.results import FioTotal
from opwatch.host.process import run_tool


def run_fio(filename: str, options: Sequence[str], timeout_s: float = 300) -> FioTotal:
    """Run one job on a device or file and return fio's own count."""
    # --thread: a job in a separate process would outlive fio and keep the device open.
    argv = [
        "fio",
        "--name=opwatch",
        "--thread",
        f"--filename={filename}",
        "--output-format=json",
        "--direct=1",
    ]
    return parse_report(run_tool([*argv, *options], timeout_s, ends_with_us=True)).total
