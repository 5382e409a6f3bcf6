"""How much slower the requests of a run were while its cause acted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kernel.support.watching import run_opwatch
from tests.why.bench import Injection


@dataclass(frozen=True)
class Latency:
    """Requests, their total time in the device and in the queue, and the longest time in the device."""

    requests: int = 0
    ns: float = 0.0
    max_ns: int = 0

    @property
    def mean_ms(self) -> float:
        return self.ns / self.requests / 1e6 if self.requests else 0.0

    def add(self, other: Latency) -> Latency:
        """Return both together."""
        longest = max(self.max_ns, other.max_ns)
        return Latency(self.requests + other.requests, self.ns + other.ns, longest)


def measure_effect(recording: Path, injections: tuple[Injection, ...]) -> tuple[Latency, Latency]:
    """Return the reads and writes of the intervals that touch an injection, and of the others."""
    inside, outside = Latency(), Latency()
    for line in run_opwatch("replay", str(recording), "--json").stdout.splitlines():
        entry = json.loads(line)
        if entry.get("type") != "interval":
            continue
        begin_ns, end_ns = entry["begin_mono_ns"], entry["end_mono_ns"]
        latency = _sum_interval(entry)
        if any(each.begin_ns < end_ns and each.end_ns > begin_ns for each in injections):
            inside = inside.add(latency)
        else:
            outside = outside.add(latency)
    return inside, outside


def _sum_interval(entry: dict[str, Any]) -> Latency:
    both = Latency()
    for name in ("read", "write"):
        count, latency = entry["ops"][name]["count"], entry["ops"][name]["latency_ns"]
        queue = (entry["ops"][name].get("queue_ns") or {}).get("mean")
        total = count * ((latency["mean"] or 0) + (queue or 0))
        both = both.add(Latency(count, total, latency["max"] or 0))
    return both
