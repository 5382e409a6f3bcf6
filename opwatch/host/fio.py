"""What fio says that it did. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.errors import OpwatchError
from opwatch.foreign import parse_json

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
    """The total of all jobs of a JSON report."""
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
