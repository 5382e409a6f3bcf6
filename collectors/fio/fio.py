"""fio: a load whose size is known, and fio's own count of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opwatch.errors import OpwatchError
from opwatch.foreign import parse_json
from opwatch.host.process import run_tool

_OPS = {"read": "read", "write": "write", "trim": "discard"}


@dataclass(frozen=True, slots=True)
class FioResult:
    """What fio says it did, by operation."""

    requests: dict[str, int]
    bytes: dict[str, int]
    seconds: float

    @property
    def iops(self) -> float:
        return sum(self.requests.values()) / self.seconds


def decode_fio(text: str) -> FioResult:
    """The total of all jobs of a JSON report. Pure."""
    start = text.find("{")
    if start < 0:
        raise OpwatchError("fio printed no JSON")
    requests = dict.fromkeys(_OPS.values(), 0)
    bytes_ = dict.fromkeys(_OPS.values(), 0)
    try:
        jobs = parse_json(text[start:], "fio's report")["jobs"]
        for job in jobs:
            for key, op in _OPS.items():
                requests[op] += int(job[key]["total_ios"])
                bytes_[op] += int(job[key]["io_bytes"])
        seconds = max(int(job["job_runtime"]) for job in jobs) / 1000
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise OpwatchError(f"fio's report makes no sense: {error!r:.200}") from error
    return FioResult(requests, bytes_, seconds)


def run_fio(filename: str, options: Sequence[str], timeout_s: float = 300) -> FioResult:
    """Run one job on a device or file and return fio's own count."""
    # A job in a process of its own would outlive fio, and keep the device open.
    argv = [
        "fio",
        "--name=opwatch",
        "--thread",
        f"--filename={filename}",
        "--output-format=json",
        "--direct=1",
    ]
    return decode_fio(run_tool([*argv, *options], timeout_s, ends_with_us=True))
