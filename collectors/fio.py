"""fio: a load whose size is known, and fio's own count of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from opwatch.errors import OpwatchError
from opwatch.process import run_tool

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
    jobs = json.loads(text[start:])["jobs"]
    requests = dict.fromkeys(_OPS.values(), 0)
    bytes_ = dict.fromkeys(_OPS.values(), 0)
    for job in jobs:
        for key, op in _OPS.items():
            requests[op] += job[key]["total_ios"]
            bytes_[op] += job[key]["io_bytes"]
    return FioResult(requests, bytes_, max(job["job_runtime"] for job in jobs) / 1000)


def run_fio(filename: str, options: Sequence[str], timeout_s: float = 300) -> FioResult:
    """Run one job on a device or file and return fio's own count."""
    argv = ["fio", "--name=opwatch", f"--filename={filename}", "--output-format=json", "--direct=1"]
    return decode_fio(run_tool([*argv, *options], timeout_s))
